"""Which open incident a piece of evidence belongs to.

Why: two pieces of evidence of one fault must not become two recoveries, two faults not one. How:
evidence on a node belongs to what is open on that node; what one program or one job shows on many
nodes belongs together; a process that was killed is a fault of its own unless it died with others.
"""

from collections.abc import Callable, Collection, Sequence, Set
from hashlib import sha256
from typing import Final

import msgspec

from nemesis.processors.attribution.exits import SIGABRT, is_own_death
from nemesis.processors.attribution.findings import (
    PROGRAM_FAULT,
    RANK_EXITED,
    UNEXPLAINED,
    Finding,
)
from nemesis.processors.attribution.incidents import Clue, Exit, Incident, is_same_link
from nemesis.processors.attribution.inventory import Inventory
from nemesis.processors.attribution.kernel_rules import role_of

SECOND_NS: Final = 1_000_000_000
# A dying GPU prints for a second or two: 48 to 154 within one (NVIDIA/gpu-operator#1146)
HOLD_NS: Final = 2 * SECOND_NS
QUIET_NS: Final = 600 * SECOND_NS  # an incident without news for so long is over
# Recorded: 12 s from a GPU's Xid 79 to the switches' SXid, 51 s between one program's Xid 31s
JOIN_NS: Final = 120 * SECOND_NS
ELSEWHERE: Final = frozenset({"network", "nic", "storage", "straggler", "dataloader"})
"""What classes of faults begin with that no program's error follows from."""


class Incidents(msgspec.Struct):
    """The open incidents, in the order in which they opened."""

    open_ones: list[Incident] = []

    def open(self, opened_by: str, now_ns: int, *, late: bool) -> Incident:
        """A new incident, named after the fact that opened it."""
        incident = Incident(
            id=f"i-{sha256(opened_by.encode()).hexdigest()[:10]}",
            opened_ns=now_ns,
            changed_ns=now_ns,
            late=late,
        )
        self.open_ones.append(incident)
        return incident

    def close(self, is_over: Callable[[Incident], bool]) -> None:
        """Forget those that are over."""
        if any(is_over(each) for each in self.open_ones):
            self.open_ones = [each for each in self.open_ones if not is_over(each)]

    def on_node(self, node: str, now_ns: int, device: str = "") -> Incident | None:
        """The one that evidence on this node belongs to; about the same device it may be older."""
        for incident in reversed(self.open_ones):
            if node not in incident.nodes or incident.is_of_pace():
                continue
            age_ns = now_ns - incident.changed_ns
            if age_ns <= JOIN_NS or (device and incident.concerns(node, device)):
                return incident
        return None

    def of_noise(self, clue: Clue, now_ns: int, *, late: bool) -> Incident | None:
        """The one for lines that nobody understands, one a node; None where more is known."""
        incident = self.on_node(clue.node, now_ns)
        if incident is not None and not incident.is_noise():
            return None
        for each in reversed(self.open_ones):
            if clue.node in each.nodes and each.is_noise() and not each.recovered:
                return each
        return self.open(clue.proof.fact, now_ns, late=late)

    def of_link(self, clue: Clue) -> Incident | None:
        """The one in which the link that the message is about was last spoken of."""
        mine = (each for each in reversed(self.open_ones) if not each.recovered)
        return next((e for e in mine if any(is_same_link(c, clue) for c in e.clues)), None)

    def recover(self, incident_id: str) -> None:
        """An incident is over, but its fallout may go on: a dead GPU prints for a minute more."""
        for incident in self.open_ones:
            if incident.id == incident_id:
                incident.job, incident.recovered, incident.due_ns = "", True, 0

    def of_program(self, clue: Clue, now_ns: int, inventory: Inventory) -> Incident | None:
        """The one of the same program on another node."""
        if not _is_program(clue):
            return None
        jobs = {seat.job for seat in inventory.seats_on(clue.node)}
        for incident in self.open_ones:
            if now_ns - incident.changed_ns > JOIN_NS:
                continue
            nodes = {each.node for each in incident.clues if _is_program(each)}
            if any(seat.job in jobs for node in nodes for seat in inventory.seats_on(node)):
                return incident
        return None

    def of_exit(self, exited: Exit, now_ns: int, inventory: Inventory) -> Incident | None:
        """The one that the end of a rank belongs to."""
        on_node = self.on_node(exited.node, now_ns)
        if on_node is not None and on_node.job in ("", exited.job) and not on_node.recovered:
            on_node.job = exited.job
            return on_node
        gathered_ns = HOLD_NS if is_own_death(exited) else JOIN_NS
        for incident in self.open_ones:
            if incident.recovered or now_ns - incident.changed_ns > gathered_ns:
                continue
            if incident.is_slowness():
                continue
            if incident.job == exited.job or _touches(incident, exited.job, inventory):
                return incident
        return None

    def of_job(
        self, job: str, nodes: Sequence[str], now_ns: int, within_ns: int
    ) -> Incident | None:
        """The one of a job or of any of these nodes, on a node first."""
        recent = [
            each
            for each in self.open_ones
            if now_ns - each.changed_ns <= within_ns and not (each.recovered or each.is_slowness())
        ]
        for incident in reversed(recent):
            if any(node in incident.nodes for node in nodes):
                return incident
        return next((each for each in recent if job and each.job == job), None)

    def of_calls(self, job: str, likely: Incident) -> Incident | None:
        """The one for calls of a job that differ: not one in which hardware is at fault."""
        for incident in reversed(self.open_ones):
            stuck = incident.stuck
            if incident.job == job and not incident.recovered and stuck and stuck.of_its_own:
                return incident
        return None if likely.told or likely.silences or _has_broken(likely) else likely

    def explain_stall(self, jobs: Collection[str], node: str) -> bool:
        """Whether it is known why one of these jobs stands, and it is nothing on this node."""
        return any(
            each.job in jobs and each.level > UNEXPLAINED and node not in each.nodes
            for each in self.open_ones
            if not (each.recovered or each.is_of_pace())
        )

    def of_nodes(self, nodes: Sequence[str], now_ns: int) -> Incident | None:
        """The latest one on any of these nodes that is not over."""
        for node in nodes:
            incident = self.on_node(node, now_ns)
            if incident is not None and not incident.recovered:
                return incident
        return None

    def of_server(self, clue: Clue, now_ns: int) -> Incident | None:
        """The one in which another client told of the file server that the message is about."""
        if clue.message.kind != "server_silent":
            return None
        told = (each for each in self.open_ones if now_ns - each.changed_ns <= JOIN_NS)
        return next((e for e in told if any(c.message == clue.message for c in e.clues)), None)

    def of_jobs(self, jobs: Collection[str], now_ns: int, inventory: Inventory) -> Incident | None:
        """The latest one that touches one of these jobs."""
        for incident in reversed(self.open_ones):
            if incident.recovered or now_ns - incident.changed_ns > JOIN_NS:
                continue
            if incident.is_slowness():
                continue
            if any(job == incident.job or _touches(incident, job, inventory) for job in jobs):
                return incident
        return None

    def about(self, key: str) -> Incident | None:
        """The one in which counters or steps told of this."""
        mine = (each for each in reversed(self.open_ones) if not each.recovered)
        return next((each for each in mine if key in each.told), None)

    def explain_aborts(self, incident: Incident, root: Finding, now_ns: int) -> bool:
        """Whether ranks are blamed for having aborted while another incident of their job, of the
        last two minutes, says what broke: watchdogs abort, and not those of the rank at fault."""
        jobs = {each.job for each in incident.exits if each.signal == SIGABRT}
        aborted = root.level == RANK_EXITED and all(e.signal == SIGABRT for e in incident.exits)
        return aborted and any(
            each.level > RANK_EXITED
            and each.job in jobs
            and each is not incident
            and not each.recovered
            and now_ns - each.changed_ns <= JOIN_NS
            for each in self.open_ones
        )

    def unexplained(
        self, jobs: Collection[str], now_ns: int, inventory: Inventory
    ) -> Incident | None:
        """The one of a job that stands still or whose ranks gave up, and nobody knows why."""
        incident = self.of_jobs(jobs, now_ns, inventory)
        if incident is None or incident.silences or _has_cause(incident):
            return None
        if any(each.level > UNEXPLAINED for each in incident.told.values()):
            return None
        return incident


