"""The jobs of a cell as they stand: how many ranks train, in which epoch, from which step."""

from typing import Any, Final

import msgspec

from nemesis.schemas.decided import RecoveryDecided
from nemesis.schemas.done import AttemptCompleted, MembershipReported
from nemesis.schemas.operated import JobEnded, JobSubmitted
from nemesis.schemas.printable import one_line

JOBS_MAX: Final = 200


class Job(msgspec.Struct):
    """One job."""

    name: str
    submitted: JobSubmitted
    nodes: set[str]
    spares: set[str]
    world: int
    epoch: int = 0
    step: int = 0
    ended: bool = False

    @property
    def world_submitted(self) -> int:
        """Ranks that it was submitted with."""
        return len(self.submitted.nodes) * self.submitted.ranks_per_node

    def document(self) -> dict[str, Any]:
        """As the page shows it."""
        return {
            "job": one_line(self.name),
            "world": self.world,
            "world_submitted": self.world_submitted,
            "epoch": self.epoch,
            "step": self.step,
            "nodes_count": len(self.nodes),
            "spares_count": len(self.spares),
            "submitted_ms": self.submitted.at_ns // 1_000_000,
        }


class Jobs:
    """Every job that has not ended."""

    def __init__(self) -> None:
        self.by_name: Final[dict[str, Job]] = {}
        self._decided: Final[dict[str, RecoveryDecided]] = {}

    def see(self, data: Any) -> set[str]:
        """Take note of a fact; nodes that belong to another job for it."""
        match data:
            case JobSubmitted():
                return self._submit(data)
            case JobEnded():
                job = self.by_name.pop(data.job, None)
                return set() if job is None else job.nodes | job.spares
            case RecoveryDecided():
                self._decided[data.decision] = data
                while len(self._decided) > JOBS_MAX:
                    del self._decided[next(iter(self._decided))]
            case AttemptCompleted():
                return self._completed(data)
            case MembershipReported() if data.job in self.by_name:
                job = self.by_name[data.job]
                job.epoch, job.world, job.step = data.epoch, data.world, data.step
        return set()

    def of_node(self, node: str) -> tuple[str, str]:
        """(job, role) of a node: working for it, its spare, or neither."""
        for job in self.by_name.values():
            if node in job.nodes:
                return one_line(job.name), "working"
            if node in job.spares:
                return one_line(job.name), "spare"
        return "", ""

    def decided(self, decision: str) -> RecoveryDecided | None:
        """The recovery of that name, if it was seen lately."""
        return self._decided.get(decision)

    def _submit(self, data: JobSubmitted) -> set[str]:
        before = self.by_name.pop(data.job, None)
        self.by_name[data.job] = Job(
            name=data.job,
            submitted=data,
            nodes=set(data.nodes),
            spares=set(data.spares),
            world=len(data.nodes) * data.ranks_per_node,
        )
        while len(self.by_name) > JOBS_MAX:
            del self.by_name[next(iter(self.by_name))]
        return {*data.nodes, *data.spares, *(before.nodes | before.spares if before else ())}

    def _completed(self, data: AttemptCompleted) -> set[str]:
        job = self.by_name.get(data.job)
        if job is None:
            return set()
        job.epoch = max(job.epoch, data.epoch)
        job.step = data.step or job.step
        decided = self.decided(data.decision)
        if decided is None or not decided.members:
            return set()
        job.world = data.world or decided.world
        joined, left = set(decided.joined_nodes), set(decided.nodes_out)
        job.nodes = (job.nodes | joined) - left
        job.spares -= joined | left
        return joined | left
