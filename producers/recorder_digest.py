"""Digest of a flight recorder's entries: what one rank had enqueued, started and completed.

Pure, and the same for real recorders and simulated ones. Calls that are coalesced, a batch of sends
and receives above all, have no work of their own: their entries stay `scheduled` for ever, and the
entry that closes the batch tells how far it is (pytorch/pytorch, torch/csrc/distributed/c10d/
ProcessGroupNCCL.cpp, pointToPoint and endCoalescing).
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Final, NamedTuple

import msgspec

from nemesis.schemas.observed import Count, GroupDigest, OperationSeen

DIGEST_BYTES_MAX: Final = 2048
ARRIVALS_MAX: Final = 20
SHAPES_MAX: Final = 4  # shapes of one operation kept in a digest, and dimensions of each
DIMENSIONS_MAX: Final = 6
PEERS_MAX: Final = 8  # of one batch; a pipeline stage has two neighbours
NAME_CHARS_MAX: Final = 48
GLOO: Final = "gloo"
COALESCED: Final = "coalesced"  # ends the name of what closes a batch
_P2P: Final = re.compile(r"(?:send|recv) \d{1,7}(?:->|<-)(\d{1,7})\Z")

Number = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class Counters(msgspec.Struct, frozen=True):
    """How far one process group is; of sends and receives their own numbers."""

    last_enqueued_collective: Number = -1
    last_started_collective: Number = -1
    last_completed_collective: Number = -1


class Membership(NamedTuple):
    """Who belongs to one process group."""

    desc: str = ""
    ranks: str = ""
    """In rank_ranges form."""
    order: Sequence[int] = ()
    """As the group counts them: sends and receives name places in it."""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One entry of a recorder, of its fields those that are read."""

    pg_id: Number
    process_group: tuple[str, str]
    collective_seq_id: Count
    profiling_name: str
    record_id: Count = 0
    p2p_seq_id: Count = 0
    op_id: Count = 0
    input_sizes: list[list[Number]] = []
    output_sizes: list[list[Number]] = []
    input_dtypes: list[str] = []
    time_created_ns: Count = 0
    time_discovered_started_ns: Count | None = None
    time_discovered_completed_ns: Count | None = None
    state: str = ""
    retired: bool = False
    is_p2p: bool = False

    @property
    def seq(self) -> int:
        """Its number within its group."""
        return self.p2p_seq_id if self.is_p2p else self.collective_seq_id

    @property
    def batch(self) -> tuple[str, int, int]:
        """What it shares with the calls that are coalesced with it, and with no others."""
        return self.process_group[0], self.collective_seq_id, self.p2p_seq_id

    @property
    def closes(self) -> bool:
        """Whether it ends a batch instead of being a call."""
        if self.input_sizes or self.output_sizes:
            return False
        return self.profiling_name.endswith(COALESCED)

    @property
    def started(self) -> bool:
        """Whether it was seen to have begun."""
        return self.state == "started" or bool(self.time_discovered_started_ns)

    @property
    def finished(self) -> bool:
        """Whether it was seen to have ended."""
        # gloo never leaves "scheduled"; it only retires. On NCCL retired and not completed
        # means timed out.
        if self.profiling_name.startswith(f"{GLOO}:"):
            return self.retired
        return self.state == "completed"


class _Call(NamedTuple):
    """An entry, and the work that tells how far it is."""

    entry: Entry
    work: Entry | None
    """None: of a batch that is over, its closing entry was left out."""

    @property
    def finished(self) -> bool:
        return self.work is None or self.work.finished

    @property
    def is_p2p(self) -> bool:
        return self.entry.is_p2p


def digests(
    described: Mapping[str, Membership], counters: Mapping[str, Counters], entries: Sequence[Entry]
) -> tuple[GroupDigest, ...]:
    """The groups of one recorder by name, in at most DIGEST_BYTES_MAX.

    Where no counters are known of a group, its entries are counted.
    """
    calls = _calls(entries)
    by_name: dict[str, list[_Call]] = {}
    for call in calls:
        by_name.setdefault(call.entry.process_group[0], []).append(call)
    newest = next((each for each in reversed(calls) if not each.is_p2p), None)
    groups: list[GroupDigest] = []
    for name in sorted(described.keys() | by_name.keys() | counters.keys()):
        seen = by_name.get(name, [])
        if not name and not seen:
            continue  # torch writes one nameless group where groups have no options
        counted = counters.get(name) or _counted(seen)
        group = described.get(name, Membership())
        desc = group.desc or (seen[-1].entry.process_group[1] if seen else "")
        groups.append(
            GroupDigest(
                name=name[:NAME_CHARS_MAX],
                desc=desc[:NAME_CHARS_MAX],
                ranks=group.ranks,
                last_enqueued=counted.last_enqueued_collective,
                last_started=counted.last_started_collective,
                last_completed=counted.last_completed_collective,
                first_unfinished=_first_unfinished(seen, group.order),
                arrivals=_arrivals(seen),
                newest=_newest(seen, newest),
            )
        )
    return _fitted(groups)


