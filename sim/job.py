"""The simulated job: data-parallel ranks that step together or not at all.

Pure: time comes in as an argument and compute times follow from the seed. Every step ends in one
all-reduce over the members of an epoch. It completes only when all of them run in that epoch, agree
on who the members are, stand at the same step and have arrived; so a dead rank stalls all, and a
membership that only some were told stalls as well. Completion is atomic: the survivors of a failure
stand at one common step. Durations are modelled, and everything made from them is "simulated".
"""

from bisect import insort
from collections.abc import Iterable
from random import Random
from typing import Final

import msgspec

from nemesis.schemas.plans import RankStage
from nemesis.sim.cluster import Cluster

MS: Final = 1_000_000
SPREAD_PER_MILLE: Final = 30  # compute times of healthy ranks differ by a few per cent
NEVER_NS: Final = 2**62
ARRIVALS_MAX: Final = 20  # what a recorder keeps of the past


class Rank(msgspec.Struct):
    """One rank's process."""

    number: int
    node: str
    """Where its process runs."""
    stage: RankStage = "running"
    epoch: int = 0
    members: frozenset[int] = frozenset()
    step: int = 0
    """The last step that it finished."""
    ready_ns: int = 0
    """When it arrives at the next collective."""
    step_ns: int = 0
    """How long the last step took."""
    completed_count: int = 0
    """Collectives that it finished in this process group."""
    arrivals: list[tuple[int, int]] = []
    """(collective, when it was enqueued), the last ones."""
    returncode: int | None = None


class StepDone(msgspec.Struct, frozen=True):
    """A step that all members finished."""

    epoch: int
    step: int
    at_ns: int
    world: int


class Job:
    """All ranks of one job, and the network between them."""

    def __init__(self, cluster: Cluster, seed: int, *, start_ns: int) -> None:
        self._model = cluster.job
        self._seed = seed
        members = frozenset(range(cluster.world))
        self.ranks: Final = {
            number: Rank(number, node, members=members)
            for node in cluster.job_nodes
            for number in cluster.ranks_of(node)
        }
        self._on_node: Final[dict[str, list[Rank]]] = {}
        for rank in self.ranks.values():
            self._on_node.setdefault(rank.node, []).append(rank)
        self.history: Final[list[StepDone]] = []
        self.restarts_count = 0
        """Processes that were started anew."""
        for rank in self.ranks.values():
            rank.ready_ns = start_ns + self._compute_ns(rank)

    def advance(self, now_ns: int) -> None:
        """Let ranks start, and complete every collective whose time has come."""
        for rank in self.ranks.values():
            if rank.stage == "starting" and rank.ready_ns <= now_ns:
                rank.stage = "running"
                rank.ready_ns += self._compute_ns(rank)
        while (due := self._due(now_ns)) is not None:
            self._complete(*due)

    def waiting_since_ns(self, number: int, now_ns: int) -> int | None:
        """When a running rank arrived at the collective that it waits in, or None."""
        rank = self.ranks[number]
        waits = rank.stage == "running" and rank.ready_ns <= now_ns
        return rank.ready_ns if waits else None

    def on_node(self, node: str) -> list[Rank]:
        """The ranks whose processes run, or ran last, on a node."""
        return list(self._on_node.get(node, ()))

    def stick(self, number: int) -> None:
        """The rank never arrives at a collective again."""
        self.ranks[number].ready_ns = NEVER_NS

    def kill(self, number: int, returncode: int) -> bool:
        """A process ends by itself; whether it was alive until now."""
        rank = self.ranks[number]
        if rank.stage in ("fenced", "failed", "left"):
            return False
        rank.stage, rank.returncode = "failed", returncode
        return True

    def fence(self, number: int) -> None:
        """Nothing of the rank can run on."""
        self.ranks[number].stage = "fenced"

    def leave(self, number: int) -> None:
        """The rank's process ends on request."""
        self.ranks[number].stage = "left"

    def hold(self, number: int) -> None:
        """Abort what the rank waits in and keep it at its last finished step."""
        rank = self.ranks[number]
        if rank.stage == "running":
            rank.stage = "held"

    def join(self, number: int, epoch: int, members: Iterable[int], now_ns: int) -> None:
        """A rank with its state in memory goes on in a new epoch."""
        rank = self.ranks[number]
        assert epoch > rank.epoch, f"rank {number} is in epoch {rank.epoch}, got {epoch}"
        rank.stage, rank.epoch, rank.members = "running", epoch, frozenset(members)
        # a new process group counts its collectives from zero
        rank.completed_count, rank.arrivals = 0, []
        rank.ready_ns = now_ns + self._model.shrink_ms * MS + self._compute_ns(rank)

    def start(
        self,
        number: int,
        node: str,
        epoch: int,
        members: Iterable[int],
        now_ns: int,
        *,
        step: int,
    ) -> None:
        """Start a rank's process anew at a step, with the state of a peer or a checkpoint."""
        rank = self.ranks[number]
        self._on_node[rank.node].remove(rank)
        rank.node = node
        insort(self._on_node.setdefault(node, []), rank, key=lambda each: each.number)
        rank.stage, rank.epoch, rank.members = "starting", epoch, frozenset(members)
        rank.step, rank.completed_count, rank.arrivals = step, 0, []
        rank.returncode = None
        rank.ready_ns = now_ns + self._model.start_ms * MS
        self.restarts_count += 1

    @property
    def step(self) -> int:
        """The newest step that a whole membership finished."""
        return self.history[-1].step if self.history else 0

    @property
    def checkpoint_step(self) -> int:
        """The newest step whose state lies in storage."""
        best = max((done.step for done in self.history), default=0)
        return best - best % self._model.checkpoint_steps

    @property
    def redone_count(self) -> int:
        """Steps that were finished more than once."""
        steps = [done.step for done in self.history]
        return len(steps) - len(set(steps))

    def _due(self, now_ns: int) -> tuple[list[Rank], int] | None:
        """The earliest collective that completes by now: its ranks and when."""
        arrived_ns = now_ns - self._model.allreduce_ms * MS
        seen: set[tuple[int, frozenset[int]]] = set()
        best: tuple[list[Rank], int] | None = None
        for rank in self.ranks.values():
            key = (rank.epoch, rank.members)
            if rank.stage != "running" or key in seen:
                continue
            seen.add(key)
            if any(self.ranks[number].ready_ns > arrived_ns for number in rank.members):
                continue
            group = [self.ranks[number] for number in sorted(rank.members)]
            together = all(
                each.stage == "running"
                and each.epoch == rank.epoch
                and each.members == rank.members
                and each.step == rank.step
                for each in group
            )
            if not together:
                continue
            at_ns = max(each.ready_ns for each in group) + self._model.allreduce_ms * MS
            if best is None or at_ns < best[1]:
                best = group, at_ns
        return best

    def _complete(self, group: list[Rank], at_ns: int) -> None:
        for rank in group:
            enqueued = (rank.completed_count + 1, rank.ready_ns)
            rank.arrivals = [*rank.arrivals[1 - ARRIVALS_MAX :], enqueued]
            rank.completed_count += 1
            rank.step += 1
            compute_ns = self._compute_ns(rank)
            rank.step_ns = compute_ns + self._model.allreduce_ms * MS
            rank.ready_ns = at_ns + compute_ns
        first = group[0]
        self.history.append(StepDone(first.epoch, first.step, at_ns, len(group)))

    def _compute_ns(self, rank: Rank) -> int:
        draw = Random(f"{self._seed}/{rank.number}/{rank.step}").randrange(SPREAD_PER_MILLE)
        return self._model.step_ms * MS * (1000 + draw) // 1000
