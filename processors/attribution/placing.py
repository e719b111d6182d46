"""Which incident each piece of evidence goes to, and when one is opened for it.

Everything here changes the state and says nothing; what an incident proves is judged afterwards.
"""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from nemesis.processors.attribution.differences import PROVEN_NS, Odd
from nemesis.processors.attribution.findings import PROGRAM_FAULT, STRAGGLER, Finding, Proof
from nemesis.processors.attribution.gpu_signs import gather
from nemesis.processors.attribution.holdback import Held
from nemesis.processors.attribution.incidents import SERVER_SILENT, SLOW, Clue, Exit, Incident
from nemesis.processors.attribution.kernel_messages import DISK_FAILED
from nemesis.processors.attribution.kernel_rules import FALLOUT_XIDS, role_of
from nemesis.processors.attribution.link_findings import judge_links
from nemesis.processors.attribution.open_incidents import QUIET_NS
from nemesis.processors.attribution.own_ends import has_own_cause, is_elsewhere
from nemesis.processors.attribution.pauses import KEY, judge_pauses
from nemesis.processors.attribution.recorder_findings import spared
from nemesis.processors.attribution.slow_findings import judge_slowness
from nemesis.processors.attribution.state import State
from nemesis.schemas import components
from nemesis.schemas.facts import Fact

SAMPLED_NS: Final = 5_000_000_000  # a poll shows what happened up to a period ago
# the line is printed when a request went unanswered for `timeo`, 60 s over TCP (nfs(5)): a client
# whose own network were the cause would not be polled in the seconds after it
REACHED_NS: Final = 3_000_000_000
OVER_NS: Final = 30_000_000_000  # a straggler that keeps up for so long has recovered


def place(state: State, held: Held) -> Incident | None:
    """Give evidence to its incident, opening one where there is none; None if it is no news."""
    now_ns = state.log_time_ns
    evidence = held.evidence
    if isinstance(evidence, Clue):
        incident = _incident_of_clue(state, evidence, late=held.late)
        news = incident is not None and incident.take_clue(evidence)
    elif state.inventory.is_gone(evidence.job, evidence.rank):
        return None  # it was removed, or its job ended, during the hold-back
    else:
        incident = _incident_of_exit(state, evidence, late=held.late)
        news = incident.take_exit(evidence)
    if incident is None:
        return None
    incident.changed_ns = now_ns
    if not news and (held.late or not incident.late):
        return None
    incident.late = incident.late and held.late
    incident.due_ns = incident.due_ns or now_ns
    return incident


def _incident_of_clue(state: State, clue: Clue, *, late: bool) -> Incident | None:
    """None for a message without weight whose incident closed during its hold-back."""
    now_ns = state.log_time_ns
    if clue.message.kind == "not_understood":
        return state.incidents.of_noise(clue, now_ns, late=late)
    incident = state.incidents.of_link(clue) or state.incidents.of_server(clue, now_ns)
    incident = incident or state.incidents.on_node(clue.node, now_ns, clue.message.device)
    incident = incident or state.incidents.of_program(clue, now_ns, state.inventory)
    incident = incident or _of_stopped_job(state, clue)
    role = role_of(clue.message)
    if incident is not None and role is not None and incident.is_about_another(clue, role):
        incident = None
    if (
        incident is not None
        and incident.recovered
        and not incident.explains(clue, role.level if role else 0, state.inventory)
    ):
        incident = None  # another fault of the same node, or the same one again
    if incident is None and role is not None:
        incident = state.incidents.open(clue.proof.fact, now_ns, late=late)
    if incident is None:
        return None
    for earlier in state.surroundings.take(clue.node):
        incident.take_clue(earlier)
    gather(state, incident, clue.node)
    return incident


def _of_stopped_job(state: State, clue: Clue) -> Incident | None:
    """The incident of a job that this node works for, where one explains the other.

    What a driver prints of processes that end in the middle of their work belongs to what stopped
    the job; what broke a device belongs to ranks elsewhere that gave up after the job had stopped.
    """
    jobs = _jobs_on(state, clue.node)
    if clue.message.kind == "xid" and clue.message.code in FALLOUT_XIDS:
        return state.incidents.of_jobs(jobs, state.log_time_ns, state.inventory)
    if clue.level <= PROGRAM_FAULT:
        return None
    incident = state.incidents.unexplained(jobs, state.log_time_ns, state.inventory)
    if incident is None or not has_followers_only(state, incident, clue.at_ns):
        return None
    return incident


