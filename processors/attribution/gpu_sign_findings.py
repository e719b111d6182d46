"""What readings of GPUs prove where no kernel log tells of it.

Why: a node's kernel log may not be read, and a GPU that fell off the bus or lost memory shows in
its counters all the same. How: a GPU of which nothing can be read while its neighbours answer is
lost to its driver; a row that could not be replaced is NVML's own word for a GPU to be replaced;
one that waits for a reset harms nobody yet; NVLinks that lose packets or are trained anew count
from the second time on;
errors that were not corrected count only with the end of the very rank that ran on it. What a
kernel log says of the same node outranks all of it.

Meaning of the readings: docs.nvidia.com/deploy/nvml-api, docs.nvidia.com/deploy/a100-gpu-mem-error-
mgmt (row remapping failure: the GPU is to be replaced).
"""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from nemesis.processors.attribution import wanted
from nemesis.processors.attribution.counters import UNREADABLE
from nemesis.processors.attribution.findings import GPU_SHOWS, REMAP_PENDING, Finding
from nemesis.processors.attribution.incidents import Incident, Support
from nemesis.processors.attribution.inventory import Inventory
from nemesis.processors.attribution.nvlink_signs import TRAINED, TRAINED_OFTEN
from nemesis.processors.attribution.own_ends import UNCORRECTED
from nemesis.schemas.codes import FaultClass, Signature

PARTS_MAX: Final = 2  # more of one node at once: what they share is at fault
_NVLINK: Final = (TRAINED, TRAINED_OFTEN, "nvlink_replay_count")


def judge_gpu_signs(incident: Incident, inventory: Inventory) -> list[Finding]:
    """One finding a kind of reading."""
    if not incident.supports:
        return []
    ended = {inventory.gpu_of_rank(each.job, each.rank) for each in incident.exits}
    felt = [
        each for each in incident.supports if each.name in UNCORRECTED and each.component in ended
    ]
    failed = [each for each in incident.supports if each.name == "remap_failed"]
    found: list[Finding] = []
    pending = [each for each in incident.supports if each.name == "remap_pending"]
    found += _nvlinks(incident.supports)
    mute = [each for each in incident.supports if each.name == UNREADABLE]
    if failed:
        how = "could not replace a bad row of memory"
        found.append(_finding(failed, "gpu.memory", how, "row_remap_failed"))
    elif felt:
        how = "counted an uncorrectable memory error, and its rank ended with it"
        found.append(_finding(felt, "gpu.memory", how))
    elif pending:
        how = "will replace a bad row of memory at its next reset"
        waits = _finding(pending, "gpu.memory", how, "row_remap_pending")
        found.append(replace(waits, level=REMAP_PENDING))
    if mute and len({each.component for each in mute}) <= PARTS_MAX:
        found.append(_finding(mute, "gpu.off_bus", "cannot be read any more, its neighbours can"))
    return found


def _nvlinks(supports: Sequence[Support]) -> list[Finding]:
    """Links of one GPU that were in trouble several times; of a switch, many GPUs would tell."""
    shown = [each for each in supports if each.name in _NVLINK]
    named = [(each.component, each.name) for each in shown]
    # DCGM's health watch fails a GPU at the first recovery or replay error (DcgmHealthWatch.cpp);
    # here one alone is nothing, both of one GPU, or one again, are
    gpus = {gpu for gpu, name in named if name == TRAINED_OFTEN or len(_of(gpu, named)) > 1}
    if not gpus or len({each.component for each in shown}) > PARTS_MAX:
        return []
    own = [each for each in shown if each.component in gpus]
    return [_finding(own, "nvlink", "loses its NVLinks, or packets on them, again and again")]


def _of(gpu: str, named: Sequence[tuple[str, str]]) -> list[str]:
    return [name for each, name in named if each == gpu]


def _finding(
    shown: Sequence[Support], fault_class: FaultClass, how: str, signature: Signature = ""
) -> Finding:
    gpus = tuple(sorted({each.component for each in shown}))
    return Finding(
        verdict="attributed",
        fault_class=fault_class,
        reason=f"{' and '.join(gpus[:PARTS_MAX])} {how}",
        confidence_ppm=850_000,
        level=GPU_SHOWS,
        culprits=gpus[:PARTS_MAX],
        signature=signature,
        proofs=tuple(each.proof for each in shown),
        missing=(wanted.KERNEL_LOG, wanted.NODE_GPUS),
        provisional=fault_class == "gpu.off_bus",  # one poll may fail
    )
