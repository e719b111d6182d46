"""Which incident belongs to what logs, settings and trials prove together.

Each rule's findings are told under a key of their own; what several rules prove of one job is one
incident, and joins the one that kernel logs or flight recorders opened for it.
"""

from collections.abc import Sequence, Set
from typing import Final

from nemesis.processors.attribution.board_findings import judge_board
from nemesis.processors.attribution.collective_time_findings import judge_collective_times
from nemesis.processors.attribution.container_findings import judge_containers
from nemesis.processors.attribution.findings import Finding
from nemesis.processors.attribution.gpu_reading_findings import judge_gpu_readings
from nemesis.processors.attribution.gpu_state_findings import judge_gpu_states
from nemesis.processors.attribution.gpu_topology_findings import judge_gpu_topology
from nemesis.processors.attribution.host_end_findings import judge_host_ends
from nemesis.processors.attribution.host_setting_findings import judge_host_settings
from nemesis.processors.attribution.incidents import Incident
from nemesis.processors.attribution.narrow_link_findings import judge_narrow_links
from nemesis.processors.attribution.network_setting_findings import judge_network_settings
from nemesis.processors.attribution.open_incidents import QUIET_NS, is_of_others
from nemesis.processors.attribution.pace_findings import judge_pace
from nemesis.processors.attribution.packet_size_findings import judge_packet_sizes
from nemesis.processors.attribution.pause_counter_findings import judge_pause_counters
from nemesis.processors.attribution.port_findings import judge_ports
from nemesis.processors.attribution.program_findings import judge_program
from nemesis.processors.attribution.refusal_findings import judge_refusals
from nemesis.processors.attribution.report_rules import Rule
from nemesis.processors.attribution.reports import Told
from nemesis.processors.attribution.scheduler_findings import judge_scheduler
from nemesis.processors.attribution.service_findings import judge_services
from nemesis.processors.attribution.stack_findings import judge_stacks
from nemesis.processors.attribution.state import State
from nemesis.processors.attribution.told_xid_findings import judge_told_xids
from nemesis.processors.attribution.trial_findings import judge_trials
from nemesis.processors.attribution.unexplained_findings import judge_unexplained
from nemesis.processors.attribution.watchdog_findings import judge_watchdogs
from nemesis.schemas import components

REPORT: Final = "report "
"""What the keys of these findings begin with."""
OWN_ERROR: Final = "own error "
"""The same, of what a program did wrong by itself."""
_RULES: Final[tuple[Rule, ...]] = (
    judge_gpu_states,
    judge_gpu_readings,
    judge_gpu_topology,
    judge_host_settings,
    judge_containers,
    judge_board,
    judge_network_settings,
    judge_packet_sizes,
    judge_narrow_links,
    judge_pause_counters,
    judge_ports,
    judge_refusals,
    judge_scheduler,
    judge_services,
    judge_told_xids,
    judge_program,
    judge_host_ends,
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
        own = [each for each in found if each.of_its_own]
        tellers = {node for each in own for node in _tellers(each, told)}
        _place(state, told.job, f"{OWN_ERROR}{told.job} ", own, tellers)
        others = [each for each in found if not each.of_its_own]
        nodes = {node for each in others for node in _nodes(each)}
        _place(state, told.job, f"{REPORT}{told.job} ", others, nodes)
    state.reports.forget(state.log_time_ns)


def _place(state: State, job: str, key: str, found: Sequence[Finding], nodes: Set[str]) -> None:
    """Give findings to the incident that tells of their like, or of the job or one of the nodes.

    What a program did wrong by itself on these nodes no fault elsewhere explains.
    """
    incident = _incident(state, key)
    if incident is None and found:
        incident = state.incidents.of_job(job, sorted(nodes), state.log_time_ns, QUIET_NS)
        if incident is not None and key.startswith(OWN_ERROR) and is_of_others(incident, nodes):
            incident = None
        if incident is None:
            opened_by = f"{found[0].proofs[0].fact} {REPORT}"
            incident = state.incidents.open(opened_by, state.log_time_ns, late=False)
            incident.job = job
    if incident is not None and _tell(incident, key, found):
        incident.take_nodes(sorted(nodes), state.log_time_ns)


def _tell(incident: Incident, key: str, found: Sequence[Finding]) -> bool:
    """Tell an incident what the rules find now, and nothing else of theirs; whether it is news."""
    own = {f"{key}{at}": each for at, each in enumerate(found)}
    gone = [each for each in incident.told if each.startswith(key) and each not in own]
    for each in gone:
        del incident.told[each]
    news = [incident.tell(name, each) for name, each in own.items()]
    return any(news) or bool(gone)


def _nodes(finding: Finding) -> list[str]:
    return [node for name in finding.culprits if (node := components.node_of(name))]


def _tellers(finding: Finding, told: Told) -> list[str]:
    """The nodes whose ranks said what it rests on."""
    facts = {each.fact for each in finding.proofs}
    return [each.node for each in told.said if each.proof.fact in facts]


def _incident(state: State, key: str) -> Incident | None:
    """The one that tells of it already."""
    mine = (each for each in reversed(state.incidents.open_ones) if not each.recovered)
    return next((e for e in mine if any(name.startswith(key) for name in e.told)), None)
