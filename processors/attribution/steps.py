"""Which ranks keep the others waiting, step after step, and when a job last got on.

Why: in a synchronous job all steps are equally long; only the time until a rank entered the step's
collective tells who was late. How: when nearly every rank has told of a new step, the ranks are
compared with their median; who is far above it in most of the latest rounds is slow. One slow step
is nothing, and a rank that has been slower from the start may be made so (a pipeline's stages
differ); so each rank is compared with itself too (skew.py). Not here: why (slow_findings.py).

A tenth above the median is what ByteDance calls a straggler (arXiv 2505.05713); most slow spells of
single GPUs and hosts last minutes (FALCON, arXiv 2410.12588), so some rounds may be waited for.
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from nemesis.processors.attribution import skew
from nemesis.processors.attribution.inventory import Inventory, JobPlaces
from nemesis.schemas.channels import ABSENT, STEP_CHANNELS
from nemesis.schemas.facts import Fact

SLOW_PPM: Final = 50_000  # above the median: what costs the job less is not worth a name
DATA_PPM: Final = 20_000  # the same where a rank's own clock says that it waits for data: no noise
SLOW_NS_MIN: Final = 10_000_000  # the noise of a host's scheduler
SPREADS: Final = 4  # of the ranks' own spread (median absolute deviation): that is no chance
ROUNDS_KEPT: Final = 8
SLOW_ROUNDS_MIN: Final = 5  # of those
SUSTAINED_NS: Final = 8_000_000_000  # a checkpoint, a garbage collection and a retry are shorter
TOLD_PPM: Final = 900_000  # of the ranks: some nodes are always just being polled
RANKS_MIN: Final = 3  # of two, nobody is the odd one
SUFFERS_PPM: Final = 1_100_000  # of the shortest step; steps of one job differ by 1 to 3 %
STILL_STEPS: Final = 3
NEW_PER_MILLE: Final = 50  # above its usual time: what a rank must rise by to have become slow
CLOCK_ERROR_NS: Final = 10_000_000  # NTP within a site
# torchrun looks at its workers each 100 ms (torch.distributed.elastic, monitor_interval), twice
EXIT_SEEN_NS: Final = 200_000_000
WORLD_MAX: Final = 1 << 20
STEPS_MAX: Final = 100_000  # between two polls; times STEP_NS_MAX it stays within 63 bits
STEP_NS_MAX: Final = 3_600_000_000_000  # longer is nobody's step

Longs = NDArray[np.int64]
_INT64: Final = np.dtype("<i8")
_RANK, _STEP, _STEP_NS, _OWN_NS = (
    STEP_CHANNELS.index(name) for name in ("rank", "step", "step_ns", "own_ns")
)
_READ: Final = [_RANK, _STEP, _STEP_NS, _OWN_NS]
_WIDTH: Final = _OWN_NS + 1  # of the channels up to the last that is read here
_ROUNDS_MASK: Final = (1 << ROUNDS_KEPT) - 1


class SlowRank(msgspec.Struct, frozen=True, array_like=True):
    """A rank that others wait for, round after round."""

    rank: int
    own_ns: int
    median_ns: int
    since_ns: int
    """Log time of its first slow round."""
    is_new: bool
    """It was not always the slower one."""


class Lateness(msgspec.Struct, array_like=True):
    """What is remembered of a rank that was slow in one of the latest rounds."""

    since_ns: int
    rounds: int = 0
    """A bit a round, the latest lowest: 1 where it was slow."""
    own_ns: int = 0
    is_new: bool = False
    """It was slower than it usually is, in the latest round in which it was slow."""


class JobSteps(msgspec.Struct):
    """One job: integers by rank, and those that were slow lately."""

    step: bytearray
    """int64: the last step that each rank told of, ABSENT before the first."""
    own_ns: bytearray
    """int64: of that step."""
    told: bytearray
    """int8: 1 for a step that is new since the last round."""
    polled_ns: bytearray
    """int64: when each rank was last seen, by its node's clock; 0 before the first time."""
    usual: skew.Usual
    """Of own_ns."""
    median_ns: int = 0
    late: dict[int, Lateness] = {}
    advanced_ns: int = 0
    """When the job last finished a step, at the latest, by its nodes' clocks."""
    surely_ns: int = 0
    """The same at the earliest: a step that is new finished after its rank's poll before."""
    step_ns: int = 0
    """How long a step took."""
    period_ns: int = 0
    """How often its nodes are polled."""
    least_ns: int = 0
    """How long its shortest step took."""
    waiting_ns: int = 0
    """When its ranks entered the collective that they were last seen stuck in, by recorders."""


