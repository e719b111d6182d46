"""Whether a verdict waits, because what comes within seconds may change what it says.

Why: the loudest rank of a job is seldom the one at fault, and a stall may only be a long step. How:
what only a standing job proves waits until it is known to stand; what was merely the first to cry
out waits until every node of its jobs was polled after it, and a link that is down has settled.
"""

from collections.abc import Sequence
from typing import Final

from nemesis.processors.attribution.findings import Finding
from nemesis.processors.attribution.incidents import Incident
from nemesis.processors.attribution.open_incidents import HOLD_NS, SECOND_NS
from nemesis.processors.attribution.state import State

HEARD_NS_MAX: Final = 20 * SECOND_NS  # silence is found in three periods of 5 s


def must_wait(state: State, root: Finding | None, incident: Incident, jobs: Sequence[str]) -> bool:
    """Whether to judge it again a second later in place of saying what it shows now."""
    if root is not None and root.waits_for_steps:
        return any(state.steps.may_get_on(job, state.log_time_ns) for job in jobs)
    provisional = root is not None and root.provisional
    return provisional and not _is_everybody_heard(state, incident, jobs)


def _is_everybody_heard(state: State, incident: Incident, jobs: Sequence[str]) -> bool:
    """Whether every node of these jobs whose NICs are polled was polled since the evidence.

    What the others' NICs show comes a poll later, and a link that is down has its time to come
    back.
    """
    now_ns = state.log_time_ns
    incident.asked_ns = incident.asked_ns or now_ns - HOLD_NS
    if now_ns - incident.asked_ns > HEARD_NS_MAX:
        return True
    polled = [
        node for job in jobs for node in state.inventory.nodes_of(job) if node in state.links.nics
    ]
    heard_ns = state.hearing.last_ns
    watched = [node for node in polled if node in heard_ns]
    return all(heard_ns[node] > incident.asked_ns for node in watched) and not (
        state.links.nodes_down().intersection(polled)
    )
