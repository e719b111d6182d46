"""What one simulated node tells the log: samples, kernel lines, exits, flight recorders, inventory.

It only sees and never acts. Everything is made by the encoders that real producers use; what is to
be sent piles up in `observations`.
"""

from typing import Final

from nemesis.producers.device_state import device_state_of
from nemesis.producers.inventory import inventory_of
from nemesis.producers.kernel import KernelLines
from nemesis.producers.log_line import log_line_of
from nemesis.producers.origin import Origin
from nemesis.producers.process import exit_of
from nemesis.producers.sample import Block, sample_of
from nemesis.producers.setting import setting_of
from nemesis.schemas.codes import LogSource
from nemesis.schemas.observed import Observation
from nemesis.sim.jobs.job import Job
from nemesis.sim.jobs.ranks import RUNNING, Rank, pid_of
from nemesis.sim.jobs.recorder import missing, recorded
from nemesis.sim.telemetry.evidence import Evidence
from nemesis.sim.telemetry.stack_looks import StackLooks
from nemesis.sim.topology.cluster import SETTINGS, Cluster

MS: Final = 1_000_000


class Witness:
    """The eyes of one node, one life of its producer."""

    def __init__(
        self,
        cluster: Cluster,
        job: Job,
        origin: Origin,
        evidence: Evidence,
    ) -> None:
        self.observations: list[Observation] = []
        self._cluster: Final = cluster
        self.job: Job = job
        """Whose ranks run here."""
        self._evidence: Final = evidence
        self.origin: Final = origin
        self._kernel: Final = KernelLines(origin)
        self._period_ns: Final = cluster.cluster.sample_period_ms * MS
        self._dumped: set[tuple[int, int]] = set()
        self._stacks: Final = StackLooks(origin)

    @property
    def ranks(self) -> list[Rank]:
        """The ranks that run, or ran last, on this node."""
        return self.job.on_node(self.origin.node)

    def carried(self, now_ns: int) -> list[Observation]:
        """Take away what there is to send: what of it reaches the log now."""
        seen, self.observations = self.observations, []
        return self._evidence.arriving(seen, self.origin, now_ns)

    def describe(self, now_ns: int) -> None:
        """Tell what the node is made of."""
        node, cluster = self.origin.node, self._cluster
        self.observations.append(
            inventory_of(
                self.origin,
                now_ns,
                gpus=cluster.gpus_of(node),
                nics=cluster.nics_of(node),
                model=cluster.node.model,
                rack=cluster.rack_of(node),
                nvswitches=cluster.node.nvswitches,
            )
        )
        for name, value in SETTINGS.items():
            self.setting(f"node/{node}", name, value, now_ns)

    def setting(self, component: str, name: str, value: str, now_ns: int) -> None:
        """Something is set so, or is now."""
        self.observations.append(
            setting_of(self.origin, now_ns, component=component, name=name, value=value)
        )

    def printed(self, rank: int, source: LogSource, text: str, now_ns: int) -> None:
        """A rank's process, or its launcher, wrote a line."""
        job, pid = self.job.name, pid_of(rank)
        self.observations.append(
            log_line_of(self.origin, now_ns, source=source, text=text, job=job, rank=rank, pid=pid)
        )

    def kernel_line(self, text: str, priority: int, now_ns: int) -> None:
        """The node's kernel printed a line."""
        if self._evidence.has_kernel_log:
            self.observations += self._kernel.take(text, now_ns, priority=priority)

    def exited(self, rank: Rank, now_ns: int) -> None:
        """A rank's process ended, and nothing of it can run on."""
        self.observations.append(
            exit_of(
                self.origin,
                now_ns,
                job=self.job.name,
                rank=rank.number,
                pid=pid_of(rank.number),
                returncode=rank.returncode or 0,
                fenced=True,
                epoch=rank.epoch,
            )
        )

    def polled(self, now_ns: int, gpu: Block, nic: Block, host: Block, steps: Block) -> None:
        """The node's devices and ranks were read; what the kernel held back is told as well."""
        self.observations += self._kernel.flush(now_ns)
        if not self._evidence.polls():
            return
        self.observations.append(
            sample_of(
                self.origin,
                now_ns,
                period_ns=self._period_ns,
                gpu=gpu,
                nic=nic,
                host=host,
                steps=steps if len(steps) else None,
                job=self.job.name if len(steps) else "",
            )
        )

    def stated(self, now_ns: int, gpu: Block, nic: Block) -> None:
        """What samples leave out of the devices was read."""
        self.observations.append(device_state_of(self.origin, now_ns, gpu=gpu, nic=nic))

    def look(self, now_ns: int) -> None:
        """Take flight recorders and stacks where the job stalls."""
        if self.stalled(now_ns):
            self.dump(now_ns)
            there = [
                rank
                for rank in self.ranks
                if rank.stage == "running" and self._evidence.dumps(rank.number)
            ]
            self.observations += self._stacks.look(self.job, there, now_ns)

    def stalled(self, now_ns: int) -> bool:
        """Whether a rank waits for longer than any healthy step takes, or makes no step.

        Who is through with its own step waits in no collective of it, and has no next one to enter.
        """
        job, model = self.job, self.job.model
        limit_ns = model.stall_ns
        if not job.waits_longer(limit_ns, now_ns):
            return False
        numbers = [rank.number for rank in self.ranks]
        waits = (job.waiting_since_ns(number, now_ns) for number in numbers)
        if any(since is not None and now_ns - since > limit_ns for since in waits):
            return True
        began_ns = job.table.began_ns[numbers][job.table.stage[numbers] == RUNNING]
        return job.is_stalled and bool((now_ns - began_ns > limit_ns + model.step_ns).any())

    def dump(self, now_ns: int) -> None:
        """Let the ranks write their flight recorders, once a stall."""
        for rank in self.ranks:
            stall = (rank.epoch, rank.step)
            if stall in self._dumped or not self._evidence.dumps(rank.number):
                continue
            if rank.stage in ("running", "held"):
                dump = recorded(self.origin, self.job, rank.number, now_ns)
                self.observations.append(self._evidence.by_its_clock(dump))
            elif rank.stage in ("failed", "fenced") and rank.number in rank.members:
                self.observations.append(missing(self.origin, self.job, rank.number, now_ns))
        self._dumped |= {(rank.epoch, rank.step) for rank in self.ranks}
