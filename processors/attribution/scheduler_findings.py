"""What a scheduler tells: a GPU that is missing, a node taken out, how a job ended.

Why: Slurm compares what a node reports with what it should have, and says so in one line. How: a
node that reports some of its GPUs has lost the rest, and which ones is not said; one that reports
none may be set up wrongly. Of too little memory by a hair the configuration is to blame. Words of
health checks tell what kind of part it is about, and no more. A node that was drained or is down
for another reason is cited, because the reason is a person's or a script's. A job's state says what
ended it where that was the scheduler's doing (memory, time, a node that went away), else only that
it failed. Of a node's conditions pressure says what it is short of; others are cited.

SchedMD/slurm src/slurmctld/node_mgr.c, slurm.schedmd.com/job_state_codes.html;
kubernetes.io/docs/reference/node/node-status; kubernetes/node-problem-detector config.
"""

import re
from collections.abc import Mapping
from typing import Final

from nemesis.processors.attribution import wanted
from nemesis.processors.attribution.findings import (
    NODE_SILENT,
    OFF_BUS,
    OUT_OF_MEMORY,
    STORAGE_SILENT,
    UNEXPLAINED,
    Finding,
)
from nemesis.processors.attribution.report_rules import proofs, shown
from nemesis.processors.attribution.reports import Set, Told
from nemesis.schemas.codes import FaultClass

_FEWER_GPUS: Final = re.compile(r"gres/gpu count reported lower than configured \((\d+) < (\d+)\)")
_TOO_LITTLE: Final = re.compile(
    r"\blow (?:real_?memory|tmp_?(?:disk|fs)|cpu|socket|core)\w*"
    r"(?:.*\((\d{1,12}) ?< ?(\d{1,12})\))?",
    re.IGNORECASE,
)
_OUT: Final = re.compile(r"(?:DOWN|FAIL)(?!\*)")  # with `*` it does not answer either
HAIR_SHARE: Final = 20  # firmware and kernels keep that much to themselves; a lost module is more
_CHECKS: Final[Mapping[FaultClass, re.Pattern[str]]] = {
    "gpu.off_bus": re.compile(
        r"(?i)\bxid:? ?79\b|fallen off|gpu.{0,24}\b(?:lost|missing|not found)"
    ),
    "gpu.memory": re.compile(r"(?i)\becc\b|row.?remap|retired page|\bxid:? ?(?:48|63|64|94|95)\b"),
    "nvlink": re.compile(r"(?i)nv-?link|nv-?switch|\bxid:? ?74\b"),
    "network.link": re.compile(r"(?i)infiniband|\bib\b|\bhca\b|\bmlx\d|ib_?link"),
    "storage": re.compile(
        r"(?i)\bmount|lustre|\bnfs|gpfs|beegfs|file ?system|\bfs\b|disk|check_fs"
    ),
    "host.memory": re.compile(r"(?i)\bdimm|memory error|\bedac\b"),
    "host.config": re.compile(r"(?i)configuration differs"),
}
"""What health checks (NHC and sites' own) write as a reason, and what kind of part it is about."""
_ONE_NODE: Final = re.compile(r"on ([A-Za-z][\w.-]{0,62})(?::|\Z)")
_STATES: Final[dict[str, tuple[FaultClass, int, int, str]]] = {
    "OUT_OF_MEMORY": ("host.oom", 700_000, OUT_OF_MEMORY, "the memory that it was given is spent"),
    "TIMEOUT": ("app.timeout", 700_000, UNEXPLAINED + 1, "the time that it was given is over"),
    "DEADLINE": ("app.timeout", 700_000, UNEXPLAINED + 1, "its deadline has passed"),
}
"""State to (class, confidence, level, what it says)."""
_PRESSURE: Final[dict[str, tuple[FaultClass, int]]] = {
    "condition.memorypressure": ("host.oom", OUT_OF_MEMORY - 1),
    "condition.diskpressure": ("storage", STORAGE_SILENT - 1),
    "condition.readonlyfilesystem": ("storage", STORAGE_SILENT - 1),
}
_OF_SILENCE: Final = ("Unknown", "NodeStatusUnknown")


def judge_scheduler(told: Told) -> list[Finding]:
    """What reasons and states prove."""
    return [*_nodes(told), *_jobs(told), *_conditions(told)]


