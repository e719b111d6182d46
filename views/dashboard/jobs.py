"""The jobs of a cell as they stand: how many ranks train, in which epoch, from which step."""

from collections import deque
from typing import Any, Final

import msgspec

from nemesis.schemas.decided import RecoveryDecided
from nemesis.schemas.done import AttemptCompleted, MembershipReported
from nemesis.schemas.inferred import GoodputAccounted
from nemesis.schemas.operated import JobEnded, JobSubmitted
from nemesis.schemas.printable import one_line
from nemesis.schemas.scheduled import JobPlaced, begun

JOBS_MAX: Final = 200
ACCOUNTS_MAX: Final = 1440  # one a minute: a day
_NS_PER_MS: Final = 1_000_000


class Job(msgspec.Struct):
    """One job."""

    name: str
    submitted: JobSubmitted
    nodes: set[str]
    spares: set[str]
    world: int
    epoch: int = 0
    step: int = 0
    accounts: deque[GoodputAccounted] = msgspec.field(
        default_factory=lambda: deque(maxlen=ACCOUNTS_MAX)
    )

    @property
    def world_submitted(self) -> int:
        """Ranks that it was submitted with."""
        return len(self.submitted.node_names) * self.submitted.ranks_per_node

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
            "submitted_ms": self.submitted.at_ns // _NS_PER_MS,
            "account": _account(self.accounts[-1]) if self.accounts else None,
        }

    def course(self) -> list[dict[str, Any]]:
        """Where the time between two accounts went, in the order of the accounts, in ms."""
        spans = []
        before: dict[str, int] = {}
        for account in self.accounts:
            parts = _parts(account)
            spans.append(
                {
                    "until_ms": account.until_ns // _NS_PER_MS,
                    "parts": {k: max(0, v - before.get(k, 0)) for k, v in parts.items()},
                }
            )
            before = parts
        return spans[1:] or spans


class Jobs:
    """Every job that has not ended."""

    def __init__(self) -> None:
        self.by_name: Final[dict[str, Job]] = {}
        self._decided: Final[dict[str, RecoveryDecided]] = {}

    def see(self, data: Any) -> set[str]:
        """Take note of a fact; nodes that belong to another job for it."""
        match data:
            case JobSubmitted() | JobPlaced():
                begins = begun(data)
                return self._submit(begins) if begins is not None else set()
            case JobEnded():
                job = self.by_name.pop(data.job, None)
                return set() if job is None else job.nodes | job.spares
            case RecoveryDecided():
                self._decided[data.decision] = data
                while len(self._decided) > JOBS_MAX:
                    del self._decided[next(iter(self._decided))]
            case AttemptCompleted():
                return self._completed(data)
            case GoodputAccounted() if data.job in self.by_name:
                job = self.by_name[data.job]
                job.accounts.append(data)
                job.step = max(job.step, data.step)
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
            nodes=set(data.node_names),
            spares=set(data.spares),
            world=len(data.node_names) * data.ranks_per_node,
        )
        while len(self.by_name) > JOBS_MAX:
            del self.by_name[next(iter(self.by_name))]
        return {*data.node_names, *data.spares, *(before.nodes | before.spares if before else ())}

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


def _parts(account: GoodputAccounted) -> dict[str, int]:
    """Parts of the time in ms, by name."""
    parts = account.parts
    return {
        name.removesuffix("_ns"): getattr(parts, name) // _NS_PER_MS
        for name in parts.__struct_fields__
    }


def _account(account: GoodputAccounted) -> dict[str, Any]:
    # time since the last step counts: a job that stands still is not productive
    wall_ns = account.until_ns - account.since_ns
    return {
        "since_ms": account.since_ns // _NS_PER_MS,
        "until_ms": account.until_ns // _NS_PER_MS,
        "productive_ppm": account.parts.productive_ns * 1_000_000 // max(1, wall_ns),
        "parts": _parts(account),
        "redone_count": account.redone_count,
        "step_ms": account.step_ns // _NS_PER_MS,
    }
