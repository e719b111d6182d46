"""What the map of a host's GPUs shows: one that lost its NVLinks, or some of them.

Why: a GPU whose links did not train still works, over PCIe, at a tenth of the rate, and no counter
moves. How: on a host whose GPUs reach each other over NVLink, the one that reaches all the others
by fewer links than these reach each other is the odd one, and named if it has any; several such, or
GPUs of a host that has no NVLink, are how the machine was built.

`nvidia-smi topo -m`, its legend.
"""

import re
from collections import Counter
from typing import Final

from nemesis.processors.attribution import wanted
from nemesis.processors.attribution.findings import NVLINK_FATAL, Finding
from nemesis.processors.attribution.report_rules import proofs, shown
from nemesis.processors.attribution.reports import Set, Told

GPUS_MIN: Final = 4
_NVLINK: Final = re.compile(r"NV(\d{1,2})\Z")
_TO: Final = "topology.gpu."


def judge_gpu_topology(told: Told) -> list[Finding]:
    """Which GPU has fewer links than the others have among themselves."""
    by_node: dict[str, dict[str, list[Set]]] = {}
    for each in told.settings:
        if each.name.startswith(_TO):
            by_node.setdefault(each.node, {}).setdefault(each.component, []).append(each)
    return [found for gpus in by_node.values() if (found := _odd(told, gpus)) is not None]


def _odd(told: Told, gpus: dict[str, list[Set]]) -> Finding | None:
    if len(gpus) < GPUS_MIN:
        return None
    most = {gpu: max(_links(each) for each in cells) for gpu, cells in gpus.items()}
    usual = Counter(most.values()).most_common(1)[0][0]
    odd = sorted(gpu for gpu, links in most.items() if links < usual)
    if not usual or len(odd) != 1:
        return None
    some = most[odd[0]] > 0  # one without any may be there for a screen alone
    return Finding(
        verdict="attributed" if some else "class-only",
        fault_class="nvlink",
        reason=f"{shown(odd)} reaches the others over {most[odd[0]]} NVLinks, they reach each other"
        f" over {usual}",
        confidence_ppm=750_000 if some else 500_000,
        level=NVLINK_FATAL - 3,
        culprits=tuple(odd) if some else (),
        proofs=proofs(gpus[odd[0]], "how this GPU reaches another one"),
        jobs=(told.job,),
        missing=(wanted.NVLINK_ERRORS, wanted.FABRIC_MANAGER_LOG),
    )


def _links(setting: Set) -> int:
    match = _NVLINK.match(setting.value)
    return int(match[1]) if match else 0