def has_followers_only(state: State, incident: Incident, since_ns: int) -> bool:
    """Whether the ranks that ended in it did so after that, or after their job had stopped."""
    return all(
        each.at_ns + max(each.error_ns, SAMPLED_NS) >= since_ns
        or state.steps.stood_still_before(each.job, each.at_ns, each.error_ns)
        for each in incident.exits
    )


def _jobs_on(state: State, node: str) -> list[str]:
    return list(dict.fromkeys(seat.job for seat in state.inventory.seats_on(node)))


def _incident_of_exit(state: State, exited: Exit, *, late: bool) -> Incident:
    now_ns = state.log_time_ns
    incident = state.incidents.of_exit(exited, now_ns, state.inventory)
    if incident is not None and has_own_cause(state, exited):
        incident = None if is_elsewhere(incident, exited.node) else incident
    if incident is None:
        incident = state.incidents.open(exited.proof.fact, now_ns, late=late)
        incident.job = exited.job
        incident.nodes.append(exited.node)
    gather(state, incident, exited.node)
    return incident


def place_stuck(state: State, stall_ns: int) -> None:
    """What the flight recorders of jobs prove by now."""
    now_ns = state.log_time_ns
    for job, since_ns in state.recorders.waiting():
        state.steps.wait(job, since_ns)
    down = state.links.nodes_down()
    for job, found, nodes in state.recorders.judge(
        now_ns, stall_ns, state.inventory, state.steps, state.rank_stacks
    ):
        finding = spared(found, cut_off=not down.isdisjoint(nodes))
        incident = state.incidents.of_job(job, nodes, now_ns, QUIET_NS)
        if finding is not None and finding.of_its_own and incident is not None:
            incident = state.incidents.of_calls(job, incident)
        if incident is None:
            if finding is None:
                continue
            incident = state.incidents.open(finding.proofs[0].fact, now_ns, late=False)
        if incident.stuck != finding:
            incident.job, incident.stuck = job, finding
            incident.take_nodes(nodes, now_ns)


def place_faulted(state: State) -> None:
    """Ranks whose GPU's driver tells of their program, and whose recorder shows them behind.

    Either alone may mean somebody else's process, or a long save; together they are one rank.
    """
    now_ns = state.log_time_ns
    for incident in state.incidents.open_ones:
        if incident.recovered or incident.stuck is not None:
            continue
        for clue in incident.clues:
            if clue.message.kind != "xid" or clue.level != PROGRAM_FAULT:
                continue
            for seat in state.inventory.seats_of(f"gpu/{clue.node}/{clue.message.device}"):
                if state.steps.may_get_on(seat.job, now_ns):
                    continue
                finding = state.recorders.early(seat.job, now_ns)
                if finding is not None and finding.culprits == (
                    components.rank(seat.job, seat.rank),
                ):
                    incident.job, incident.stuck = seat.job, finding
                    incident.take_nodes([clue.node], now_ns)


def place_silence(state: State, tick: Fact) -> None:
    """Nodes that fell silent."""
    now_ns = state.log_time_ns

    def may_live(node: str) -> bool:
        lit = state.links.has_light(node, state.hearing.due_ns(node), state.inventory)
        return lit or state.incidents.explain_stall(_jobs_on(state, node), node)

    for silence in state.hearing.fallen_silent(tick, state.inventory, state.steps, may_live):
        seats = [seat for node in silence.nodes for seat in state.inventory.seats_on(node)]
        job = seats[0].job if seats else ""
        incident = state.incidents.of_nodes(silence.nodes, now_ns)
        if incident is not None and incident.is_outlived_by(silence):
            incident = None
        elif incident is None:
            incident = state.incidents.unexplained([job], now_ns, state.inventory)
            if incident is not None and not has_followers_only(
                state, incident, silence.since_ns + SAMPLED_NS
            ):
                incident = None
        if incident is None:
            opened_by = f"{tick.id} {' '.join(silence.nodes)}"
            incident = state.incidents.open(opened_by, now_ns, late=False)
        incident.job = incident.job or job
        lit = (
            state.links.has_light(node, state.hearing.due_ns(node), state.inventory)
            for node in silence.nodes
        )
        incident.silences.append(replace(silence, has_light=all(lit)))
        incident.take_nodes(silence.nodes, now_ns)


