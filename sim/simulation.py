"""One run: world, job and agents advance together, faults strike, the ledger hears of it.

Synchronous and without a wire: given the same calls it does the same. Simulated time is an
argument; how fast it passes is the caller's business.
"""

from bisect import insort
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, assert_never

from nemesis.schemas.operated import JobSubmitted
from nemesis.schemas.rank_ranges import format_ranks
from nemesis.sim.agent import Agent, Surroundings
from nemesis.sim.faults.symptoms import (
    Fault,
    GpuEffect,
    HostEffect,
    KernelLine,
    LinkTurned,
    NetworkEffect,
    NicCounted,
    NicMute,
    NicReads,
    NicRises,
    NicSlowed,
    NodeEffect,
    NodeLost,
    NodeReturned,
    PortCounted,
    PortRises,
    RankDelayed,
    RankDies,
    RankEffect,
    RankGivesUp,
    RankPrints,
    RankReads,
    RankStrays,
    RankStuck,
    SettingChanged,
    Slowed,
    SwitchLost,
    SwitchReturned,
    Symptom,
)
from nemesis.sim.jobs.job import Job
from nemesis.sim.jobs.steps import StepDone
from nemesis.sim.rendezvous import Rendezvous
from nemesis.sim.telemetry.evidence import Evidence
from nemesis.sim.telemetry.fabric import Collector, Fabric
from nemesis.sim.telemetry.poller import Poller
from nemesis.sim.telemetry.witness import Witness
from nemesis.sim.telemetry.world import World
from nemesis.sim.topology.cluster import Cluster
from nemesis.sim.truth.ledger import FaultInjected, MembershipFormed, injected

Connected = Callable[[str], bool]
ERR: Final = 3  # KERN_ERR
FABRIC_POLLS: Final = 2
"""A switch is polled once in so many polls of a node: its fact is larger."""


