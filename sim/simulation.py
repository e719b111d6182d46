"""One run: world, job and agents advance together, faults strike, the ledger hears of it.

Synchronous and without a wire: given the same calls it does the same. Simulated time is an
argument; how fast it passes is the caller's business.
"""

from bisect import insort
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from nemesis.schemas.observed import Observation
from nemesis.schemas.operated import JobSubmitted
from nemesis.sim.agent import Agent, Surroundings
from nemesis.sim.faults.symptoms import Fault, Symptom
from nemesis.sim.jobs.job import Job
from nemesis.sim.jobs.network import Network
from nemesis.sim.jobs.watchdogs import Watchdogs
from nemesis.sim.operator import submissions
from nemesis.sim.params import Params, load_params
from nemesis.sim.rendezvous import Rendezvous
from nemesis.sim.strikes import Strikes
from nemesis.sim.telemetry.evidence import Evidence
from nemesis.sim.telemetry.fabric import Collector, Collectors, Fabric
from nemesis.sim.telemetry.poller import Poller
from nemesis.sim.telemetry.witness import Witness
from nemesis.sim.telemetry.world import World
from nemesis.sim.topology.cluster import Cluster
from nemesis.sim.truth.ledger import FaultInjected, MembershipFormed, injected
from nemesis.sim.truth.memberships import Memberships

Connected = Callable[[str], bool]
FABRIC_POLLS: Final = 2
"""A switch is polled once in so many polls of a node: its fact is larger."""