def _has_broken(incident: Incident) -> bool:
    """Whether a kernel message in it says that a device failed."""
    return any(each.level > PROGRAM_FAULT for each in incident.clues)


def _has_cause(incident: Incident) -> bool:
    """Whether more is in it than what follows from a fault elsewhere.

    A process that was killed, a call that differs, a message that dying processes do not print.
    """
    if incident.stuck is not None and incident.stuck.fault_class == "desync":
        return True
    deaths = any(is_own_death(each) for each in incident.exits)
    return deaths or any(
        each.level > PROGRAM_FAULT or each.message.kind != "xid" for each in incident.clues
    )


def is_of_others(incident: Incident, nodes: Set[str]) -> bool:
    """Whether something is known to be wrong that cannot make a program err on these nodes: a part
    that broke or a process that was killed elsewhere, a network, calls that differ."""
    broken = {e.node for e in incident.clues if e.level > PROGRAM_FAULT or _is_no_symptom(e)}
    broken |= {each.node for each in incident.exits if is_own_death(each)}
    broken |= {node for each in incident.silences for node in each.nodes}
    if broken:
        return broken.isdisjoint(nodes)
    apart = [each for each in incident.told.values() if each.level > UNEXPLAINED]
    differs = incident.stuck is not None and incident.stuck.of_its_own
    return differs or any(each.fault_class.partition(".")[0] in ELSEWHERE for each in apart)


def _is_no_symptom(clue: Clue) -> bool:
    return clue.message.kind != "xid" and clue.level > UNEXPLAINED


def _is_program(clue: Clue) -> bool:
    role = role_of(clue.message)
    return role is not None and role.level == PROGRAM_FAULT


def _touches(incident: Incident, job: str, inventory: Inventory) -> bool:
    places = inventory.jobs.get(job)
    if places is None:
        return False
    own = {*places.nodes, *places.moved.values()}
    return any(node in own for node in incident.nodes)
