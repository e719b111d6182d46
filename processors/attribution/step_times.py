"""Which rank keeps a job waiting, from step times alone: where nobody polls clocks or hosts.

Why: a table of step times is often all that there is of a slow job. How: step by step each rank is
compared with what it usually takes (skew.py); the few that rose by a fifth, and would let the job
be a fifth faster if they kept up, in five of eight steps, hold it up. If many rose together, it is
nobody in particular. Why they are slow step times do not say.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from nemesis.processors.attribution import skew, wanted
from nemesis.processors.attribution.findings import STRAGGLER, Finding, Proof
from nemesis.schemas import components
from nemesis.schemas.facts import Fact
from nemesis.schemas.inferred import RuledOut
from nemesis.schemas.rank_ranges import format_ranks

# Workers of Alibaba's PAI drift by up to a fifth against each other, and are no stragglers
RISE_PER_MILLE: Final = 200
GAP_PER_MILLE: Final = 1200
STEPS_KEPT: Final = 8
SLOW_STEPS_MIN: Final = 5  # of those
PART_MAX: Final = 4  # of so many ranks at most one: more that rise together share a cause
RANKS_MIN: Final = 3  # of two, nobody is the odd one
WORLD_MAX: Final = 1 << 20
TIME_NS_MAX: Final = 3_600_000_000_000  # longer is nobody's step, and times 1000 it stays an int64
CONFIDENCE_PPM: Final = 700_000
_MASK: Final = (1 << STEPS_KEPT) - 1


class Spell(msgspec.Struct, array_like=True):
    """A time in which ranks held their job up."""

    ranks: tuple[int, ...]
    first_step: int
    last_step: int
    worst_per_mille: int
    proof: Proof
    over: bool = False


class JobTimes(msgspec.Struct):
    """What is known of one job's steps."""

    usual: skew.Usual
    step: int
    time_ns: dict[int, int] = {}
    """Of the ranks that told of that step."""
    proof: Proof | None = None
    """The first fact of the latest step."""
    history: dict[int, int] = {}
    """A bit a step, the latest lowest: 1 where the rank held the job up."""
    began: dict[int, tuple[int, int]] = {}
    """(step, worst rise in per mille) since when a rank does."""
    spell: Spell | None = None
    news: bool = False


class StepTimes(msgspec.Struct):
    """All jobs of which step times are told."""

    jobs: dict[str, JobTimes] = {}

    def take(self, fact: Fact) -> None:
        """Times of one step, of some or all ranks."""
        data = fact.data
        if fact.late or data.first_rank < 0 or not data.step_ns:
            return
        job = self.jobs.get(data.job)
        if job is None:
            job = self.jobs[data.job] = JobTimes(usual=skew.usual_of(0), step=data.step)
        if data.step != job.step:
            _close(job)
            job.step, job.proof = data.step, None
        job.proof = job.proof or Proof(fact.id, fact.seq, "")
        for at, time_ns in enumerate(data.step_ns):
            rank = data.first_rank + at
            if 0 < time_ns <= TIME_NS_MAX and rank < WORLD_MAX:
                job.time_ns[rank] = time_ns

    def judge(self) -> list[tuple[str, Finding]]:
        """(job, who holds it up, or did) of those of which there is news."""
        found: list[tuple[str, Finding]] = []
        for name, job in self.jobs.items():
            if job.news and job.spell is not None:
                found.append((name, _finding(name, job.spell)))
            job.news = False
        return found

    def going_on(self) -> list[str]:
        """Jobs that are held up still."""
        return [
            name for name, job in self.jobs.items() if job.spell is not None and not job.spell.over
        ]

    def forget(self, job: str) -> None:
        """The job is over, or goes on in another membership."""
        self.jobs.pop(job, None)


def _close(job: JobTimes) -> None:
    """A step was told of whole."""
    times = sorted(job.time_ns.items())
    job.time_ns = {}
    if len(times) < RANKS_MIN:
        return
    ranks = np.array([rank for rank, _ in times], np.intp)
    time_ns = np.array([each for _, each in times], np.int64)
    _grow(job, int(ranks[-1]) + 1)
    rise = skew.rise_of(job.usual, ranks, time_ns)
    out = skew.stands_out(job.usual, ranks, rise, RISE_PER_MILLE)
    others_ns = int(time_ns[~out].max(initial=0))
    out &= time_ns * 1000 >= others_ns * GAP_PER_MILLE
    if int(out.sum()) > max(1, len(ranks) // PART_MAX):
        out[:] = False
    skew.learn(job.usual, ranks, time_ns, rise, out)
    slow = dict(zip(ranks[out].tolist(), rise[out].tolist(), strict=True))
    _remember(job, ranks.tolist(), slow)


def _grow(job: JobTimes, world: int) -> None:
    known = len(job.usual.rounds) // 8
    if world > known:
        more = skew.usual_of(world - known)
        job.usual.time_ns += more.time_ns
        job.usual.spread += more.spread
        job.usual.rounds += more.rounds


def _remember(job: JobTimes, ranks: Sequence[int], slow: dict[int, int]) -> None:
    """Shift a bit into the history of all who have one or get one, and see who holds it up."""
    for rank in ranks:
        bits = (job.history.get(rank, 0) << 1 | (rank in slow)) & _MASK
        if not bits:
            job.history.pop(rank, None)
            job.began.pop(rank, None)
            continue
        job.history[rank] = bits
        since, worst = job.began.get(rank, (job.step, 0))
        job.began[rank] = (since, max(worst, slow.get(rank, 0)))
    held = sorted(rank for rank, bits in job.history.items() if bits.bit_count() >= SLOW_STEPS_MIN)
    spell = job.spell
    if held and job.proof is not None:
        began = [job.began[rank] for rank in held]
        worst = max(each for _, each in began)
        if spell is None or spell.over or spell.ranks != tuple(held):
            job.news = True
            first = min(step for step, _ in began)
            says = f"step {job.step}: {_named(held)} took {worst / 1000:.2f} times its usual time"
            proof = Proof(job.proof.fact, job.proof.seq, says)
            job.spell = Spell(tuple(held), first, job.step, worst, proof)
        else:
            spell.last_step = job.step
            spell.worst_per_mille = max(spell.worst_per_mille, worst)
    elif spell is not None and not spell.over and not set(job.history) & set(spell.ranks):
        spell.over = job.news = True


def _finding(job: str, spell: Spell) -> Finding:
    names = tuple(components.rank(job, rank) for rank in spell.ranks)
    steps = f"from step {spell.first_step}"
    if spell.over:
        steps += f" to step {spell.last_step}"
    because = "each of them took its usual time, apart from what all took longer"
    return Finding(
        verdict="attributed",
        fault_class="straggler.host",
        reason=f"{_named(spell.ranks)} of {job} held the others up {steps}, at up to"
        f" {spell.worst_per_mille / 1000:.1f} times its usual time; why is not said",
        confidence_ppm=CONFIDENCE_PPM,
        level=STRAGGLER,
        culprits=names,
        signature="transient" if spell.over else "",
        proofs=(spell.proof,),
        missing=(wanted.CLOCK_REASONS, wanted.HOST_PRESSURE, wanted.PROFILE),
        ruled_out=(RuledOut(says="the other ranks", because=because, fact=spell.proof.fact),),
        jobs=(job,),
    )


def _named(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {format_ranks(ranks)}"