class Steps(msgspec.Struct):
    """All jobs."""

    jobs: dict[str, JobSteps] = {}

    def take(self, facts: Sequence[Fact], inventory: Inventory) -> None:
        """Samples of different nodes, in the order of the log."""
        by_job: dict[str, list[Fact]] = {}
        for fact in facts:
            if fact.data.step_count and not fact.late and fact.data.job in inventory.jobs:
                by_job.setdefault(fact.data.job, []).append(fact)
        for name, own in by_job.items():
            job = self.jobs.get(name)
            if job is None:
                job = self.jobs[name] = _job_of(inventory.jobs[name].world)
            _take(job, own)

    def close_round(
        self, now_ns: int, inventory: Inventory, waits_of: Callable[[str, int], tuple[Longs, Longs]]
    ) -> None:
        """Compare the ranks of jobs of which nearly all have told of a new step.

        `waits_of`: of a job of so many ranks, how long each says that it waited in its last step,
        for data and for a save.
        """
        for name, job in self.jobs.items():
            places = inventory.jobs.get(name)
            told = np.frombuffer(job.told, np.int8)
            count = int(told.sum())
            if places is None or count < RANKS_MIN:
                continue
            if count * 1_000_000 >= (places.world - len(places.gone)) * TOLD_PPM:
                _close(job, told, places, now_ns, waits_of(name, len(told)))

    def is_watched(self, job: str) -> bool:
        """Whether a rank of the job was slow lately, so that causes are looked for."""
        steps = self.jobs.get(job)
        return steps is not None and bool(steps.late)

    def slow_ranks(self, job: str, now_ns: int) -> list[SlowRank]:
        """Those that are slow and stay so, by rank."""
        steps = self.jobs[job]
        return [
            SlowRank(
                rank,
                each.own_ns,
                steps.median_ns,
                each.since_ns,
                each.is_new,
            )
            for rank, each in sorted(steps.late.items())
            if each.rounds.bit_count() >= SLOW_ROUNDS_MIN and now_ns - each.since_ns >= SUSTAINED_NS
        ]

    def has_got_on_since(self, job: str, at_ns: int) -> bool:
        """Whether the job finished a step after that time.

        A poll that was missed makes the next one show a step late: what counts is the poll before.
        """
        steps = self.jobs.get(job)
        return steps is not None and steps.surely_ns > at_ns + 2 * CLOCK_ERROR_NS

    def stood_still_before(self, job: str, at_ns: int, error_ns: int) -> bool:
        """Whether the job had stopped already when something happened at that time.

        Only worth asking once its nodes were polled after it.
        """
        steps = self.jobs.get(job)
        if steps is None or not steps.step_ns:
            return False
        error_ns = CLOCK_ERROR_NS + max(error_ns, CLOCK_ERROR_NS)
        late_ns = steps.step_ns // 2 + EXIT_SEEN_NS + error_ns
        if _waits_still(steps) and at_ns - steps.waiting_ns > late_ns:
            return True  # who was to enter it as well was half a step late, or had entered it
        spared_ns = steps.step_ns * 3 // 2 + steps.period_ns // 10
        return at_ns - steps.advanced_ns > spared_ns + error_ns

    def may_get_on(self, job: str, now_ns: int) -> bool:
        """Whether it is not yet known that the job stands still: a step may only not be told."""
        steps = self.jobs.get(job)
        if steps is None:
            return False
        waited_ns = STILL_STEPS * steps.step_ns + 2 * steps.period_ns
        return not steps.step_ns or now_ns - steps.advanced_ns <= waited_ns

    def stands(self, job: str, now_ns: int) -> bool:
        """Whether it is known that the job stands still."""
        steps = self.jobs.get(job)
        return steps is not None and bool(steps.step_ns) and not self.may_get_on(job, now_ns)

    def suffers(self, job: str, now_ns: int) -> bool:
        """Whether a job stands still, or takes a tenth longer than at its fastest."""
        steps = self.jobs.get(job)
        if steps is None or not steps.step_ns:
            return False
        still_ns = now_ns - steps.advanced_ns - steps.period_ns
        is_slow = steps.step_ns * 1_000_000 > steps.least_ns * SUFFERS_PPM
        return is_slow or still_ns > STILL_STEPS * steps.step_ns + SUSTAINED_NS

    def wait(self, job: str, since_ns: int) -> None:
        """Flight recorders show that the job's ranks wait in a collective since then."""
        steps = self.jobs.get(job)
        if steps is not None and not _waits_still(steps):
            steps.waiting_ns = since_ns

    def regroup(self, job: str) -> None:
        """The job goes on in another membership: who is slow shows anew, when it stopped stays."""
        steps = self.jobs.get(job)
        if steps is not None:
            size = len(steps.told)
            steps.told, steps.usual, steps.late = bytearray(size), skew.usual_of(size), {}

    def forget(self, job: str) -> None:
        """The job is over, or another one of its name begins."""
        self.jobs.pop(job, None)