def _nodes(told: Told) -> list[Finding]:
    reasons = [e for e in told.settings if e.name == "slurm.reason" and e.value.lower() != "none"]
    fewer = [(e, match) for e in reasons if (match := _FEWER_GPUS.search(e.value))]
    some = [each for each, match in fewer if int(match[1])]
    if some:
        return [_lost(told, some)]
    other = [e for e in reasons if "not responding" not in e.value.lower()]
    kind = _kind_of(other[0].value) if other else None
    if kind is not None and all(_kind_of(each.value) == kind for each in other):
        return [_of_kind(told, other, kind)]
    out = other or [e for e in told.settings if e.name == "slurm.state" and _OUT.match(e.value)]
    return [_taken_out(told, out)] if out else []


def _kind_of(reason: str) -> FaultClass | None:
    if match := _TOO_LITTLE.search(reason):
        has, wants = int(match[1] or 0), int(match[2] or 0)
        return "host.memory" if has and wants - has > wants // HAIR_SHARE else "host.config"
    return next((kind for kind, words in _CHECKS.items() if words.search(reason)), None)


def _of_kind(told: Told, reasons: list[Set], fault_class: FaultClass) -> Finding:
    nodes = shown(sorted({each.component for each in reasons}))
    return Finding(
        verdict="class-only",
        fault_class=fault_class,
        reason=f"{nodes} was taken out of service: {reasons[0].value[:120]}",
        confidence_ppm=450_000,
        level=UNEXPLAINED + 1,
        proofs=proofs(reasons, "the reason that was given to the scheduler"),
        jobs=(told.job,),
        missing=(wanted.KERNEL_LOG, wanted.NODE_GPUS),
    )


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
        proofs=proofs(reasons, "what the scheduler was told of it"),
        jobs=(told.job,),
        missing=(wanted.KERNEL_LOG, wanted.NODE_GPUS),
    )


def _jobs(told: Told) -> list[Finding]:
    states = [each for each in told.settings if each.name == "slurm.job_state"]
    found = [
        Finding(
            verdict="class-only",
            fault_class=fault_class,
            reason=f"{shown(sorted({e.component for e in ended}))}: {says}",
            confidence_ppm=confidence_ppm,
            level=level,
            proofs=proofs(ended, "how the scheduler says that it ended"),
            jobs=(told.job,),
            missing=(wanted.MEMORY_LEFT,) if fault_class == "host.oom" else (),
        )
        for state, (fault_class, confidence_ppm, level, says) in _STATES.items()
        if (ended := [each for each in states if each.value.startswith(state)])
    ]
    lost = [each for each in states if each.value.startswith("NODE_FAIL")]
    nodes = sorted({match[1] for each in lost if (match := _ONE_NODE.search(each.value))})
    if lost:
        found.append(_node_lost(told, nodes, lost))
    return found


def _conditions(told: Told) -> list[Finding]:
    """Conditions of nodes: that a node is ready should be true, all others false."""
    told_of = [each for each in told.settings if each.name.startswith("condition.")]
    ready = [each for each in told_of if each.name == "condition.ready"]
    silent = [e for e in ready if e.value.startswith(_OF_SILENCE) or "NodeStatusUnknown" in e.value]
    found = []
    if silent:
        nodes = sorted({each.component.partition("/")[2] for each in silent})
        found.append(_node_lost(told, nodes, silent))
    on = [e for e in told_of if e.value.startswith("True") and e not in ready]
    short = [each for each in on if each.name in _PRESSURE]
    for each in short[:1]:
        fault_class, level = _PRESSURE[each.name]
        found.append(
            Finding(
                verdict="class-only",
                fault_class=fault_class,
                reason=f"{each.component}: {each.value[:120]}",
                confidence_ppm=600_000,
                level=level,
                proofs=proofs(short, "what the node says that it is short of"),
                jobs=(told.job,),
                missing=(wanted.MEMORY_LEFT, wanted.KERNEL_LOG),
            )
        )
    other = [e for e in (*on, *ready) if e not in short and e not in silent and _is_bad(e)]
    if other and not found:
        found.append(_taken_out(told, other))
    return found


def _is_bad(condition: Set) -> bool:
    is_ready = condition.name == "condition.ready"
    return condition.value.startswith("False" if is_ready else "True")


def _node_lost(told: Told, nodes: list[str], states: list[Set]) -> Finding:
    named = len(nodes) == 1
    return Finding(
        verdict="attributed" if named else "insufficient",
        fault_class="unknown",
        reason=f"the scheduler lost {shown([f'node/{each}' for each in nodes] or ['a node'])}",
        confidence_ppm=700_000 if named else 0,
        level=NODE_SILENT if named else UNEXPLAINED,
        culprits=(f"node/{nodes[0]}",) if named else (),
        proofs=proofs(states, "the scheduler does not hear this node any more"),
        jobs=(told.job,),
        missing=(wanted.CONSOLE, wanted.KERNEL_LOG),
    )
