"""The simulated job: data-parallel ranks that step together or not at all.

Pure: time comes in as an argument and compute times follow from the seed. Every step ends in one
all-reduce over the members of an epoch. It completes only when all of them run in that epoch, agree
on who the members are, stand at the same step, call the same, have arrived and can be reached; so a
dead rank stalls all, and a membership that only some were told stalls as well. Completion is
atomic: the survivors of a failure stand at one common step. Slowness and cut links belong to places
(a node, a GPU and its NIC), not to ranks: who moves away leaves them behind. Durations are
modelled, and everything made from them is "simulated".
"""

from bisect import insort
from collections.abc import Iterable
from random import Random
from typing import Final

import msgspec

from nemesis.schemas.plans import RankStage
from nemesis.sim.topology.cluster import Cluster

MS: Final = 1_000_000
SPREAD_PER_MILLE: Final = 30  # compute times of healthy ranks differ by a few per cent
NEVER_NS: Final = 2**62
ARRIVALS_MAX: Final = 20  # what a recorder keeps of the past


def pid_of(rank: int) -> int:
    """The process id of a rank on its node."""
    return 40_000 + rank


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
    began_ns: int = 0
    """When the step that it is in began."""
    step_ns: int = 0
    """How long the last step took, waiting for the others included."""
    own_ns: int = 0
    """Of it: until the rank entered the step's collective."""
    data_wait_ns: int = 0
    """Of own_ns: for the next batch."""
    save_ns: int = 0
    """Of own_ns: writing a checkpoint."""
    due: dict[str, int] = {}
    """How long it waits, for what, in the step that it is in."""
    completed_count: int = 0
    """Collectives that it finished in this process group."""
    arrivals: list[tuple[int, int]] = []
    """(collective, when it was enqueued), the last ones."""
    strays: str = ""
    """In what its next collective differs from that of the others: operation, size or order; or
    absent: it never calls it."""
    returncode: int | None = None


class StepDone(msgspec.Struct, frozen=True):
    """A step that all members finished."""

    epoch: int
    step: int
    at_ns: int
    members: frozenset[int]

    @property
    def world(self) -> int:
        """How many ranks."""
        return len(self.members)


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
        self._width: Final = cluster.ranks_per_node
        self._slow: Final[dict[tuple[str, int], int]] = {}
        """Per mille of a place: GPU `index` of a node, or -1 for all of it, unevenly."""
        self._delayed: Final[dict[int, tuple[int, str]]] = {}
        self._congested: Final[dict[tuple[str, int], int]] = {}
        """Per mille by which a collective takes longer that crosses a place's NIC."""
        self.readings: Final[dict[int, dict[str, int]]] = {}
        """What a rank's training code reads otherwise than all others', by channel."""
        self._cut: Final[set[tuple[str, int]]] = set()
        self._mended_ns = start_ns
        for rank in self.ranks.values():
            rank.began_ns = start_ns
            rank.ready_ns = start_ns + self._compute_ns(rank)

    def advance(self, now_ns: int) -> None:
        """Let ranks start, and complete every collective whose time has come."""
        for rank in self.ranks.values():
            if rank.stage == "starting" and rank.ready_ns <= now_ns:
                rank.stage = "running"
                rank.began_ns = rank.ready_ns
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

    def stray(self, number: int, differs_in: str) -> None:
        """The rank calls another collective than the others, and does so again after a rejoin."""
        rank = self.ranks[number]
        rank.strays = differs_in
        if differs_in == "absent":
            rank.ready_ns = NEVER_NS

    def delay(self, number: int, delay_ns: int, waits_for: str = "") -> None:
        """The rank's next step takes so much longer: for data, to save, or nobody knows."""
        self._delayed[number] = delay_ns, waits_for

    def congest(self, node: str, index: int, per_mille: int) -> None:
        """Collectives that cross a place's NIC take this much longer from here on; 0: as ever."""
        self._congested[node, index] = per_mille

    def checksum(self, step: int) -> int:
        """Of the parameters after a step, equal over all replicas."""
        return (self._seed * 0x9E3779B97F4A7C15 + step * 0xBF58476D1CE4E5B9) >> 1 & (2**62 - 1)

    def slow(self, node: str, index: int, per_mille: int) -> None:
        """Compute at a place takes this much longer from the next step on; index -1: the node."""
        self._slow[node, index] = per_mille

    def cut(self, node: str, index: int) -> None:
        """The rank at a place reaches no other node."""
        self._cut.add((node, index))

    def mend(self, node: str, index: int, now_ns: int) -> None:
        """It reaches them again; what waited is sent again."""
        self._cut.discard((node, index))
        self._mended_ns = now_ns

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
        rank.began_ns = now_ns + self._model.shrink_ms * MS
        rank.ready_ns = rank.began_ns + self._compute_ns(rank)
        if rank.strays == "absent":
            rank.ready_ns = NEVER_NS

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
        rank.returncode, rank.strays = None, ""
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
                and not each.strays
                and (each.node, each.number % self._width) not in self._cut
                for each in group
            )
            if not together:
                continue
            began_ns = max(self._mended_ns, *(each.ready_ns for each in group))
            at_ns = began_ns + self._allreduce_ns(group)
            if at_ns <= now_ns and (best is None or at_ns < best[1]):
                best = group, at_ns
        return best

    def _allreduce_ns(self, group: list[Rank]) -> int:
        """As long as its slowest hop takes."""
        worst = 0
        if self._congested:
            places = ((each.node, each.number % self._width) for each in group)
            worst = max(self._congested.get(place, 0) for place in places)
        return self._model.allreduce_ms * MS * (1000 + worst) // 1000

    def _complete(self, group: list[Rank], at_ns: int) -> None:
        for rank in group:
            enqueued = (rank.completed_count + 1, rank.ready_ns)
            rank.arrivals = [*rank.arrivals[1 - ARRIVALS_MAX :], enqueued]
            rank.completed_count += 1
            rank.step += 1
            rank.step_ns = at_ns - rank.began_ns
            rank.own_ns = rank.ready_ns - rank.began_ns
            rank.data_wait_ns = rank.due.get("data", 0)
            rank.save_ns = rank.due.get("save", 0)
            rank.began_ns = at_ns
            rank.ready_ns = at_ns + self._compute_ns(rank)
        first = group[0]
        self.history.append(StepDone(first.epoch, first.step, at_ns, first.members))

    def _compute_ns(self, rank: Rank) -> int:
        random = Random(f"{self._seed}/{rank.number}/{rank.step}")
        draw = random.randrange(SPREAD_PER_MILLE)
        draw += self._slow.get((rank.node, rank.number % self._width), 0)
        if of_host := self._slow.get((rank.node, -1), 0):
            draw += of_host * random.randrange(700, 1_300) // 1000
        delay_ns, waits_for = self._delayed.pop(rank.number, (0, ""))
        rank.due = {waits_for: delay_ns}
        return self._model.step_ms * MS * (1000 + draw) // 1000 + delay_ns
