"""Whether the process that a driver speaks of (Xid 13, 31, 43, 45) is one of a job's ranks.

Why: somebody tries something on a node, it faults, and a healthy job would be restarted for it; and
what a rank's driver prints when it is ended from outside is no cause. How: a process is a rank if
that rank ended or its program said so itself; and if GPUs of several nodes tell the same, unless
the job gets on. Else it is known once the job is: one that gets on lost nobody, and the process was
somebody else's.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from nemesis.processors.attribution import wanted
from nemesis.processors.attribution.exits import SIGABRT
from nemesis.processors.attribution.findings import PROGRAM_FAULT, UNEXPLAINED, Finding
from nemesis.processors.attribution.incidents import Clue, Incident
from nemesis.processors.attribution.inventory import Inventory
from nemesis.processors.attribution.kernel_messages import KernelMessage
from nemesis.processors.attribution.kernel_rules import FALLOUT_XIDS
from nemesis.processors.attribution.steps import Steps


def concerns_nobody(message: KernelMessage, level: int, node: str, inventory: Inventory) -> bool:
    """Whether a message is about a program or a link of a node on which no job runs.

    Only where it is known what runs; a device that fails concerns its owner all the same.
    """
    of_program = message.kind == "xid" and 0 < level <= PROGRAM_FAULT and not _is_memory(message)
    return (
        (of_program or message.kind in ("link_down", "link_up"))
        and bool(inventory.jobs)
        and not inventory.seats_on(node)
    )


def speaks_of_process(clue: Clue) -> bool:
    """Whether a driver tells of a process and what it tells proves anything."""
    of_process = UNEXPLAINED <= clue.level <= PROGRAM_FAULT and not _is_memory(clue.message)
    return clue.message.kind == "xid" and of_process


def _is_memory(message: KernelMessage) -> bool:
    return message.code in (63, 92)  # rows and corrected errors are the GPU's, whoever runs there


def weighed_program(
    finding: Finding,
    clues: Sequence[Clue],
    incident: Incident,
    inventory: Inventory,
    steps: Steps,
) -> Finding | None:
    """What the kernel of one node says of a program, in the light of its job; None: nothing."""
    told = [each for each in clues if speaks_of_process(each)]
    if finding.level not in (PROGRAM_FAULT, UNEXPLAINED) or not told:
        return finding
    if any(each.level == finding.level and each.message.kind != "xid" for each in clues):
        return finding
    jobs = {seat.job for seat in inventory.seats_on(clues[0].node)}
    if inventory.jobs and not jobs and not incident.exits:
        return None  # its job has ended since: it concerns nobody, as where none ran
    first_ns, last_ns = min(each.at_ns for each in told), max(each.at_ns for each in told)
    # what is printed of every process that ends says nothing about who began it
    causes = [each for each in told if each.message.code not in FALLOUT_XIDS]
    if not _is_of_job(causes or told, incident):
        if any(steps.has_got_on_since(job, last_ns) for job in jobs):
            return None
        if any(job in steps.jobs for job in jobs):
            if not _is_told_elsewhere(causes or told, incident):
                return _undecided(finding, clues[0].node, sorted(jobs))
            finding = replace(finding, waits_for_steps=True)
    if finding.level == UNEXPLAINED or not all(
        each.message.code in FALLOUT_XIDS for each in told if each.level >= PROGRAM_FAULT
    ):
        return finding
    aborted = {each.pid for each in incident.exits if each.signal == SIGABRT}
    ranks = {each.pid for each in incident.exits}
    # somebody else's processes that end on the node as well change nothing about the ranks
    own = {each.message.pid for each in told} & ranks or {each.message.pid for each in told}
    ended = aborted.issuperset(own)
    if not ended and not any(steps.stood_still_before(job, first_ns, 0) for job in jobs):
        return replace(finding, provisional=True)
    return replace(
        finding,
        verdict="insufficient",
        fault_class="unknown",
        reason=f"processes on {clues[0].node} ended in the middle of their work, and what made them"
        " end is not said",
        confidence_ppm=0,
        level=UNEXPLAINED,
        culprits=(),
        provisional=True,
        missing=(wanted.KERNEL_LOGS, wanted.LINK_COUNTERS),
    )


def _is_of_job(told: Sequence[Clue], incident: Incident) -> bool:
    """Whether a rank of that process ended, or its program said so."""
    node, pids = told[0].node, {each.message.pid for each in told}
    if any(each.pid in pids or (each.node == node and pids == {-1}) for each in incident.exits):
        return True
    return any(each.fault_class == "app.program" for each in incident.told.values())


def _is_told_elsewhere(told: Sequence[Clue], incident: Incident) -> bool:
    """Whether others of other nodes tell the same: ranks, unless somebody's test runs on both."""
    return any(
        each.node != told[0].node and each.message.code == other.message.code
        for each in incident.clues
        for other in told
    )


def _undecided(finding: Finding, node: str, jobs: Sequence[str]) -> Finding:
    """No rank of that process ended, and its job has not got on since: it may stand for that or
    for something else."""
    return replace(
        finding,
        verdict="insufficient",
        fault_class="unknown",
        reason=f"a program faulted on {node}; that it is a rank of {jobs[0]} is not shown",
        confidence_ppm=0,
        level=UNEXPLAINED,
        culprits=(),
        waits_for_steps=True,
        jobs=tuple(jobs),
        missing=(wanted.RANK_ENDED, wanted.KERNEL_LOGS),
    )