def unsay_silence(state: State, node: str) -> None:
    """A node that was cut off from the log, or whose polls were lost, was never silent."""
    for incident in state.incidents.open_ones:
        told = [each for each in incident.silences if node in each.nodes]
        if told:
            incident.silences = [each for each in incident.silences if each not in told]
            incident.due_ns = state.log_time_ns


def place_links(state: State) -> None:
    """What the two ends of links tell."""
    now_ns = state.log_time_ns
    for found in judge_links(state.links, state.inventory, now_ns, state.hearing.last_ns):
        jobs = [job for node in found.nodes for job in _jobs_on(state, node)]
        incident = state.incidents.about(found.key)
        incident = incident or state.incidents.of_nodes(found.nodes, now_ns)
        if incident is None:
            incident = state.incidents.unexplained(jobs, now_ns, state.inventory)
            if incident is not None and not has_followers_only(state, incident, found.since_ns):
                incident = None
        tell(state, incident, found.key, found.nodes, found.finding)


def place_trunks(state: State) -> None:
    """Switches that others lost."""
    now_ns = state.log_time_ns
    if not state.trunks.down:
        return
    for switch, finding in state.trunks.judge(now_ns, state.links.polled_ns):
        key = f"trunks {switch}"
        below = [
            node for node in state.inventory.nics if switch in state.inventory.uplinks_of(node)
        ]
        incident = state.incidents.about(key) or state.incidents.about(f"switch/{switch}")
        incident = incident or state.incidents.of_nodes(below, now_ns)
        tell(state, incident, key, below, finding)


def place_ways(state: State) -> None:
    """Which two NICs do not reach each other."""
    now_ns = state.log_time_ns
    known = {each.component for each in state.differences.odd.values()}
    known.update(nic for nic, link in state.links.by_nic.items() if link.down_ns)
    for job in state.inventory.jobs:
        said = state.reports.said_of(job)
        found = state.lost_ways.judge(job, said, state.inventory, now_ns, without=known)
        if found is None:
            continue
        nodes, finding = found
        key = f"way {job}"
        incident = state.incidents.about(key) or state.incidents.unexplained(
            (job,), now_ns, state.inventory
        )
        tell(state, incident, key, nodes, finding)


def place_pauses(state: State) -> None:
    """Who holds the others back by pause frames."""
    state.pauses.forget(state.log_time_ns)
    found = judge_pauses(state.pauses, state.inventory) if state.pauses.waits else None
    if found is not None:
        incident = state.incidents.about(KEY)
        tell(state, incident, KEY, found.nodes, found.finding)


def place_clients(state: State) -> None:
    """Which clients of a file server that does not answer are reached themselves."""
    down = state.links.nodes_down()
    for incident in state.incidents.open_ones:
        for clue in incident.clues:
            node = clue.node
            if clue.message.kind != SERVER_SILENT or node in incident.reached or node in down:
                continue
            if state.hearing.polled_ns.get(node, 0) > incident.opened_ns + REACHED_NS:
                incident.reached.append(node)
                incident.due_ns = incident.due_ns or state.log_time_ns


def place_acquitted(state: State) -> None:
    """Whose node was read since a rank ended on it: a GPU or memory that failed would show."""
    read_at_ns = state.counters.read_at_ns
    for incident in state.incidents.open_ones:
        if len(incident.exits) != 1 or incident.recovered:
            continue
        exited = incident.exits[0]
        read = read_at_ns.get(exited.node, 0) > exited.at_ns
        if read and exited.node not in incident.acquitted:
            incident.acquitted.append(exited.node)
            incident.due_ns = incident.due_ns or state.log_time_ns