def _waits_still(steps: JobSteps) -> bool:
    """Whether no step was finished since recorders showed the ranks waiting."""
    waited_ns = steps.waiting_ns + steps.step_ns + steps.period_ns
    return bool(steps.waiting_ns) and steps.advanced_ns <= waited_ns


def _job_of(world: int) -> JobSteps:
    size = min(world, WORLD_MAX)
    return JobSteps(
        step=bytearray(np.full(size, ABSENT, np.int64).tobytes()),
        own_ns=bytearray(8 * size),
        told=bytearray(size),
        polled_ns=bytearray(8 * size),
        usual=skew.usual_of(size),
    )


def _take(job: JobSteps, facts: Sequence[Fact]) -> None:
    sound = [fact for fact in facts if _is_sound(fact)]
    if not sound:
        return
    table = _columns(sound)
    rank, step, *_ = table
    known = (rank >= 0) & (rank < len(job.told)) & (step >= 0)
    if not known.all():
        table = table[:, known]
    if len(sound) > 1 and _are_some_equal(table[0], len(job.told)):
        # two nodes speak for one rank: the later one counts, as if each had been read at once
        for fact in sound:
            _take(job, [fact])
        return
    _take_columns(job, table)


def _are_some_equal(ranks: Longs, world: int) -> bool:
    there = np.zeros(world, np.bool_)
    there[ranks] = True
    return bool(np.count_nonzero(there) < len(ranks))


def _is_sound(fact: Fact) -> bool:
    count, size = fact.data.step_count, len(fact.data.steps)
    return bool(size % (8 * count) == 0 and size >= 8 * count * _WIDTH)


