"""Which GPU a driver's messages name, and when the program on it is at fault instead."""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from nemesis.processors.attribution.findings import Finding
from nemesis.processors.attribution.inventory import Inventory
from nemesis.processors.attribution.kernel_roots import (
    PARTS_MAX,
    Rooted,
    attributed,
    class_only,
    gpus_of,
)
from nemesis.schemas import components
from nemesis.schemas.inferred import RuledOut

UNKNOWN_JOB: Final = "job"


def _device(node: str, roots: Sequence[Rooted], what: str, confidence_ppm: int) -> Finding:
    """The GPUs that the roots name, or the node where they are too many to fail by chance."""
    gpus = gpus_of(node, roots)
    if len(gpus) > PARTS_MAX:
        reason = f"{len(gpus)} GPUs of {node} {what} together: what they share has failed"
        culprits: tuple[str, ...] = (components.node(node),)
    else:
        reason = f"{' and '.join(gpus)} {what}"
        culprits = gpus
    signatures = {each.role.signature for each in roots}
    order = (
        "row_remap_failed",
        "ecc_uncontained",
        "ecc_contained",
        "row_remap_pending",
        "transient",
        "",
    )
    return replace(
        attributed(roots, culprits, reason, confidence_ppm),
        signature=next(each for each in order if each in signatures),
    )


def off_bus(node: str, roots: Sequence[Rooted], _: Inventory) -> Finding:
    """The link to a GPU is gone."""
    return _device(node, roots, "fell off the bus", 980_000)


def memory(node: str, roots: Sequence[Rooted], _: Inventory) -> Finding:
    """Its memory is bad, and how far the damage went."""
    what = {
        "row_remap_failed": "could not replace a bad row of memory",
        "ecc_uncontained": "had an uncorrectable memory error",
        "ecc_contained": "had a memory error that was contained to one process",
        "row_remap_pending": "will replace a bad row of memory at its next reset",
        "transient": "corrects memory errors at a high rate, and none was uncorrectable",
    }
    finding = _device(node, roots, "have uncorrectable memory errors", 970_000)
    said = what.get(finding.signature, "")
    if said and len(gpus_of(node, roots)) <= PARTS_MAX:
        finding = replace(finding, reason=f"{' and '.join(finding.culprits)} {said}")
    return finding


def driver(node: str, roots: Sequence[Rooted], _: Inventory) -> Finding:
    """It does not answer its driver."""
    return _device(node, roots, "stopped answering its driver", 900_000)


def program(node: str, roots: Sequence[Rooted], inventory: Inventory) -> Finding:
    """Xid 13, 31 and their like: the GPU only reports what the program did."""
    gpus = gpus_of(node, roots)
    jobs = sorted({seat.job for gpu in gpus for seat in inventory.seats_of(gpu)})
    if inventory.jobs and not jobs:
        reason = f"a program of no known job faulted on {len(gpus)} GPU(s) of {node}"
        return class_only(roots, reason, 700_000)
    reason = f"the program faulted on {len(gpus)} GPU(s) of {node}, which only report it"
    confidence_ppm = 900_000 if len(gpus) > 1 else 750_000
    culprits = (f"program/{next(iter(jobs), UNKNOWN_JOB)}",)
    because = f"{len(gpus)} of them report the same fault within two minutes"
    acquitted = RuledOut(says=f"a GPU of {node}", because=because, fact=roots[0].clue.proof.fact)
    return replace(
        attributed(roots, culprits, reason, confidence_ppm),
        jobs=tuple(jobs),
        ruled_out=(acquitted,) if len(gpus) > 1 else (),
    )
