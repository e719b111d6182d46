"""Whether all ranks of a group called the same operation, and who did not.

Why: ranks that call different operations, or the same with other sizes, wait for ever, and no
hardware chooses what a program calls. How: among those stuck in one collective of one group, the
rank that differs from most is at fault; where there is no majority, groups of the same dimension
tell what is usual, else nobody is. Not here: whose turn
it is (wait_graph.py), who called its groups in another order (arrivals.py).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from nemesis.processors.attribution.findings import RANK_STUCK, Finding
from nemesis.processors.attribution.recorder_findings import acquitted, named, recorder_finding
from nemesis.processors.attribution.wait_graph import GATHERING, Group, Seen
from nemesis.schemas.inferred import RuledOut
from nemesis.schemas.observed import OperationSeen

# operations in which every member must bring the same sizes (NCCL user guide, Collective
# Operations); all_to_all, gather and scatter may differ
_EQUAL_SIZES: Final = GATHERING | {"broadcast", "reduce"}
Call = tuple[object, ...]


def differing_call(job: str, seen: Mapping[int, Seen], groups: Sequence[Group]) -> Finding | None:
    """The rank that called another operation than the rest of its group."""
    for group in groups:
        calls: dict[int, dict[int, Call]] = {}
        for rank, digest in group.digests.items():
            operation = digest.first_unfinished or digest.newest
            if operation is not None and not operation.p2p and operation.op:
                calls.setdefault(operation.seq, {})[rank] = _call(operation)
        for collective, by_rank in sorted(calls.items()):
            where = f"collective {collective} of group {group.desc or group.name}"
            if len(set(by_rank.values())) > 1:
                return _finding(job, seen, where, by_rank, _usual_calls(group, groups))
    return None


def _usual_calls(group: Group, groups: Sequence[Group]) -> set[Call]:
    """What members of other groups of the same dimension called last.

    Groups of one dimension run one program (Megatron-LM, core/parallel_state.py): where two ranks
    disagree, the one that calls what all others call is right.
    """
    latest = (
        digest.first_unfinished or digest.newest
        for each in groups
        if each.desc and each.desc == group.desc and each.name != group.name
        for digest in each.digests.values()
    )
    return {_call(each) for each in latest if each is not None and not each.p2p and each.op}


def _finding(
    job: str, seen: Mapping[int, Seen], where: str, by_rank: Mapping[int, Call], usual: set[Call]
) -> Finding:
    (common, count), (_, second) = Counter(by_rank.values()).most_common(2)
    shared = sorted({call for call in by_rank.values() if call in usual}, key=repr)
    tied = count == second or 2 * count <= len(by_rank)
    if tied and len(shared) == 1:
        common = shared[0]
    odd = sorted(rank for rank, call in by_rank.items() if call != common)
    if tied and (len(shared) != 1 or len(odd) * 2 > len(by_rank)):
        odd = []
    reason = (
        f"{named(odd)} of {job} called another operation than the rest in {where}"
        if odd
        else f"ranks of {job} called different operations in {where}"
    )
    says = {rank: f"its {where} is {_spelled(call)}" for rank, call in by_rank.items()}
    found = recorder_finding(
        job,
        seen,
        odd,
        "desync",
        reason=reason,
        says=says,
        level=RANK_STUCK,
        ruled_out=_acquitted(odd, seen, by_rank, common),
    )
    return replace(found, of_its_own=True)  # no hardware chooses what a program calls


def _acquitted(
    odd: Sequence[int], seen: Mapping[int, Seen], by_rank: Mapping[int, Call], common: Call
) -> list[RuledOut]:
    anyone = odd[0] if odd else min(by_rank)
    because = "no hardware chooses which operation a program calls"
    found = [acquitted("the GPUs and the network of these ranks", because, anyone, seen)]
    rest = sorted(rank for rank, call in by_rank.items() if call == common)
    if odd:
        because = "they called one and the same operation"
        found.append(acquitted(named(rest), because, rest[0], seen))
    return found


def _call(operation: OperationSeen) -> Call:
    sizes = (operation.input_sizes, operation.output_sizes)
    return (operation.op, operation.dtypes, sizes if operation.op in _EQUAL_SIZES else ())


def _spelled(call: Call) -> str:
    name, dtypes, sizes = call
    return f"{name} of {sizes} {dtypes}" if sizes else f"{name} {dtypes}"