class Simulation:
    """Everything that is simulated in one run."""

    def __init__(
        self,
        cluster: Cluster,
        faults: Sequence[Fault],
        *,
        seed: int,
        folder: Path,
        start_ns: int,
        submitted: Sequence[JobSubmitted] | None = None,
        defects: Sequence[Symptom] = (),
        params: Params | None = None,
        boot: int = 1,
    ) -> None:
        """`submitted`: the cluster's jobs, else as a demo submits them; `defects`: of the evidence,
        no fault of the cluster; `params`: what is assumed, else the release's file; `boot`: which
        of its nodes' boots this is."""
        submitted = submissions(cluster, start_ns) if submitted is None else submitted
        self.cluster: Final = cluster
        params = params or load_params()
        self.network: Final = Network(cluster.nvlink_of)
        self.jobs: Final = _jobs(cluster, self.network, params, seed=seed, start_ns=start_ns)
        self.job: Final = self.jobs[cluster.job.name]
        """The first one."""
        self.world: Final = World(cluster, seed, params)
        self.fabric: Final = Fabric(cluster, seed, params)
        period_ns = cluster.cluster.sample_period_ms * 1_000_000
        self._collectors: Final = Collectors(
            cluster, self.fabric, start_ns=start_ns, period_ns=FABRIC_POLLS * period_ns
        )
        self._poller: Final = Poller(
            self.world, cluster.node_names, period_ns=period_ns, start_ns=start_ns
        )
        self._speaking: Final[set[str]] = set()
        self.faults_injected_count = 0
        self.start_ns: Final = start_ns
        self._now_ns = start_ns
        self.folder: Final = folder
        self._around: Final = Surroundings(
            cluster,
            self.jobs,
            {each.job: each for each in submitted},
            {each.job: Rendezvous(world_min=each.world_min) for each in submitted},
            set(),
        )
        self._evidence: Final = {node: Evidence(node, seed) for node in cluster.node_names}
        self.agents: Final[dict[str, Agent]] = {}
        self._strikes: Final = Strikes(
            cluster,
            self.jobs,
            network=self.network,
            world=self.world,
            fabric=self.fabric,
            evidence=self._evidence,
            agents=self.agents,
            concerned=self._around.concerned,
            boot=self.restart_agent,
            boots_count=boot,
        )
        self.lost_nodes: Final = self._strikes.lost_nodes
        self.kernel_lines: Final = self._strikes.kernel_lines
        self.printed: Final = self._strikes.printed
        for node in cluster.node_names:
            self.restart_agent(node, start_ns)
        self.faults: Final[list[Fault]] = []
        self._onsets: Final[list[Fault]] = []
        self._symptoms: Final = _in_time(defects, start_ns)
        self._watchdogs: Final = [Watchdogs(job) for job in self.jobs.values()]
        self._memberships: Final = {name: Memberships(job) for name, job in self.jobs.items()}
        for fault in faults:
            self.inject(fault)

    def inject(self, fault: Fault) -> None:
        """Let one more fault begin at its time, or at the next advance where that has passed."""
        self.faults.append(fault)
        insort(self._onsets, fault, key=lambda each: each.began_ns)
        for symptom in fault.symptoms:
            at_ns = self.start_ns + fault.began_ns + symptom.after_ns
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
        while self._onsets and self.start_ns + self._onsets[0].began_ns <= now_ns:
            self.faults_injected_count += 1
            fault = self._onsets.pop(0)
            job = self.cluster.job_on(fault.node) if fault.node else None
            truths.append(injected(fault, self.start_ns, job.name if job else ""))
        while self._symptoms and self._symptoms[0][0] <= now_ns:
            at_ns, _, symptom = self._symptoms.pop(0)
            self._advance_jobs(at_ns)
            self._strikes.strike(symptom, at_ns)
        self._advance_jobs(now_ns)
        self._listen(now_ns)
        self._look(now_ns, connected)
        self._collectors.look(now_ns, self._strikes.lost_switches)
        return truths + [entry for each in self._memberships.values() for entry in each.formed()]

    def calm_until_ns(self, limit_ns: int) -> int:
        """Up to when nothing happens but polls and healthy steps, as far as `limit_ns`."""
        is_restless = self._around.concerned or self._speaking or self._collectors.is_speaking
        if is_restless or any(agent.has_news for agent in self.agents.values()):
            return self._now_ns
        struck_ns = self._strikes.jobs_struck_ns
        if not all(job.is_steady(struck_ns) for job in self.jobs.values()):
            return self._now_ns
        next_ns = [at_ns for at_ns, *_ in self._symptoms[:1]]
        next_ns += [self.start_ns + each.began_ns for each in self._onsets[:1]]
        return min([limit_ns, *(at_ns - 1 for at_ns in next_ns)])

    def pass_calm(self, until_ns: int, quantum_ns: int) -> list[tuple[int, Observation]]:
        """Go on to `until_ns` at once; what is told meanwhile and when, in order.

        The same that `advance` every `quantum_ns` gives, up to a time of `calm_until_ns` at most a
        poll period away.
        """
        now_ns, self._now_ns = self._now_ns, until_ns
        polled = self._poller.poll_ahead(now_ns, until_ns, quantum_ns, self._witness_of)
        collectors = self._collectors.look_ahead(
            now_ns, until_ns, quantum_ns, self._strikes.lost_switches
        )
        self._advance_jobs(until_ns)
        self.world.advance(until_ns - now_ns)
        told = [
            (at_ns, fact)
            for at_ns, node in polled
            for fact in self.agents[node].witness.carried(at_ns)
        ]
        for at_ns, collector in collectors:
            self.fabric.advance(at_ns - now_ns)
            now_ns = at_ns
            collector.poll(at_ns)
            told += ((at_ns, fact) for fact in collector.carried())
        self.fabric.advance(until_ns - now_ns)
        assert not any(job.waits_longer(job.model.stall_ns, until_ns) for job in self.jobs.values())
        told.sort(key=lambda each: each[0])
        return told

    def finish(self, job: str) -> None:
        """The processes of a job come to their end."""
        for rank in self.jobs[job].ranks.values():
            self.jobs[job].kill(rank.number, 0)
            self._around.concerned.add(rank.node)

    def _advance_jobs(self, now_ns: int) -> None:
        for job in self.jobs.values():
            job.advance(now_ns)

    def _listen(self, now_ns: int) -> None:
        """Let agents forward what watchdogs say."""
        for watchdogs in self._watchdogs:
            for said in watchdogs.said(now_ns):
                if said.node in self.agents:
                    witness = self.agents[said.node].witness
                    witness.printed(said.rank, "torch", said.text, said.at_ns)
                    self._around.concerned.add(said.node)

    def speaking(self) -> list[str]:
        """Nodes that may have something to say since this was asked last, in their order."""
        nodes = self._speaking | self._around.concerned
        self._speaking.clear()
        return sorted(nodes & self.agents.keys(), key=self.cluster.node_index.__getitem__)

    @property
    def collectors(self) -> dict[str, Collector]:
        """By switch."""
        return self._collectors.by_switch

    def speaking_collectors(self) -> list[Collector]:
        """Collectors that have something to say since this was asked last."""
        return self._collectors.speaking()

    def _look(self, now_ns: int, connected: Connected) -> None:
        """Poll the nodes that are due, and let those agents look that something concerns."""
        concerned = self._around.concerned
        for job in self.jobs.values():
            if job.waits_longer(job.model.stall_ns, now_ns):
                concerned |= {rank.node for rank in job.ranks.values()}
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
        boot = self._strikes.boot_of(node)
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

    def writes_dump(self, node: str, rank: int) -> bool:
        """Whether anybody gets to see the flight recorder of a rank on a node."""
        return node not in self.lost_nodes and self._evidence[node].dumps(rank)

    def standing(self) -> list[MembershipFormed]:
        """How each job stands after its newest step; without those that have made none."""
        stands = (each.standing() for each in self._memberships.values())
        return [each for each in stands if each is not None]


def _in_time(defects: Sequence[Symptom], start_ns: int) -> list[tuple[int, int, Symptom]]:
    """(when, order, what) of defects: at equal times before what strikes the cluster."""
    order = range(-1, -1 - len(defects), -1)
    return sorted(
        ((start_ns + each.after_ns, at, each) for at, each in zip(order, defects, strict=True)),
        key=lambda each: each[:2],
    )


def _jobs(
    cluster: Cluster, network: Network, params: Params, *, seed: int, start_ns: int
) -> dict[str, Job]:
    """All jobs of a cluster, by name."""
    return {
        model.name: Job(
            model,
            cluster.nodes_of(model),
            cluster.ranks_per_node,
            seed,
            start_ns=start_ns,
            network=network,
            jitter_per_mille=params.steps.jitter_per_mille,
        )
        for model in cluster.jobs
    }
