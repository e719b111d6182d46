"""The ranks of a job as arrays, and a view of one of them."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from nemesis.schemas.plans import RankStage
from nemesis.sim.jobs.layout import Ranks
from nemesis.sim.jobs.rings import Place

STAGES: Final[tuple[RankStage, ...]] = (
    "starting",
    "running",
    "held",
    "fenced",
    "left",
    "failed",
)
STARTING, RUNNING, HELD, FENCED, LEFT, FAILED = range(len(STAGES))
NEVER_NS: Final = 2**62


def pid_of(rank: int) -> int:
    """The process id of a rank on its node."""
    return 40_000 + rank


class RankTable:
    """Everything that is known of each rank; arrays over ranks, times in ns."""

    def __init__(self, places: list[Place], start_ns: int) -> None:
        world = len(places)
        self.places: Final = places
        """Where its process runs."""
        self.stage: Final = np.full(world, RUNNING, np.int8)
        self.crew: Final[Ranks] = np.zeros(world, np.int64)
        """Which of `crews` the rank was told that it belongs to."""
        self.crews: Final[list[tuple[int, frozenset[int]]]] = []
        """Epochs and their members: two ranks may have been told different ones."""
        self._crew_numbers: Final[dict[tuple[int, frozenset[int]], int]] = {}
        self.crew_of(0, frozenset(range(world)))
        self.step: Final[Ranks] = np.zeros(world, np.int64)
        """The last step that it finished."""
        self.began_ns: Final[Ranks] = np.full(world, start_ns, np.int64)
        """When the step that it is in began."""
        self.compute_ns: Final[Ranks] = np.zeros(world, np.int64)
        """How long it computes in that step."""
        self.ready_ns: Final[Ranks] = np.full(world, NEVER_NS, np.int64)
        """When it has computed all of it; before it starts: when it starts."""
        self.step_ns: Final[Ranks] = np.zeros(world, np.int64)
        """How long the last step took, waiting for the others included."""
        self.own_ns: Final[Ranks] = np.zeros(world, np.int64)
        """Of it: its own compute."""
        self.data_wait_ns: Final[Ranks] = np.zeros(world, np.int64)
        """Of its own time: for the next batch."""
        self.save_ns: Final[Ranks] = np.zeros(world, np.int64)
        """Of its own time: writing a checkpoint."""
        self.due_data_ns: Final[Ranks] = np.zeros(world, np.int64)
        self.due_save_ns: Final[Ranks] = np.zeros(world, np.int64)
        """The same of the step that it is in."""
        self.completed_count: Final[Ranks] = np.zeros(world, np.int64)
        """Steps that it finished in this process group."""
        self.stopped_ns: Final[Ranks] = np.full(world, NEVER_NS, np.int64)
        """When its GPU stopped, or its process ended."""
        self.halted_ns: Final[Ranks] = np.full(world, NEVER_NS, np.int64)
        """When its host enqueued the last time."""
        self.blind_ns: Final[Ranks] = np.full(world, NEVER_NS, np.int64)
        """From when on its watchdog sees nothing complete: its CUDA context is in error."""
        self.strays_ns: Final[Ranks] = np.full(world, NEVER_NS, np.int64)
        self.strays: Final[dict[int, str]] = {}
        """In what its next collective differs from that of the others: operation, size, dtype or
        order; or absent: it never calls it."""
        self.returncodes: Final[dict[int, int]] = {}
        self._alone: Final[dict[int, tuple[int, str]]] = {}
        """After which step a rank last did something alone, and what."""

    def delay(self, rank: int, delay_ns: int, waits_for: str) -> None:
        """The step that a rank begins takes so much longer, which its own timers may book."""
        self.compute_ns[rank] += delay_ns
        self._alone[rank] = int(self.step[rank]), waits_for
        if waits_for == "data":
            self.due_data_ns[rank] = delay_ns
        elif waits_for == "save":
            self.due_save_ns[rank] = delay_ns

    def does_alone(self, rank: int) -> str | None:
        """What a rank does in the step that it is in and the others do not; None: nothing."""
        if self.due_save_ns[rank]:
            return "save"
        step, what = self._alone.get(rank, (-1, ""))
        return what if step == self.step[rank] else None

    def inverts(self) -> NDArray[np.bool_]:
        """For each rank: whether it calls its groups in another order than the others."""
        found = np.zeros(len(self.places), np.bool_)
        found[[rank for rank, how in self.strays.items() if how == "order"]] = True
        return found

    def crew_of(self, epoch: int, members: frozenset[int]) -> int:
        """The place in `crews` of an epoch and its members."""
        key = (epoch, members)
        if key not in self._crew_numbers:
            self._crew_numbers[key] = len(self.crews)
            self.crews.append(key)
        return self._crew_numbers[key]


class Rank:
    """One rank's process, as it is now."""

    __slots__ = ("_table", "number")

    def __init__(self, table: RankTable, number: int) -> None:
        self._table = table
        self.number = number

    @property
    def node(self) -> str:
        """Where its process runs."""
        return self._table.places[self.number][0]

    @property
    def stage(self) -> RankStage:
        """What has become of its process."""
        return STAGES[int(self._table.stage[self.number])]

    @property
    def epoch(self) -> int:
        """The membership that it is in."""
        return self._table.crews[int(self._table.crew[self.number])][0]

    @property
    def members(self) -> frozenset[int]:
        """Who else is, as it was told."""
        return self._table.crews[int(self._table.crew[self.number])][1]

    @property
    def step(self) -> int:
        """The last step that it finished."""
        return int(self._table.step[self.number])

    @property
    def ready_ns(self) -> int:
        """When it has computed all of its step."""
        return int(self._table.ready_ns[self.number])

    @property
    def completed_count(self) -> int:
        """Steps that it finished in this process group."""
        return int(self._table.completed_count[self.number])

    @property
    def returncode(self) -> int | None:
        """Of a process that ended by itself."""
        return self._table.returncodes.get(self.number)
