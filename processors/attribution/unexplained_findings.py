"""What was told or counted and no rule explains: an all-clear beside it would be false.

Why: nobody's list of messages is complete. How: where rules find nothing, whatever tells of failure
by its own form (severity.py) is cited: lines, counters that rose and ought not to, states that
nothing should be in, tests that did not pass. It is said that this does not tell what failed.
Errors that a program prints and then ends as it should are its own affair; what ended a process is
not, whatever came after.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from nemesis.processors.attribution import wanted
from nemesis.processors.attribution.findings import UNEXPLAINED, Finding
from nemesis.processors.attribution.report_rules import HasProof, proofs_of, shown
from nemesis.processors.attribution.reports import Said, Set, Told
from nemesis.processors.attribution.severity import is_of_failure

_KINDS: Final = (
    "trouble",
    "severe",
    "follower",
    "store_wait",
    "peer_closed",
    "group_state",
    "device_error",
    "first_failure",
    "exception",
    "gpu_lost",
    "no_interface",
    "connect_failed",
    "queue_failed",
    "p2p_disabled",
    "time_over",
    "died",
)
TELLERS_MIN: Final = 2
_LINK_STATE: Final = re.compile(r"nvlink\.\d+\.state\Z")
# states and results of tools: DCGM, systemd, Slurm, devlink, NVML; a port may be down unused
_BAD_STATES: Final = (
    "fail",
    "error",
    "warning",
    "unhealthy",
    "degraded",
    "crash",
    "not responding",
)


def judge_unexplained(told: Told) -> list[Finding]:
    """That something failed, where nothing says what."""
    said = _unsettled(told)
    seen: list[tuple[HasProof, str]] = [
        (each, "it tells that something failed, or follows from it") for each in said
    ]
    seen += [
        (each, f"it rose by {each.last - each.first} between two readings")
        for each in told.counters
        if each.last > each.first and is_of_failure(each.name)
    ]
    seen += [
        (each, f"its state: {each.value[:80]}")
        for each in told.settings
        if each.value.lower().startswith(_BAD_STATES)
    ]
    seen += [(each, "this link is down, as all others are") for each in _links_down(told)]
    seen += [
        (each, "this test did not pass")
        for each in told.trials
        if each.outcome in ("failed", "hung")
    ]
    if not seen:
        return []
    return [
        Finding(
            verdict="insufficient",
            fault_class="unknown",
            reason=_reason(told, said),
            confidence_ppm=0,
            level=UNEXPLAINED - 1,
            proofs=proofs_of(seen),
            jobs=(told.job,),
            missing=(wanted.RANKS_OUTPUT, wanted.KERNEL_LOGS, wanted.ALL_DUMPS),
        )
    ]


def _links_down(told: Told) -> list[Set]:
    """NVLinks of which none is up: without a bridge between its GPUs that is how it should be."""
    links = [each for each in told.settings if _LINK_STATE.match(each.name)]
    none_up = bool(links) and all(each.value == "inactive" for each in links)
    return links if none_up and len({each.component for each in links}) > 1 else []


def _unsettled(told: Told) -> list[Said]:
    """Lines that tell of failure, without those that a good end made good."""
    ends_ns = [each.at_ns for each in told.of("finished")]
    return [
        each
        for each in told.of(*_KINDS)
        if each.message.kind != "severe" or each.at_ns > max(ends_ns, default=-1)
    ]


def _reason(told: Told, said: Sequence[Said]) -> str:
    gone = Counter(each.message.device for each in told.of("peer_closed"))
    lost = sorted(host for host, count in gone.items() if count >= TELLERS_MIN)
    if lost:
        return f"processes on {shown(lost)} were gone before the others; why is not said"
    if said:
        return f"something ended or troubled {told.job}, and these lines do not say what"
    return f"something around {told.job} is not as it should be, and no rule says what it means"