def place_slow(state: State) -> None:
    """Which ranks keep their job waiting, and why."""
    now_ns = state.log_time_ns
    state.steps.close_round(now_ns, state.inventory, state.step_states.waiting_ns)
    found = judge_slowness(
        state.steps,
        state.slowness,
        state.inventory,
        now_ns,
        states=state.step_states,
        devices=state.device_states,
        disks=_failing_disks(state),
    )
    for job, node, finding in found:
        key = f"{SLOW}{job} {node}"
        incident = state.incidents.about(key)
        tell(state, incident, key, (node,), finding)
    for job, finding in state.step_times.judge():
        key = f"{SLOW}{job}"
        tell(state, state.incidents.about(key), key, (), finding)
    state.slowness.forget([job for job in state.steps.jobs if not state.steps.is_watched(job)])
    by_node = {f"{SLOW}{each.job} {each.node}" for each in found}
    _end_slow(state, by_node | {f"{SLOW}{job}" for job in state.step_times.going_on()})


def _failing_disks(state: State) -> dict[str, Proof]:
    """Nodes whose kernel says that a disk failed requests, and where it does."""
    return {
        clue.node: replace(clue.proof, says=clue.message.label)
        for incident in state.incidents.open_ones
        for clue in incident.clues
        if clue.message.label == DISK_FAILED and not incident.recovered
    }


def place_states(state: State) -> None:
    """Whose parameters or gradients are wrong."""
    for job, finding in state.step_states.judge(state.inventory):
        key = f"state {job}"
        tell(state, state.incidents.about(key), key, (), finding)


def place_differences(state: State) -> None:
    """What is set otherwise than everywhere else, where a job suffers."""
    now_ns = state.log_time_ns
    if not state.differences.odd:
        return

    def feels(job: str, odd: Odd) -> bool:
        failed = state.reports.tell_of_failure(job, odd.node, odd.name, odd.at_ns)
        lossy = state.resends.last(odd.component, now_ns)
        return failed or lossy or (odd.alone and state.steps.suffers(job, now_ns))

    def proves(job: str, odd: Odd) -> bool:
        return state.steps.has_got_on_since(job, odd.read_ns + PROVEN_NS)

    for key, node, finding in state.differences.judge(state.inventory, feels, proves):
        incident = state.incidents.about(key)
        if incident is None:
            incident = state.incidents.of_nodes((node,), now_ns)
        if incident is None:
            incident = state.incidents.unexplained(finding.jobs, now_ns, state.inventory)
        tell(state, incident, key, (node,), finding)


def _end_slow(state: State, slow: set[str]) -> None:
    """Who keeps up again is told of once."""
    now_ns = state.log_time_ns
    for incident in state.incidents.open_ones:
        for key, finding in incident.told.items():
            if not key.startswith(SLOW) or finding.signature or finding.level != STRAGGLER:
                continue
            if key in slow:
                incident.changed_ns = now_ns
            elif now_ns - incident.changed_ns > OVER_NS:
                reason = f"{finding.reason}; it keeps up again"
                incident.told[key] = replace(finding, signature="transient", reason=reason)
                incident.due_ns = incident.due_ns or now_ns


def tell(
    state: State, incident: Incident | None, key: str, nodes: Sequence[str], finding: Finding
) -> None:
    """Let an incident know what counters or steps prove, or open one for it."""
    now_ns = state.log_time_ns
    if incident is None:
        opened_by = finding.proofs[0].fact if finding.proofs else str(now_ns)
        # what comes back after a recovery may cite the same first fact
        incident = state.incidents.open(f"{opened_by} {key} {now_ns}", now_ns, late=False)
    incident.job = incident.job or next(
        (job for node in nodes for job in _jobs_on(state, node)), ""
    )
    known = incident.told.get(key)
    if (
        known is not None
        and known.signature == "transient"
        and finding.level == STRAGGLER
        and known.culprits == finding.culprits
    ):
        return  # a straggler that comes and goes is one incident and was told of
    if known is not None and known.level == STRAGGLER and finding.level < STRAGGLER:
        return  # its cause is over, and the latest rounds still show what it did
    if incident.tell(key, finding):
        incident.take_nodes(nodes, now_ns)