def _calls(entries: Sequence[Entry]) -> list[_Call]:
    """What was called, oldest first; what closes a batch is none where its calls are there."""
    ordered = sorted(entries, key=lambda each: each.record_id)
    closing = {each.batch: each for each in ordered if each.closes}
    over = _batches_over(ordered, closing)
    if not closing and not over:
        return [_Call(each, each) for each in ordered]
    batches = [each.batch for each in ordered]
    called = {batch for batch, each in zip(batches, ordered, strict=True) if not each.closes}
    return [
        _Call(each, None if batch in over else closing.get(batch, each))
        for batch, each in zip(batches, ordered, strict=True)
        if not (each.closes and batch in called)
    ]


def _batches_over(
    ordered: Sequence[Entry], closing: Mapping[tuple[str, int, int], Entry]
) -> set[tuple[str, int, int]]:
    """Batches whose closing entry was left out because they are over.

    Recorders that write only what is active (TORCH_INCLUDE_ONLY_ACTIVE) leave out what has
    completed, and calls of a batch never do. Batches show in more calls than numbers.
    """
    if any(each.state == "completed" for each in ordered):
        return set()
    counts = Counter(each.batch for each in ordered)
    batching = {
        each.process_group[0]
        for each in ordered
        if each.closes or each.op_id > each.collective_seq_id + each.p2p_seq_id
    }
    return {
        each.batch
        for each in ordered
        if each.batch not in closing
        and (counts[each.batch] > 1 or (each.is_p2p and each.process_group[0] in batching))
    }


def _counted(seen: list[_Call]) -> Counters:
    """Counters as far as the entries tell them, for dumps older than `pg_status`."""
    collectives = [call for call in seen if not call.is_p2p]
    finished = [call.entry.seq for call in collectives if call.finished]
    return Counters(
        last_enqueued_collective=max((call.entry.seq for call in collectives), default=-1),
        last_completed_collective=max(finished, default=-1),
    )


def _first_unfinished(seen: list[_Call], order: Sequence[int]) -> OperationSeen | None:
    unfinished = [call for call in seen if not call.finished]
    if not unfinished:
        return None
    # counters of sends and receives differ between stages when all is well: prefer a collective
    first = min(unfinished, key=lambda call: call.is_p2p)
    if not first.is_p2p:
        return _seen(first)
    batch = [call.entry for call in unfinished if call.entry.batch == first.entry.batch]
    return _seen(first, _peers(batch, order))


def _peers(batch: list[Entry], order: Sequence[int]) -> tuple[int, ...]:
    """The ranks that a batch sends to or receives from, in the order of the calls."""
    matches = (_P2P.match(each.profiling_name.partition(":")[2]) for each in batch)
    places = dict.fromkeys(int(match[1]) for match in matches if match is not None)
    return tuple(order[place] for place in places if place < len(order))[:PEERS_MAX]


def _newest(seen: list[_Call], newest: _Call | None) -> OperationSeen | None:
    """The rank's last call, where it belongs to this group and nothing else there is unfinished."""
    is_own = any(call is newest for call in seen)
    if newest is None or not is_own or any(not call.finished for call in seen):
        return None
    return _seen(newest)


def _seen(call: _Call, peers: tuple[int, ...] = ()) -> OperationSeen:
    entry = call.entry
    return OperationSeen(
        seq=entry.seq,
        op=entry.profiling_name.partition(":")[2][:NAME_CHARS_MAX] or entry.profiling_name,
        input_sizes=_shapes(entry.input_sizes),
        output_sizes=_shapes(entry.output_sizes),
        dtypes=tuple(dtype[:NAME_CHARS_MAX] for dtype in entry.input_dtypes[:SHAPES_MAX]),
        started=call.work is not None and call.work.started,
        p2p=entry.is_p2p,
        created_ns=entry.time_created_ns,
        peers=peers,
    )


def _shapes(sizes: list[list[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(shape[:DIMENSIONS_MAX]) for shape in sizes[:SHAPES_MAX])


def _arrivals(seen: list[_Call]) -> tuple[tuple[int, int], ...]:
    arrived: dict[int, int] = {}
    for call in seen:
        if not call.is_p2p:  # of coalesced collectives, which share a number, the first
            arrived.setdefault(call.entry.collective_seq_id, call.entry.time_created_ns)
    return tuple(arrived.items())[-ARRIVALS_MAX:]


def _fitted(groups: list[GroupDigest]) -> tuple[GroupDigest, ...]:
    """The groups in at most DIGEST_BYTES_MAX: fewer arrivals, then no descriptions, then only
    groups with something unfinished, as many as fit."""
    replace = msgspec.structs.replace
    for count in (ARRIVALS_MAX, 10, 5, 3, 2, 1):
        fewer = [replace(group, arrivals=group.arrivals[-count:]) for group in groups]
        if _size_bytes(fewer) <= DIGEST_BYTES_MAX:
            return tuple(fewer)
    bare = [replace(group, arrivals=(), desc="", newest=None) for group in groups]
    bare.sort(key=lambda group: group.first_unfinished is None)
    while _size_bytes(bare) > DIGEST_BYTES_MAX:
        bare.pop()
    return tuple(sorted(bare, key=lambda group: group.name))


def _size_bytes(groups: list[GroupDigest]) -> int:
    return len(msgspec.msgpack.encode(groups)) + 200  # the fields around the groups
