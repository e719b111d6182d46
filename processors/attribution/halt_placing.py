"""Which incident it belongs to that a rank's process does not run, and that it runs again."""

from nemesis.processors.attribution.incidents import Incident
from nemesis.processors.attribution.open_incidents import QUIET_NS
from nemesis.processors.attribution.placing import tell
from nemesis.processors.attribution.state import State


def place_halts(state: State) -> list[Incident]:
    """Ranks that hold their job up; the incidents that they are told in."""
    now_ns = state.log_time_ns
    told: list[Incident | None] = []
    for job, nodes, finding in state.halts.judge(now_ns, state.inventory):
        incident = state.incidents.about(_key(job))
        incident = incident or state.incidents.of_job(job, nodes, now_ns, QUIET_NS)
        tell(state, incident, _key(job), nodes, finding)
        told.append(state.incidents.about(_key(job)))
    return [each for each in told if each is not None]


def take_back_halt(state: State, job: str) -> list[Incident]:
    """A rank of a job runs again; the incidents in which it was told that it does not."""
    incident = state.incidents.about(_key(job))
    if incident is None:
        return []
    del incident.told[_key(job)]
    return [*place_halts(state), incident]


def _key(job: str) -> str:
    return f"halt {job}"
