"""Which incident belongs to what logs, settings and trials prove together.

Each rule's findings are told under a key of their own; what several rules prove of one job is one
incident, and joins the one that kernel logs or flight recorders opened for it.
"""

from collections.abc import Sequence
from typing import Final

from nemesis.processors.attribution.collective_time_findings import judge_collective_times
from nemesis.processors.attribution.container_findings import judge_containers
from nemesis.processors.attribution.findings import Finding
from nemesis.processors.attribution.gpu_reading_findings import judge_gpu_readings
from nemesis.processors.attribution.gpu_state_findings import judge_gpu_states
from nemesis.processors.attribution.gpu_topology_findings import judge_gpu_topology
from nemesis.processors.attribution.host_setting_findings import judge_host_settings
from nemesis.processors.attribution.incidents import Incident
from nemesis.processors.attribution.narrow_link_findings import judge_narrow_links
from nemesis.processors.attribution.network_setting_findings import judge_network_settings
from nemesis.processors.attribution.open_incidents import QUIET_NS
from nemesis.processors.attribution.pace_findings import judge_pace
from nemesis.processors.attribution.packet_size_findings import judge_packet_sizes
from nemesis.processors.attribution.pause_counter_findings import judge_pause_counters
from nemesis.processors.attribution.port_findings import judge_ports
from nemesis.processors.attribution.program_findings import judge_program
from nemesis.processors.attribution.refusal_findings import judge_refusals
from nemesis.processors.attribution.report_rules import Rule
from nemesis.processors.attribution.scheduler_findings import judge_scheduler
from nemesis.processors.attribution.stack_findings import judge_stacks
from nemesis.processors.attribution.state import State
from nemesis.processors.attribution.told_xid_findings import judge_told_xids
from nemesis.processors.attribution.trial_findings import judge_trials
from nemesis.processors.attribution.unexplained_findings import judge_unexplained
from nemesis.processors.attribution.watchdog_findings import judge_watchdogs
from nemesis.schemas import components

REPORT: Final = "report "
"""What the keys of these findings begin with."""
_RULES: Final[tuple[Rule, ...]] = (
    judge_gpu_states,
    judge_gpu_readings,
    judge_gpu_topology,
    judge_host_settings,
    judge_containers,
    judge_network_settings,
    judge_packet_sizes,
    judge_narrow_links,
    judge_pause_counters,
    judge_ports,
    judge_refusals,
    judge_scheduler,
    judge_told_xids,
    judge_program,
    judge_watchdogs,
    judge_stacks,
    judge_trials,
    judge_pace,
    judge_collective_times,
)


def place_reports(state: State) -> None:
    """Tell what the rules find in what is new."""
    for told in state.reports.ripe(state.log_time_ns):
        found = [finding for rule in _RULES for finding in rule(told)]
        found = found or judge_unexplained(told)
        nodes = sorted({node for each in found for node in _nodes(each)})
        incident = _incident(state, told.job, nodes)
        if incident is None and found:
            opened_by = f"{found[0].proofs[0].fact} {REPORT}"
            incident = state.incidents.open(opened_by, state.log_time_ns, late=False)
            incident.job = told.job
        if incident is not None and _tell(incident, told.job, found):
            incident.take_nodes(nodes, state.log_time_ns)
    state.reports.forget(state.log_time_ns)


def _tell(incident: Incident, job: str, found: Sequence[Finding]) -> bool:
    """Tell an incident what the rules find now, and nothing else of theirs; whether it is news."""
    own = {f"{REPORT}{job} {at}": each for at, each in enumerate(found)}
    gone = [key for key in incident.told if key.startswith(f"{REPORT}{job} ") and key not in own]
    for key in gone:
        del incident.told[key]
    news = [incident.tell(key, each) for key, each in own.items()]
    return any(news) or bool(gone)


def _nodes(finding: Finding) -> list[str]:
    return [node for name in finding.culprits if (node := components.node_of(name))]


def _incident(state: State, job: str, nodes: Sequence[str]) -> Incident | None:
    """The one that tells of the job already, or of one of these nodes."""
    told = (each for each in reversed(state.incidents.open_ones) if not each.recovered)
    for each in told:
        if any(key.startswith(f"{REPORT}{job} ") for key in each.told):
            return each
    return state.incidents.of_job(job, nodes, state.log_time_ns, QUIET_NS)
