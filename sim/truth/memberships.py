"""What the ledger knows of a job's progress: first steps of its epochs, and those after stalls."""

from functools import lru_cache
from typing import Final

from nemesis.schemas.rank_ranges import format_ranks
from nemesis.sim.jobs.job import Job
from nemesis.sim.jobs.steps import StepDone
from nemesis.sim.truth.ledger import MembershipFormed


class Memberships:
    """Watches one job."""

    def __init__(self, job: Job) -> None:
        self._job: Final = job
        self._epochs_seen: Final[set[int]] = set()
        self._steps_seen_count = 0

    def formed(self) -> list[MembershipFormed]:
        """Since the last call."""
        entries: list[MembershipFormed] = []
        history = self._job.history
        for at in range(self._steps_seen_count, len(history)):
            done = history[at]
            waited_ns = done.at_ns - history[at - 1].at_ns if at else 0
            if done.epoch not in self._epochs_seen or waited_ns > self._job.model.stall_ns:
                self._epochs_seen.add(done.epoch)
                entries.append(self._entry(done, waited_ns))
        self._steps_seen_count = len(history)
        return entries

    def standing(self) -> MembershipFormed | None:
        """How the job stands after its newest step; None before the first."""
        return self._entry(self._job.history[-1]) if self._job.history else None

    def _entry(self, done: StepDone, waited_ns: int = 0) -> MembershipFormed:
        return MembershipFormed(
            at_ns=done.at_ns,
            epoch=done.epoch,
            step=done.step,
            world=done.world,
            members=_spelled(done.members),
            since_last_step_ns=waited_ns,
            redone_count=self._job.redone_count,
            restarts_count=self._job.restarts_count,
            job=self._job.name,
        )


@lru_cache(maxsize=16)
def _spelled(members: frozenset[int]) -> str:
    """Asked many times a second of the same ranks."""
    return format_ranks(members)
