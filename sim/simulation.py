"""One run: world, job and agents advance together, faults strike, the ledger hears of it.

Synchronous and without a wire: given the same calls it does the same. Simulated time is an
argument; how fast it passes is the caller's business.
"""

from bisect import insort
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, assert_never

from nemesis.schemas.operated import JobSubmitted
from nemesis.sim.agent import Agent, Surroundings
from nemesis.sim.cluster import Cluster
from nemesis.sim.faults import (
    Fault,
    GpuCounted,
    GpuLost,
    KernelLine,
    NodeLost,
    RankDies,
    RankStuck,
    Symptom,
)
from nemesis.sim.job import Job, StepDone
from nemesis.sim.ledger import FaultInjected, MembershipFormed, injected
from nemesis.sim.rendezvous import Rendezvous
from nemesis.sim.world import Load, World

Connected = Callable[[str], bool]


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
        self.job: Final = Job(cluster, seed, start_ns=start_ns)
        self.world: Final = World(cluster, seed)
        self.lost_nodes: Final[set[str]] = set()
        self.faults_injected_count = 0
        self._start_ns: Final = start_ns
        self._now_ns = start_ns
        self.folder: Final = folder
        self._around: Final = Surroundings(
            cluster, self.job, submitted, Rendezvous(world_min=submitted.world_min)
        )
        self.agents: Final = {node: self._agent(node, start_ns) for node in cluster.node_names}
        self.faults: Final[list[Fault]] = []
        self._onsets: Final[list[Fault]] = []
        self._symptoms: Final[list[tuple[int, int, Symptom]]] = []
        self._epochs_seen: Final[set[int]] = set()
        for fault in faults:
            self.inject(fault)

    def inject(self, fault: Fault) -> None:
        """Let one more fault happen at its onset, or at the next advance where that has passed."""
        self.faults.append(fault)
        insort(self._onsets, fault, key=lambda each: each.onset_ns)
        for symptom in fault.symptoms:
            at_ns = self._start_ns + fault.onset_ns + symptom.after_ns
            entry = (at_ns, len(self.faults), symptom)
            insort(self._symptoms, entry, key=lambda each: each[:2])

    def advance(self, now_ns: int, connected: Connected) -> list[FaultInjected | MembershipFormed]:
        """Let the run go on to `now_ns`; what the ledger must know of it.

        `connected` says whether a node's agent reaches the log.
        """
        elapsed_ns = max(0, now_ns - self._now_ns)
        self._now_ns = now_ns
        load: dict[str, Load] = {
            node: agent.witness.load(now_ns) for node, agent in self.agents.items()
        }
        self.world.advance(elapsed_ns, load)
        truths: list[FaultInjected | MembershipFormed] = []
        while self._onsets and self._start_ns + self._onsets[0].onset_ns <= now_ns:
            self.faults_injected_count += 1
            truths.append(injected(self._onsets.pop(0), self._start_ns))
        while self._symptoms and self._symptoms[0][0] <= now_ns:
            at_ns, _, symptom = self._symptoms.pop(0)
            self.job.advance(at_ns)
            self._strike(symptom, at_ns)
        self.job.advance(now_ns)
        for node, agent in self.agents.items():
            agent.tick(now_ns, connected=connected(node))
        return truths + self._new_memberships()

    def restart_agent(self, node: str, now_ns: int) -> Agent:
        """The agent's process died and is started again; the ranks know nothing of it."""
        self.agents[node] = self._agent(node, now_ns)
        return self.agents[node]

    def _agent(self, node: str, start_ns: int) -> Agent:
        agent = Agent(
            node,
            self._around,
            self.world[node],
            folder=self.folder / node,
            boot_id=f"{node}-boot",
            start_ns=start_ns,
        )
        agent.begin(start_ns)
        return agent

    def _strike(self, symptom: Symptom, at_ns: int) -> None:
        node, effect = symptom.node, symptom.effect
        if node in self.lost_nodes:
            return
        match effect:
            case KernelLine():
                self.agents[node].witness.kernel_line(effect.text, effect.priority, at_ns)
            case GpuLost() | GpuCounted():
                self.world[node].suffer(effect)
            case RankStuck():
                self.job.stick(effect.rank)
            case RankDies():
                self.job.kill(effect.rank, effect.returncode)
            case NodeLost():
                for rank in self.job.on_node(node):
                    self.job.kill(rank.number, 0)
                self.lost_nodes.add(node)
                del self.agents[node]
            case _:
                assert_never(effect)

    def _new_memberships(self) -> list[FaultInjected | MembershipFormed]:
        truths: list[FaultInjected | MembershipFormed] = []
        for done in self.job.history:
            if done.epoch not in self._epochs_seen:
                self._epochs_seen.add(done.epoch)
                truths.append(self._standing(done))
        return truths

    def standing(self) -> MembershipFormed | None:
        """How the job stands after its newest step; None before the first."""
        return self._standing(self.job.history[-1]) if self.job.history else None

    def _standing(self, done: StepDone) -> MembershipFormed:
        return MembershipFormed(
            at_ns=done.at_ns,
            epoch=done.epoch,
            step=done.step,
            world=done.world,
            redone_count=self.job.redone_count,
            restarts_count=self.job.restarts_count,
        )
