"""How a finding from flight recorders is put: who is blamed, who waits, what each rank shows.

Not here: what the recorders prove (collectives.py, calls.py).
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from nemesis.processors.attribution.findings import UNEXPLAINED, Finding, Proof
from nemesis.processors.attribution.wait_graph import Hub, Seen, Waits
from nemesis.schemas import components
from nemesis.schemas.codes import FaultClass, Verdict
from nemesis.schemas.inferred import RuledOut

PROOFS_MAX: Final = 12
VICTIMS_MAX: Final = 64
NAMED_MAX: Final = 8  # ranks named in a sentence


def recorder_finding(
    job: str,
    seen: Mapping[int, Seen],
    blamed: Sequence[int],
    fault_class: FaultClass,
    *,
    reason: str,
    says: Mapping[int, str],
    level: int,
    missing: tuple[str, ...] = (),
    ruled_out: Sequence[RuledOut] = (),
) -> Finding:
    """A finding about these ranks; `says` what the recorder of each one shows."""
    guilty = set(blamed)
    ordered = sorted((rank for rank in says if rank in seen), key=lambda r: (r not in guilty, r))
    victims = [rank for rank in ordered if rank not in guilty] if guilty else []
    without: Verdict = "insufficient" if level == UNEXPLAINED else "class-only"
    return Finding(
        verdict="attributed" if guilty else without,
        fault_class=fault_class,
        reason=reason,
        confidence_ppm=(850_000 if len(guilty) <= 2 else 700_000) if guilty else 400_000,
        level=level,
        culprits=tuple(components.rank(job, rank) for rank in sorted(guilty)),
        victims=tuple(components.rank(job, rank) for rank in victims[:VICTIMS_MAX]),
        proofs=tuple(
            Proof(seen[rank].fact, seen[rank].seq, f"rank {rank}: {says[rank]}")
            for rank in ordered[:PROOFS_MAX]
        ),
        missing=missing,
        ruled_out=tuple(ruled_out),
        jobs=(job,),
    )


def spared(finding: Finding | None, *, cut_off: bool) -> Finding | None:
    """What recorders prove; who wrote no dump, on a node with a link that is down, fell with it."""
    if not cut_off or finding is None or finding.fault_class != "unknown" or not finding.culprits:
        return finding
    return replace(
        finding,
        verdict="insufficient",
        reason=f"{finding.reason}, and the network of their nodes is down",
        confidence_ppm=0,
        level=UNEXPLAINED,
        culprits=(),
        victims=(*finding.culprits, *finding.victims)[:VICTIMS_MAX],
    )


def waits_in(waits: Waits, rank: int) -> str:
    """What a rank of the graph waits in or for."""
    for target in waits.graph.successors(rank):
        if isinstance(target, Hub):
            return f"waits in collective {target.collective} of group {target.group}"
        return f"waits for a transfer with rank {target}"
    return ""


def named(ranks: Collection[int]) -> str:
    """`rank 3`, or `ranks 3, 5`."""
    shown = ", ".join(str(rank) for rank in sorted(ranks)[:NAMED_MAX])
    more = f" and {len(ranks) - NAMED_MAX} more" if len(ranks) > NAMED_MAX else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}{more}"


def acquitted(says: str, because: str, rank: int, seen: Mapping[int, Seen]) -> RuledOut:
    """Another explanation that the recorder of one rank speaks against."""
    return RuledOut(says=says, because=because, fact=seen[rank].fact)
