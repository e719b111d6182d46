"""What a scheduler's own checks of a node tell: a GPU that is missing, or a node taken out.

Why: Slurm compares what a node reports with what it should have, and says so in one line. How: a
node that reports some of its GPUs has lost the rest, and which ones is not said; one that reports
none may be set up wrongly. A node that was drained or is down for another reason is cited, because
the reason is a person's or a script's.

SchedMD/slurm src/slurmctld/node_mgr.c.
"""

import re
from typing import Final

from nemesis.processors.attribution import wanted
from nemesis.processors.attribution.findings import OFF_BUS, UNEXPLAINED, Finding
from nemesis.processors.attribution.report_rules import proofs, shown
from nemesis.processors.attribution.reports import Set, Told

_FEWER_GPUS: Final = re.compile(r"gres/gpu count reported lower than configured \((\d+) < (\d+)\)")


def judge_scheduler(told: Told) -> list[Finding]:
    """What reasons of nodes prove."""
    reasons = [e for e in told.settings if e.name == "slurm.reason" and e.value.lower() != "none"]
    fewer = [(e, match) for e in reasons if (match := _FEWER_GPUS.search(e.value))]
    some = [each for each, match in fewer if int(match[1])]
    if some:
        return [_lost(told, some)]
    other = [e for e in reasons if "not responding" not in e.value.lower()]
    return [_taken_out(told, other)] if other else []


def _lost(told: Told, reasons: list[Set]) -> Finding:
    nodes = shown(sorted({each.component for each in reasons}))
    return Finding(
        verdict="class-only",
        fault_class="gpu.off_bus",
        reason=f"{nodes} reports fewer GPUs than it has; which one is gone is not said",
        confidence_ppm=650_000,
        level=OFF_BUS - 1,
        proofs=proofs(reasons, "the scheduler counts fewer GPUs than it was told of"),
        jobs=(told.job,),
        missing=(wanted.KERNEL_LOG, wanted.NODE_GPUS),
    )


def _taken_out(told: Told, reasons: list[Set]) -> Finding:
    nodes = shown(sorted({each.component for each in reasons}))
    return Finding(
        verdict="insufficient",
        fault_class="unknown",
        reason=f"{nodes} was taken out of service: {reasons[0].value[:120]}",
        confidence_ppm=0,
        level=UNEXPLAINED - 1,
        proofs=proofs(reasons, "the reason that was given to the scheduler"),
        jobs=(told.job,),
        missing=(wanted.KERNEL_LOG, wanted.NODE_GPUS),
    )
