"""Where the ranks of a job stand inside a step, worked out when somebody asks, and kept."""

from typing import Final

import numpy as np

from nemesis.sim.jobs.crews import Crew, Crews
from nemesis.sim.jobs.inversions import enqueued_last, inverted
from nemesis.sim.jobs.layout import Layout, Ranks
from nemesis.sim.jobs.ranks import NEVER_NS, RankTable
from nemesis.sim.jobs.stall import Solver, Standing, merged, nothing_broken
from nemesis.sim.jobs.steps import STEPS_KEPT, StepTimes
from nemesis.sim.jobs.table import ProgramTable

KEPT_BYTES_MAX: Final = 256 * 2**20


class Standings:
    """Of one job."""

    def __init__(
        self,
        table: RankTable,
        layout: Layout,
        programs: ProgramTable,
        crews: Crews,
        *,
        microbatches: int,
        last_ns: int,
    ) -> None:
        self._table: Final = table
        self._layout: Final = layout
        self._programs: Final = programs
        self._crews: Final = crews
        self._last_ns: Final = last_ns
        self._solver: Final = Solver(layout, programs, microbatches)
        self._now: Standing | None = None
        self._past: Final[dict[tuple[int, int], Standing]] = {}
        bytes_each = 2 * 8 * programs.use.shape[1] * layout.world
        self.kept_count: Final = max(1, min(STEPS_KEPT, KEPT_BYTES_MAX // bytes_each))
        """Of finished steps, how many can be looked into without working them out again."""

    def forget(self) -> None:
        """A step began, or ranks or the network changed."""
        self._now = None

    def now(self) -> Standing:
        """How far each rank comes in the step that it is in."""
        if self._now is None:
            table = self._table
            if self._layout.is_plain:
                self._now = self._plain(table.ready_ns, NEVER_NS)
            else:
                parts = [
                    (table.crew == crew.number, self._solve(crew)) for crew in self._crews.working()
                ]
                self._now = merged(parts, self._programs.use.shape[1], self._layout.world)
        return self._now

    def of(self, times: StepTimes) -> Standing:
        """How the ranks came through a step that they finished."""
        key = times.done.epoch, times.done.at_ns
        if key not in self._past:
            while len(self._past) >= self.kept_count:
                del self._past[next(iter(self._past))]
            self._past[key] = self._worked_out(times)
        return self._past[key]

    def _worked_out(self, times: StepTimes) -> Standing:
        if self._layout.is_plain:
            return self._plain(times.began_ns + times.compute_ns, times.done.at_ns)
        broken = nothing_broken(self._layout, self._programs)
        broken.member[:] = False
        broken.member[sorted(times.done.members)] = True
        return self._solver.solve(times.began_ns, times.compute_ns, broken, self._last_ns)

    def enqueued_last(self, rank: int, standing: Standing, now_ns: int) -> int:
        """The last position of its program that a rank's host has enqueued; -1: none."""
        if self._layout.is_plain:
            # gradients are handed over as they come: its host is not ahead of its GPU
            return 0 if standing.arrived_ns[0, rank] <= now_ns else -1
        position = int((standing.done_ns[:, rank] <= now_ns).sum())
        at = self.inverted_at(rank, standing)
        if at >= 0:
            program = self._programs.programs[int(self._layout.stages[rank])]
            return enqueued_last(inverted(program, at), position)
        limit = int(self._programs.host_limit[self._layout.stages[rank], position])
        return min(limit, int(standing.host_last[rank]))

    def inverted_at(self, rank: int, standing: Standing) -> int:
        """Where a rank calls the next operation first, and waits in it; -1: nowhere."""
        strays = standing.strays[rank] and self._table.strays.get(rank) == "order"
        if not strays or self._layout.is_plain:
            return -1
        return int((standing.done_ns[:, rank] < NEVER_NS).sum())

    def _solve(self, crew: Crew) -> Standing:
        began_ns, compute_ns = self._table.began_ns, self._table.compute_ns
        return self._solver.solve(began_ns, compute_ns, self._crews.broken(crew), crew.last_ns)

    def _plain(self, arrived_ns: Ranks, done_ns: int) -> Standing:
        return Standing(
            arrived_ns=arrived_ns[None, :],
            done_ns=np.full((1, self._layout.world), done_ns, np.int64),
            host_last=np.full(self._layout.world, NEVER_NS, np.int64),
            strays=self._table.strays_ns < NEVER_NS,
        )
