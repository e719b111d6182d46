"""What a host's own counters prove where no kernel log tells of it.

Why: a rank that is killed looks the same whoever killed it. How: an uncorrectable error of the
host's memory is the host's, whichever rank dies of it; a process that was killed for memory counts
only with the end of a rank on that node, which then is the one that was killed, or lost its worker.
The counter names no module and no process; a kernel log does, and outranks all of it.

Meaning of the readings: Linux Documentation/admin-guide/ras.rst (ue_count), /proc/vmstat oom_kill.
"""

from collections.abc import Sequence

from nemesis.processors.attribution import wanted
from nemesis.processors.attribution.findings import GPU_SHOWS, Finding, Proof
from nemesis.processors.attribution.host_signs import KILLED, UNCORRECTED
from nemesis.processors.attribution.incidents import Exit, Incident, Support
from nemesis.processors.attribution.own_ends import SIGKILL, is_loss
from nemesis.schemas import components


def judge_host_signs(incident: Incident) -> list[Finding]:
    """One finding a kind of reading."""
    failed = [each for each in incident.supports if each.name == UNCORRECTED]
    killed = [each for each in incident.supports if each.name == KILLED]
    found = [_failed(failed)] if failed else []
    ended = [
        each
        for each in incident.exits
        if is_loss(each) and any(components.node(each.node) == at.component for at in killed)
    ]
    return [*found, _killed(killed, ended)] if ended else found


def _failed(shown: Sequence[Support]) -> Finding:
    nodes = tuple(sorted({each.component for each in shown}))
    return Finding(
        verdict="attributed",
        fault_class="host.memory",
        reason=f"a memory module of {' and '.join(nodes)} had an uncorrectable error; which one is"
        " not counted",
        confidence_ppm=850_000,
        level=GPU_SHOWS,
        culprits=nodes,
        proofs=tuple(each.proof for each in shown),
        missing=(wanted.BOARD_LOG, wanted.KERNEL_LOG),
    )


def _killed(shown: Sequence[Support], ended: Sequence[Exit]) -> Finding:
    """The rank that was killed; else the node, which killed a process that a rank needed."""
    own = sorted({components.rank(e.job, e.rank) for e in ended if e.signal == SIGKILL})
    nodes = sorted({components.node(each.node) for each in ended})
    what = f"{' and '.join(own)} was killed" if own else "a rank there left with an error"
    return Finding(
        verdict="attributed",
        fault_class="host.oom",
        reason=f"{' and '.join(nodes)} ran out of memory and killed a process, and {what}",
        confidence_ppm=800_000,
        level=GPU_SHOWS,
        culprits=tuple(own or nodes),
        proofs=(*(each.proof for each in shown), *(_ended(each) for each in ended)),
        missing=(wanted.KERNEL_LOG, wanted.MEMORY_LEFT),
    )


def _ended(exited: Exit) -> Proof:
    how = "was killed" if exited.signal else f"left with exit code {exited.code}"
    return Proof(exited.proof.fact, exited.proof.seq, f"rank {exited.rank} {how}")