def _columns(facts: Sequence[Fact]) -> Longs:
    """[column, rank] of all samples: _READ, and the time and the period of their polls."""
    blocks = [fact.data.steps for fact in facts]
    counts = [fact.data.step_count for fact in facts]
    widths = {len(block) // (8 * count) for block, count in zip(blocks, counts, strict=True)}
    if len(widths) > 1:
        blocks = [  # a newer producer has channels of which nothing is known here
            np.frombuffer(block, _INT64).reshape(count, -1)[:, :_WIDTH].tobytes()
            for block, count in zip(blocks, counts, strict=True)
        ]
        widths = {_WIDTH}
    whole = np.frombuffer(b"".join(blocks), _INT64).reshape(-1, widths.pop())
    table = np.empty((len(_READ) + 2, len(whole)), np.int64)
    for at, column in enumerate(_READ):
        table[at] = whole[:, column]
    polled = [(fact.at_ns, min(fact.data.period_ns, STEP_NS_MAX)) for fact in facts]
    table[len(_READ) :] = np.repeat(np.array(polled, np.int64).T, counts, axis=1)
    return table


def _take_columns(job: JobSteps, table: Longs) -> None:
    """[column, rank] of different ranks, or of one sample."""
    step, own = np.frombuffer(job.step, np.int64), np.frombuffer(job.own_ns, np.int64)
    polled = np.frombuffer(job.polled_ns, np.int64)
    rank, now, _, _, at_ns, _ = table
    seen_ns, before = polled[rank], step[rank]
    polled[rank] = np.maximum(seen_ns, at_ns)
    is_new = before != now
    if not is_new.any():
        return
    if not is_new.all():
        table, seen_ns, before = table[:, is_new], seen_ns[is_new], before[is_new]
    rank, now, step_ns, own_ns, at_ns, period_ns = table
    step_ns = np.minimum(np.maximum(step_ns, 0), STEP_NS_MAX)
    # a job that went on until it was polled finished as many steps as fit into the time since the
    # last poll; one that finished less than half of them stopped about so many steps after that
    since_ns = np.where(seen_ns > 0, np.minimum(seen_ns, at_ns), at_ns - period_ns)
    finished = np.minimum(np.maximum(now - before, 0), STEPS_MAX) + 1
    went_on = (before == ABSENT) | (finished * step_ns * 2 >= at_ns - since_ns)
    last_ns = np.where(went_on, at_ns, np.minimum(at_ns, since_ns + finished * step_ns))
    job.advanced_ns = max(job.advanced_ns, int(last_ns.max()))
    job.surely_ns = max(job.surely_ns, int(since_ns.max()))
    job.step_ns, job.period_ns = int(step_ns[-1]), int(period_ns[-1])
    least_ns = int(step_ns[step_ns > 0].min(initial=STEP_NS_MAX))
    job.least_ns = min(job.least_ns or least_ns, least_ns)
    step[rank] = now
    timed = own_ns > 0
    own[rank[timed]] = own_ns[timed]
    np.frombuffer(job.told, np.int8)[rank[timed]] = 1


def _close(
    job: JobSteps,
    told: NDArray[np.int8],
    places: JobPlaces,
    now_ns: int,
    waits_ns: tuple[Longs, Longs],
) -> None:
    """One round: who is far above the median.

    That a rank is late by what it timed itself as waiting is no chance, however much all scatter.
    """
    ranks = told.nonzero()[0]
    own = np.frombuffer(job.own_ns, np.int64)[ranks]
    middle = (len(ranks) - 1) // 2
    median = int(np.sort(own)[middle])
    spread = int(np.sort(np.abs(own - median))[middle])
    late_ns, least_ns = own - median, max(SLOW_NS_MIN, median * SLOW_PPM // 1_000_000)
    job.median_ns = median
    data_ns, save_ns = (each[ranks] for each in waits_ns)
    limit_ns = np.full(len(ranks), max(least_ns, SPREADS * spread))
    limit_ns[2 * (data_ns + save_ns) >= late_ns] = least_ns
    limit_ns[2 * data_ns >= late_ns] = max(SLOW_NS_MIN, median * DATA_PPM // 1_000_000)
    slow = late_ns > limit_ns
    rise = skew.rise_of(job.usual, ranks, own)
    new = skew.stands_out(job.usual, ranks, rise, NEW_PER_MILLE)
    skew.learn(job.usual, ranks, own, rise, slow & new)
    shown = zip(ranks[slow].tolist(), own[slow].tolist(), new[slow].tolist(), strict=True)
    _remember(job, set(ranks.tolist()), list(shown), now_ns)
    told[:] = 0
    for rank in places.gone:
        job.late.pop(rank, None)


def _remember(
    job: JobSteps, told: set[int], slow: Sequence[tuple[int, int, bool]], now_ns: int
) -> None:
    """Shift a bit into the history of every rank that has one, or gets one now."""
    for rank in [rank for rank in job.late if rank in told]:
        job.late[rank].rounds = job.late[rank].rounds << 1 & _ROUNDS_MASK
    for rank, own_ns, is_new in slow:
        each = job.late.setdefault(rank, Lateness(now_ns))
        each.rounds |= 1
        each.own_ns, each.is_new = own_ns, is_new
    for rank in [rank for rank, each in job.late.items() if not each.rounds]:
        del job.late[rank]
