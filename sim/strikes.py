"""What strikes: each symptom of a fault is carried out on the part of the run that it concerns."""

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Final, assert_never

from nemesis.sim.agent import Agent
from nemesis.sim.faults.symptoms import (
    ContextLost,
    DomainCut,
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
    NodeHung,
    NodeLost,
    NodeReturned,
    PairTurned,
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
from nemesis.sim.jobs.network import Network
from nemesis.sim.jobs.parts import parts_of
from nemesis.sim.telemetry.evidence import Evidence
from nemesis.sim.telemetry.fabric import Fabric
from nemesis.sim.telemetry.world import World
from nemesis.sim.topology.cluster import Cluster

ERR: Final = 3  # KERN_ERR


class Strikes:
    """The parts of a run that faults strike, and what of them is gone."""

    def __init__(
        self,
        cluster: Cluster,
        jobs: Mapping[str, Job],
        *,
        network: Network,
        world: World,
        fabric: Fabric,
        evidence: Mapping[str, Evidence],
        agents: dict[str, Agent],
        concerned: set[str],
        boot: Callable[[str, int], object],
        boots_count: int,
    ) -> None:
        """`concerned`: takes the nodes whose agents must look; `boot`: starts a node's agent.

        `boots_count`: how often each node has booted so far.
        """
        self.cluster: Final = cluster
        self.jobs: Final = jobs
        self.network: Final = network
        self.world: Final = world
        self.fabric: Final = fabric
        self.agents: Final = agents
        self.lost_nodes: Final[set[str]] = set()
        self.lost_switches: Final[set[str]] = set()
        self.boots_count: Final[dict[str, int]] = {}
        """By node that was lost: how often it has booted, the next boot among them."""
        self.kernel_lines: Final[dict[str, list[tuple[int, str]]]] = {}
        """What kernels printed, by node: when, and the text; nothing where nobody can read it."""
        self.printed: Final[dict[tuple[str, int], list[tuple[int, str]]]] = {}
        """What ranks printed by their own, by job and rank: when, and the text."""
        self.jobs_struck_ns = -1
        """When something last happened that jobs may feel."""
        self._evidence: Final = evidence
        self._concerned: Final = concerned
        self._boot: Final = boot
        self._boots_count: Final = boots_count

    def boot_of(self, node: str) -> int:
        """Which boot a node is in, or will be when it comes back."""
        return self.boots_count.get(node, self._boots_count)

    def strike(self, symptom: Symptom, at_ns: int) -> None:
        """Let it happen; nothing happens to a node that is lost or hangs but its return."""
        node, effect = symptom.node, symptom.effect
        if node in self.lost_nodes and not isinstance(effect, NodeReturned):
            return
        self._concerned.add(node)
        if isinstance(effect, RankEffect | NetworkEffect | NodeEffect):
            self.jobs_struck_ns = at_ns
        if isinstance(effect, KernelLine):
            self._kernel_line(node, effect.text, effect.priority, at_ns)
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

    def _kernel_line(self, node: str, text: str, priority: int, at_ns: int) -> None:
        if self._evidence[node].has_kernel_log:
            self.kernel_lines.setdefault(node, []).append((at_ns, text))
        self.agents[node].witness.kernel_line(text, priority, at_ns)

    def _strike_node(self, effect: NodeEffect, node: str, at_ns: int) -> None:
        match effect:
            case Slowed():
                for job in self.jobs.values():
                    job.slow(node, effect.index, effect.per_mille)
            case SettingChanged():
                witness = self.agents[node].witness
                witness.setting(effect.component, effect.name, effect.value, at_ns)
            case NodeLost() | NodeHung():
                self._lose(node, has_power=isinstance(effect, NodeHung))
            case NodeReturned():
                self._return(node, at_ns)
            case _:
                assert_never(effect)

    def _lose(self, node: str, *, has_power: bool) -> None:
        """Nothing of it runs any more; without power its NICs give their ports no light either."""
        for job in self.jobs.values():
            for number in job.numbers_on(node):
                if has_power:
                    job.halt(number)
                else:
                    job.kill(number, 0)
        for nic in () if has_power else self.cluster.nics_of(node):
            self.fabric.turn(nic.switch_port, up=False)
        self.lost_nodes.add(node)
        self.boots_count[node] = self.boot_of(node) + 1
        del self.agents[node]

    def _return(self, node: str, at_ns: int) -> None:
        """Boot a node that was lost, with sound parts: nothing of what it ran is known to it."""
        if node not in self.lost_nodes:
            return
        for job in self.jobs.values():
            for rank in job.on_node(node):
                job.fence(rank.number)
            for index in range(-1, self.cluster.ranks_per_node):
                job.slow(node, index, 0)
                job.congest(node, index, 0)
        self.lost_nodes.discard(node)
        self.network.mend_domain(self.cluster.nvlink_of(node))
        self.world[node].boot()
        for index, nic in enumerate(self.cluster.nics_of(node)):
            self.fabric.rise(nic.switch_port, ())
            if nic.switch_port.split("/")[1] not in self.lost_switches:
                self._turn_link(LinkTurned(index, up=True), node, at_ns)
        self._boot(node, at_ns)

    def _strike_rank(self, effect: RankEffect, node: str, at_ns: int) -> None:
        there = (job for job in self.jobs.values() if effect.rank in job.numbers_on(node))
        job = next(there, None)
        if job is None:
            return  # it moved away before
        match effect:
            case RankStuck():
                job.stick(effect.rank)
            case RankDies():
                job.kill(effect.rank, effect.returncode)
            case RankGivesUp():
                self._give_up(job, effect, node, at_ns)
            case RankStrays():
                job.stray(effect.rank, effect.differs_in)
            case ContextLost():
                job.blind(effect.rank)
                job.halt(effect.rank)
            case RankDelayed():
                job.delay(effect.rank, effect.delay_ns, effect.waits_for)
            case RankPrints():
                self.printed.setdefault((job.name, effect.rank), []).append((at_ns, effect.text))
                witness = self.agents[node].witness
                witness.printed(effect.rank, effect.source, effect.text, at_ns)
            case RankReads():
                job.readings[effect.rank] = dict(effect.readings)
            case _:
                assert_never(effect)

    def _give_up(self, job: Job, effect: RankGivesUp, node: str, at_ns: int) -> None:
        """Who got on meanwhile has nothing to give up; a hold comes too late for a watchdog."""
        rank = job.ranks[effect.rank]
        alive = rank.stage in ("running", "held")
        step_ns = job.model.step_ns
        since_ns = job.waiting_since_ns(effect.rank, at_ns) or rank.ready_ns
        if not alive or at_ns - since_ns < max(step_ns, effect.patience_ns - step_ns):
            return
        for line in effect.lines:
            self._kernel_line(node, line, ERR, at_ns)
        job.kill(effect.rank, effect.returncode)

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
                self._congest(node, effect)
            case DomainCut():
                self.network.cut_domain(effect.domain)
                self._rewired(0)
            case PairTurned():
                self._turn_pair(node, effect, at_ns)
            case NicMute():
                self.world[node].suffer(effect)
                self._silence(node, effect.nic)
            case NicCounted() | NicRises() | NicReads():
                self.world[node].suffer(effect)
            case _:
                assert_never(effect)

    def _congest(self, node: str, effect: NicSlowed) -> None:
        for job, place in self._served(effect.nic):
            job.congest(node, place, effect.per_mille)

    def _turn_pair(self, node: str, effect: PairTurned, at_ns: int) -> None:
        served = self.cluster.node.gpus_of_nic
        for one, two in product(served(effect.nic), served(effect.peer_nic)):
            turn = self.network.mend_pair if effect.up else self.network.cut_pair
            turn((node, one), (effect.peer, two))
        self._rewired(at_ns if effect.up else 0)

    def _silence(self, node: str, nic: int) -> None:
        for job, place in self._served(nic):
            job.cut(node, place)

    def _turn_switch(self, switch: str, at_ns: int, *, up: bool) -> None:
        """Every link of it goes down or comes back; its NICs' nodes see that too."""
        for port in self.cluster.ports_of(switch):
            kind, _, peer = port.peer.partition("/")
            node, _, name = peer.partition("/")
            if kind == "port":
                self.fabric.turn(port.port, up=up)
                self.fabric.turn(port.peer, up=up)
            elif node not in self.lost_nodes:
                names = [nic.name for nic in self.cluster.nics_of(node)]
                self._turn_link(LinkTurned(names.index(name), up), node, at_ns)
        if up:
            self.lost_switches.discard(switch)
        else:
            self.lost_switches.add(switch)
        if self.cluster.tier_of(switch) != "leaf":
            self.network.part(parts_of(self.cluster, self.lost_switches))
            self._rewired(at_ns if up else 0)

    def _rewired(self, mended_ns: int) -> None:
        for job in self.jobs.values():
            job.rewired(mended_ns)

    def _turn_link(self, effect: LinkTurned, node: str, at_ns: int) -> None:
        """Both ends see it, and the rank behind it is cut off or reached again."""
        self.world[node].turn_link(effect.nic, up=effect.up)
        self.fabric.turn(self._port(node, effect.nic), up=effect.up)
        for job, place in self._served(effect.nic):
            if effect.up:
                job.mend(node, place, at_ns)
            else:
                job.cut(node, place)

    def _served(self, nic: int) -> Iterator[tuple[Job, int]]:
        """Every job with each place of a node that a NIC serves."""
        return product(self.jobs.values(), self.cluster.node.gpus_of_nic(nic))

    def _port(self, node: str, nic: int) -> str:
        return self.cluster.nics_of(node)[nic].switch_port
