"""Which rank comes late to its collectives, from how long each took on each rank.

Why: a collective ends for all at once, so whoever enters it last spends the least time in it; the
slow rank looks fastest. How: operation by operation the rank with the shortest time, where the
others took several times as long, kept them waiting; if it is the same one most of the time, it is
named. All slow together is nobody. Only operations of which every rank told are compared.

Times as NCCL's Inspector writes them (NVIDIA/nccl plugins/profiler/inspector).
"""

from collections import Counter
from statistics import median_low
from typing import Final

from nemesis.processors.attribution import wanted
from nemesis.processors.attribution.findings import STRAGGLER, Finding
from nemesis.processors.attribution.report_rules import proofs_of
from nemesis.processors.attribution.reports import Told, Tried

WAIT_FACTOR: Final = 3  # of the late rank's own time; arrivals of healthy ranks differ by less
OPERATIONS_MIN: Final = 5
SHARE_PPM: Final = 600_000  # five of eight, as step times
RANKS_MIN: Final = 3
_TRIAL: Final = "collective"
Key = tuple[str, str, str]


def judge_collective_times(told: Told) -> list[Finding]:
    """Who keeps the others waiting."""
    operations: dict[Key, dict[str, tuple[int, Tried]]] = {}
    for each in told.trials:
        took_ns = each.duration_ns
        if each.trial == _TRIAL and took_ns > 0 and each.components:
            own = dict(each.settings)
            key = (own.get("communicator", ""), own.get("operation", ""), own.get("sn", ""))
            operations.setdefault(key, {})[each.components[0]] = (took_ns, each)
    whole = [ranks for ranks in operations.values() if _is_whole(ranks)]
    late = [found for ranks in whole if (found := _late(ranks)) is not None]
    if not late:
        return []
    (name, count), *_ = Counter(late_name for late_name, _, _ in late).most_common(1)
    if count < OPERATIONS_MIN or count * 1_000_000 < len(whole) * SHARE_PPM:
        return []
    own_late = [each for each in late if each[0] == name]
    return [_finding(told, name, len(whole), [(tried, ns) for _, tried, ns in own_late])]


def _is_whole(ranks: dict[str, tuple[int, Tried]]) -> bool:
    (_, any_of_them), *_ = ranks.values()
    size = dict(any_of_them.settings).get("ranks", "0")
    return len(ranks) >= RANKS_MIN and size.isdecimal() and len(ranks) == int(size)


def _late(ranks: dict[str, tuple[int, Tried]]) -> tuple[str, Tried, int] | None:
    """(rank, its record, how long half of the others waited at least)."""
    name = min(ranks, key=lambda each: ranks[each][0])
    own_ns, tried = ranks[name]
    others_ns = median_low(took_ns for each, (took_ns, _) in ranks.items() if each != name)
    return (name, tried, others_ns - own_ns) if others_ns > own_ns * WAIT_FACTOR else None


def _finding(told: Told, name: str, of_count: int, late: list[tuple[Tried, int]]) -> Finding:
    rank = name.rpartition("/")[2]
    return Finding(
        verdict="attributed",
        fault_class="straggler.host",
        reason=f"rank {rank} of {told.job} came last to {len(late)} of {of_count} collectives, and"
        f" the others waited up to {max(ns for _, ns in late) / 1e6:.1f} ms for it; why is not"
        " said",
        confidence_ppm=700_000,
        level=STRAGGLER,
        culprits=(name,),
        proofs=proofs_of(
            (tried, f"the others waited {ns / 1e6:.1f} ms in this one") for tried, ns in late
        ),
        missing=(wanted.CLOCK_REASONS, wanted.HOST_PRESSURE, wanted.PROFILE),
        jobs=(told.job,),
    )