class Simulation:
    """Everything that is simulated in one run."""

    def __init__(
        self,
        cluster: Cluster,
        submitted: JobSubmitted,
        faults: Sequence[Fault],
        *,
        seed: int,
        folder: Path,
        start_ns: int,
    ) -> None:
        self.cluster: Final = cluster
        self.job: Final = Job(
            cluster.job, cluster.job_nodes, cluster.ranks_per_node, seed, start_ns=start_ns
        )
        self.world: Final = World(cluster, seed)
        self.fabric: Final = Fabric(cluster)
        period_ns = FABRIC_POLLS * cluster.cluster.sample_period_ms * 1_000_000
        self.collectors: Final = {
            switch: Collector(switch, cluster, self.fabric, start_ns=start_ns, period_ns=period_ns)
            for switch in cluster.switches
        }
        self._poller: Final = Poller(
            self.world,
            cluster.node_names,
            period_ns=cluster.cluster.sample_period_ms * 1_000_000,
            start_ns=start_ns,
        )
        self._speaking: Final[set[str]] = set()
        self.lost_nodes: Final[set[str]] = set()
        self.lost_switches: Final[set[str]] = set()
        self._boots: Final[dict[str, int]] = {}
        self.faults_injected_count = 0
        self._start_ns: Final = start_ns
        self._now_ns = start_ns
        self.folder: Final = folder
        self._around: Final = Surroundings(
            cluster, self.job, submitted, Rendezvous(world_min=submitted.world_min), set()
        )
        self._evidence: Final = {node: Evidence(node, seed) for node in cluster.node_names}
        self.agents: Final = {node: self._agent(node, start_ns) for node in cluster.node_names}
        self.faults: Final[list[Fault]] = []
        self._onsets: Final[list[Fault]] = []
        self._symptoms: Final[list[tuple[int, int, Symptom]]] = []
        self._epochs_seen: Final[set[int]] = set()
        self._steps_seen_count = 0
        model = cluster.job
        self._step_ns: Final = (model.step_ms + model.allreduce_ms) * 1_000_000
        self._stall_ns: Final = model.stall_steps * self._step_ns
        for fault in faults:
            self.inject(fault)

    def afflict(self, defects: Sequence[Symptom]) -> None:
        """Let evidence be lost, late or missing from these times on; no fault of the cluster."""
        for number, each in enumerate(defects):
            entry = (self._start_ns + each.after_ns, -1 - number, each)
            insort(self._symptoms, entry, key=lambda entry: entry[:2])

    def inject(self, fault: Fault) -> None:
        """Let one more fault begin at its time, or at the next advance where that has passed."""
        self.faults.append(fault)
        insort(self._onsets, fault, key=lambda each: each.began_ns)
        for symptom in fault.symptoms:
            at_ns = self._start_ns + fault.began_ns + symptom.after_ns
            entry = (at_ns, len(self.faults), symptom)
            insort(self._symptoms, entry, key=lambda each: each[:2])

    def advance(self, now_ns: int, connected: Connected) -> list[FaultInjected | MembershipFormed]:
        """Let the run go on to `now_ns`; what the ledger must know of it.

        `connected` says whether a node's agent reaches the log.
        """
        elapsed_ns = max(0, now_ns - self._now_ns)
        self._now_ns = now_ns
        self.world.advance(elapsed_ns)
        self.fabric.advance(elapsed_ns)
        truths: list[FaultInjected | MembershipFormed] = []
        while self._onsets and self._start_ns + self._onsets[0].began_ns <= now_ns:
            self.faults_injected_count += 1
            truths.append(injected(self._onsets.pop(0), self._start_ns))
        while self._symptoms and self._symptoms[0][0] <= now_ns:
            at_ns, _, symptom = self._symptoms.pop(0)
            self.job.advance(at_ns)
            self._strike(symptom, at_ns)
        self.job.advance(now_ns)
        self._look(now_ns, connected)
        for switch, collector in self.collectors.items():
            if switch not in self.lost_switches:
                collector.look(now_ns)
        return truths + self._new_memberships()

    def speaking(self) -> list[str]:
        """Nodes that may have something to say since this was asked last, in their order."""
        nodes = self._speaking | self._around.concerned
        self._speaking.clear()
        return sorted(nodes & self.agents.keys(), key=self.cluster.node_index.__getitem__)

    def _look(self, now_ns: int, connected: Connected) -> None:
        """Poll the nodes that are due, and let those agents look that something concerns."""
        concerned = self._around.concerned
        if self.job.waits_longer(self._stall_ns, now_ns):
            concerned |= {rank.node for rank in self.job.ranks.values()}
        polled = self._poller.poll(now_ns, self._witness_of)
        nodes = concerned.union(polled) & self.agents.keys()
        concerned.clear()
        self._speaking.update(nodes)
        for node in sorted(nodes, key=self.cluster.node_index.__getitem__):
            agent = self.agents[node]
            cut_off = self._evidence[node].is_cut_off(now_ns)
            agent.tick(now_ns, connected=connected(node) and not cut_off)
            if agent.is_restless:
                concerned.add(node)

    def _witness_of(self, node: str) -> Witness | None:
        agent = self.agents.get(node)
        return None if agent is None else agent.witness

    def restart_agent(self, node: str, now_ns: int) -> Agent:
        """The agent's process died and is started again; the ranks know nothing of it."""
        self.agents[node] = self._agent(node, now_ns)
        return self.agents[node]

    def _agent(self, node: str, start_ns: int) -> Agent:
        boot = self._boots.get(node, 1)
        agent = Agent(
            node,
            self._around,
            self._evidence[node],
            # what a node kept of its plans is void after a boot
            folder=self.folder / node if boot == 1 else self.folder / node / f"boot{boot}",
            boot_id=f"{node}-boot" if boot == 1 else f"{node}-boot{boot}",
            start_ns=start_ns,
        )
        agent.begin(start_ns)
        return agent

    def _strike(self, symptom: Symptom, at_ns: int) -> None:
        node, effect = symptom.node, symptom.effect
        if node in self.lost_nodes and not isinstance(effect, NodeReturned):
            return
        self._around.concerned.add(node)
        if isinstance(effect, KernelLine):
            self.agents[node].witness.kernel_line(effect.text, effect.priority, at_ns)
        elif isinstance(effect, RankEffect):
            self._strike_rank(effect, node, at_ns)
        elif isinstance(effect, GpuEffect | HostEffect):
            self.world[node].suffer(effect)
        elif isinstance(effect, NetworkEffect):
            self._strike_network(effect, node, at_ns)
        elif isinstance(effect, NodeEffect):
            self._strike_node(effect, node, at_ns)
        else:
            self._evidence[node].suffer(effect, at_ns)

    def _strike_node(self, effect: NodeEffect, node: str, at_ns: int) -> None:
        match effect:
            case Slowed():
                self.job.slow(node, effect.index, effect.per_mille)
            case SettingChanged():
                witness = self.agents[node].witness
                witness.setting(effect.component, effect.name, effect.value, at_ns)
            case NodeLost():
                for rank in self.job.on_node(node):
                    self.job.kill(rank.number, 0)
                self.lost_nodes.add(node)
                self._boots[node] = self._boots.get(node, 1) + 1
                del self.agents[node]
            case NodeReturned():
                self._return(node, at_ns)
            case _:
                assert_never(effect)

    def _return(self, node: str, at_ns: int) -> None:
        """Boot a node that was lost: nothing of what it ran is known to it."""
        if node not in self.lost_nodes:
            return
        for rank in self.job.on_node(node):
            self.job.fence(rank.number)
        self.lost_nodes.discard(node)
        self.world[node].boot()
        self.agents[node] = self._agent(node, at_ns)

    def _strike_rank(self, effect: RankEffect, node: str, at_ns: int) -> None:
        rank = self.job.ranks.get(effect.rank)
        if rank is None or rank.node != node:
            return  # it moved away before
        match effect:
            case RankStuck():
                self.job.stick(effect.rank)
            case RankDies():
                self.job.kill(effect.rank, effect.returncode)
            case RankGivesUp():
                self._give_up(effect, node, at_ns)
            case RankStrays():
                self.job.stray(effect.rank, effect.differs_in)
            case RankDelayed():
                self.job.delay(effect.rank, effect.delay_ns, effect.waits_for)
            case RankPrints():
                witness = self.agents[node].witness
                witness.printed(effect.rank, effect.source, effect.text, at_ns)
            case RankReads():
                self.job.readings[effect.rank] = dict(effect.readings)
            case _:
                assert_never(effect)

    def _give_up(self, effect: RankGivesUp, node: str, at_ns: int) -> None:
        """Who got on meanwhile has nothing to give up; a hold comes too late for a watchdog."""
        rank = self.job.ranks[effect.rank]
        alive = rank.stage in ("running", "held")
        step_ns = self._step_ns
        since_ns = self.job.waiting_since_ns(effect.rank, at_ns) or rank.ready_ns
        if not alive or at_ns - since_ns < max(step_ns, effect.patience_ns - step_ns):
            return
        for line in effect.lines:
            self.agents[node].witness.kernel_line(line, ERR, at_ns)
        self.job.kill(effect.rank, effect.returncode)

    def _strike_network(self, effect: NetworkEffect, node: str, at_ns: int) -> None:
        match effect:
            case LinkTurned():
                self._turn_link(effect, node, at_ns)
            case PortCounted():
                self.fabric.count(self._port(node, effect.nic), effect.rises)
            case PortRises():
                self.fabric.rise(effect.port, effect.per_s)
            case SwitchLost() | SwitchReturned():
                self._turn_switch(effect.switch, at_ns, up=isinstance(effect, SwitchReturned))
            case NicSlowed():
                self.job.congest(node, effect.nic, effect.per_mille)
            case NicMute():
                self.world[node].suffer(effect)
                self.job.cut(node, effect.nic)
            case NicCounted() | NicRises() | NicReads():
                self.world[node].suffer(effect)
            case _:
                assert_never(effect)

    def _turn_switch(self, switch: str, at_ns: int, *, up: bool) -> None:
        """Every link of it goes down or comes back; its NICs' nodes see that too."""
        for port in self.cluster.ports_of(switch):
            kind, _, peer = port.peer.partition("/")
            node, _, name = peer.partition("/")
            if kind == "port":
                self.fabric.turn(port.port, up=up)
            elif node not in self.lost_nodes:
                names = [nic.name for nic in self.cluster.nics_of(node)]
                self._turn_link(LinkTurned(names.index(name), up), node, at_ns)
        if up:
            self.lost_switches.discard(switch)
        else:
            self.lost_switches.add(switch)

    def _turn_link(self, effect: LinkTurned, node: str, at_ns: int) -> None:
        """Both ends see it, and the rank behind it is cut off or reached again."""
        self.world[node].turn_link(effect.nic, up=effect.up)
        self.fabric.turn(self._port(node, effect.nic), up=effect.up)
        if effect.up:
            self.job.mend(node, effect.nic, at_ns)
        else:
            self.job.cut(node, effect.nic)

    def _port(self, node: str, nic: int) -> str:
        return self.cluster.nics_of(node)[nic].switch_port

    def _new_memberships(self) -> list[FaultInjected | MembershipFormed]:
        """The first steps of epochs, and those that ended a stall."""
        truths: list[FaultInjected | MembershipFormed] = []
        history, seen = self.job.history, self._steps_seen_count
        for at in range(seen, len(history)):
            done = history[at]
            waited_ns = done.at_ns - history[at - 1].at_ns if at else 0
            if done.epoch not in self._epochs_seen or waited_ns > self._stall_ns:
                self._epochs_seen.add(done.epoch)
                truths.append(self._standing(done, waited_ns))
        self._steps_seen_count = len(history)
        return truths

    def standing(self) -> MembershipFormed | None:
        """How the job stands after its newest step; None before the first."""
        return self._standing(self.job.history[-1]) if self.job.history else None

    def _standing(self, done: StepDone, waited_ns: int = 0) -> MembershipFormed:
        return MembershipFormed(
            at_ns=done.at_ns,
            epoch=done.epoch,
            step=done.step,
            world=done.world,
            members=format_ranks(done.members),
            since_last_step_ns=waited_ns,
            redone_count=self.job.redone_count,
            restarts_count=self.job.restarts_count,
        )
