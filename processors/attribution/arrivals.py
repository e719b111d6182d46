"""What the course of collectives tells: who is late, or has a GPU that is."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from nemesis.processors.attribution.wait_graph import Group, Seen, pending

LATE_NS_MIN: Final = 50_000_000  # healthy gloo ranks on one busy host scatter by 11 ms
LATE_SHARE_PPM: Final = 50_000  # of a step: a straggler that costs less is not worth a name
CLOCK_ERROR_NS: Final = 10_000_000  # NTP within a site, where a producer states no error
BEHIND_MAX: Final = 2  # of more, what they share is at fault
MEMBERS_MIN: Final = 3  # of two, nobody is the odd one
JUDGED_MAX: Final = 8  # latest collectives that count
LATE_COUNT_MIN: Final = 5  # of those: once or twice is a hiccup


class Late(NamedTuple):
    """A rank that arrives last time after time."""

    rank: int
    lag_ns: int
    late_count: int
    judged_count: int


def not_started(seen: Mapping[int, Seen], groups: Sequence[Group]) -> list[int]:
    """Ranks whose GPU has not begun what half its peers are in; at most two.

    A GPU runs one collective after the other: a rank's oldest is where it is, and what it was
    given after that waits for it. Only NCCL with timing says what has begun.
    """
    at: dict[int, tuple[int, str, int, bool]] = {}
    for group in groups:
        for rank, digest in group.digests.items():
            each = pending(seen[rank], digest)
            if each is not None and not each.p2p:
                oldest = (each.created_ns, group.name, each.seq, each.started)
                at[rank] = min(at.get(rank, oldest), oldest)
    begun: dict[tuple[str, int], dict[int, bool]] = {}
    for rank, (_, name, number, started) in sorted(at.items()):
        begun.setdefault((name, number), {})[rank] = started
    behind = [
        rank
        for ranks in begun.values()
        if sum(ranks.values()) * 2 >= len(ranks)
        for rank, started in ranks.items()
        if not started
    ]
    return sorted(behind) if len(behind) <= BEHIND_MAX else []


def late_rank(seen: Mapping[int, Seen], groups: Sequence[Group]) -> Late | None:
    """The rank that holds its largest group up."""
    for group in sorted(groups, key=lambda each: (-len(each.members), each.name)):
        if len(group.digests) < MEMBERS_MIN or set(group.digests) != set(group.members):
            continue
        found = _late_in(group, seen)
        if found is not None:
            return found
    return None


def _late_in(group: Group, seen: Mapping[int, Seen]) -> Late | None:
    arrived = {rank: dict(digest.arrivals) for rank, digest in group.digests.items()}
    common = sorted(set.intersection(*(set(each) for each in arrived.values())))[-JUDGED_MAX:]
    if len(common) < LATE_COUNT_MIN:
        return None
    error_ns = 2 * max(CLOCK_ERROR_NS, *(seen[rank].error_ns for rank in arrived))
    late: dict[int, list[int]] = {}
    for number in common:
        order = sorted((times[number], rank) for rank, times in arrived.items())
        (second_ns, _), (last_ns, last) = order[-2:]
        late.setdefault(last, []).append(last_ns - second_ns)
    firsts = [min(times[number] for times in arrived.values()) for number in common]
    step_ns = (firsts[-1] - firsts[0]) // (len(firsts) - 1)
    limit_ns = max(LATE_NS_MIN + error_ns, step_ns * LATE_SHARE_PPM // 1_000_000)
    for rank, lags in sorted(late.items()):
        large = sorted(lag for lag in lags if lag >= limit_ns)
        if len(large) >= LATE_COUNT_MIN:
            return Late(rank, large[len(large) // 2], len(large), len(common))
    return None
