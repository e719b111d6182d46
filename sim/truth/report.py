"""What many runs say together: rates, times and confusion, counted and nothing else.

Pure and exact: every rate is a count of a count, every time is one that was measured in simulated
time. A fault ends in exactly one outcome; wrong blame outweighs everything, because it is the worst
error of all. What nobody could know (a fault that is not attributable) is counted apart: of it,
silence about the component is the right answer.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal

import msgspec

from nemesis.sim.truth.calibration import PPM, Calibration, calibration
from nemesis.sim.truth.score import FaultScore
from nemesis.sim.truth.scored import ScoredRun, one_hash

Outcome = Literal["right", "among three", "beside", "abstained", "silent", "wrong blame"]
"""right: the component named first is a right one; among three: it is the second or third; beside:
only what went down with the culprit was named; abstained: a verdict that names nobody; silent: no
verdict at all; wrong blame: something innocent was named, whatever else was."""

ATTRIBUTABLE_PPM: Final = (600_000, 850_000)
"""Where the share of attributable faults must lie. Of 41 public incident reports with a fault in
them, the files of 31 name the component (756,000 ppm); below it a suite asks for guesses, above it
real evidence is worse."""
JUDGED_FAULTS_MIN: Final = 20
"""Of fewer faults the share proves nothing: one fault alone moves it by more than 5 %."""
GPU_DAY_MS: Final = 86_400_000
SILENT: Final = "(silent)"


class Share(msgspec.Struct, kw_only=True, frozen=True):
    """So many of so many."""

    count: int
    of: int
    ppm: int | None
    """None of nothing."""


class Times(msgspec.Struct, kw_only=True, frozen=True):
    """Times from a fault's onset, simulated; of those that happened at all."""

    count: int
    of: int
    median_ms: int | None
    p90_ms: int | None
    p99_ms: int | None
    max_ms: int | None


class ClassReport(msgspec.Struct, kw_only=True, frozen=True):
    """Faults of one class."""

    true_class: str
    faults_count: int
    attributable: Share
    detected: Share
    class_right: Share
    top1: Share
    top3: Share
    top1_of_attributable: Share
    abstained: Share
    wrong_blame: Share
    action_right: Share
    to_attribute: Times


class Confused(msgspec.Struct, kw_only=True, frozen=True):
    """How often a fault of one class was said to be of another."""

    true_class: str
    said_class: str
    accepted: bool
    """It is of more than one class, and this is one of them."""
    count: int


class Alarms(msgspec.Struct, kw_only=True, frozen=True):
    """What was said or decided though nothing was wrong."""

    count: int
    gpu_ms: int
    """GPU-milliseconds that were watched, simulated."""
    per_1000_gpu_days_milli: int | None
    """In thousandths."""
    at_most_per_1000_gpu_days_milli: int | None
    """The upper end of the 95 % interval of a Poisson count."""


class Report(msgspec.Struct, kw_only=True, frozen=True):
    """What the runs say."""

    suite: str
    params_sha256: str
    nemesis_version: str
    runs_count: int
    passed_count: int
    faults_count: int
    decoys_count: int
    attributable: Share
    attributable_in_bounds: bool
    """Also of fewer than JUDGED_FAULTS_MIN faults."""
    ceiling_top1: Share
    """What an oracle names that sees the hidden state and says only what the log can show."""
    contradictions_count: int
    """Of ledgers with themselves; above 0 nothing here counts."""
    outcomes: dict[str, int]
    detected: Share
    wrong_blame: Share
    abstained: Share
    class_right: Share
    top1: Share
    top3: Share
    top1_of_attributable: Share
    named_though_not_attributable: Share
    action_right: Share
    predicted_count: int
    to_detect: Times
    to_attribute: Times
    to_attribute_hard: Times
    """Of attributable faults that stopped their job."""
    to_recover: Times
    alarms: Alarms
    calibration: Calibration
    classes: tuple[ClassReport, ...]
    confusion: tuple[Confused, ...]


def outcome_of(fault: FaultScore) -> Outcome:
    """What became of a fault; a decoy has none."""
    if fault.wrong_blame:
        return "wrong blame"
    if fault.right_at is not None:
        return "right" if fault.right_at == 0 else "among three"
    if fault.named:
        return "beside"
    return "abstained" if fault.detected else "silent"


def report(runs: Sequence[ScoredRun]) -> Report:
    """Count; the order of the runs does not matter.

    Raises:
        MixedParametersError: not all were made with the same parameters.
    """
    faults = [each for run in runs for each in run.score.faults if not each.is_decoy]
    decoys = [each for run in runs for each in run.score.faults if each.is_decoy]
    weighed = [each for each in faults if each.attributable is not None]
    attributable = _share(_is_attributable, weighed)
    outcomes = Counter(outcome_of(each) for each in faults)
    known = [each for each in faults if _is_attributable(each)]
    return Report(
        suite=_only({each.suite for each in runs}),
        params_sha256=one_hash(runs),
        nemesis_version=_only({each.nemesis_version for each in runs}),
        runs_count=len(runs),
        passed_count=sum(each.score.passed for each in runs),
        faults_count=len(faults),
        decoys_count=len(decoys),
        attributable=attributable,
        attributable_in_bounds=_in_bounds(attributable),
        ceiling_top1=_of(sum(each.ceiling.right_count for each in runs), len(weighed)),
        contradictions_count=sum(len(each.contradictions) for each in runs),
        outcomes=dict(sorted(outcomes.items())),
        detected=_share(lambda each: each.detected, faults),
        wrong_blame=_share(lambda each: bool(each.wrong_blame), faults),
        abstained=_share(lambda each: outcome_of(each) in ("abstained", "silent"), faults),
        class_right=_share(lambda each: each.class_right, faults),
        top1=_share(_is_top1, faults),
        top3=_share(_is_top3, faults),
        top1_of_attributable=_share(_is_top1, known),
        named_though_not_attributable=_share(
            _is_top1, [each for each in faults if each.attributable is False]
        ),
        action_right=_share(lambda each: each.action_right, faults),
        predicted_count=sum(each.predicted_ms is not None for each in faults),
        to_detect=times_of(each.to_detect_ms for each in faults),
        to_attribute=times_of(each.to_attribute_ms for each in faults),
        to_attribute_hard=times_of(each.to_attribute_ms for each in known if each.stalls),
        to_recover=times_of(each.to_resume_ms for each in faults if each.stalls),
        alarms=_alarms(runs),
        calibration=calibration(
            (each.confidence_ppm, _is_top1(each)) for each in (*faults, *decoys) if each.named
        ),
        classes=tuple(
            _class(name, [each for each in faults if each.true_class == name])
            for name in sorted({each.true_class for each in faults})
        ),
        confusion=_confusion(faults),
    )


def _in_bounds(attributable: Share) -> bool:
    low, high = ATTRIBUTABLE_PPM
    few = attributable.of < JUDGED_FAULTS_MIN
    return few or low <= (attributable.ppm or 0) <= high


def _only(names: set[str]) -> str:
    return ", ".join(sorted(names))


def _is_attributable(fault: FaultScore) -> bool:
    return fault.attributable is True


def _is_top1(fault: FaultScore) -> bool:
    return fault.right_at == 0


def _is_top3(fault: FaultScore) -> bool:
    return fault.right_at is not None and fault.right_at < 3


def _class(name: str, faults: Sequence[FaultScore]) -> ClassReport:
    return ClassReport(
        true_class=name,
        faults_count=len(faults),
        attributable=_share(_is_attributable, faults),
        detected=_share(lambda each: each.detected, faults),
        class_right=_share(lambda each: each.class_right, faults),
        top1=_share(_is_top1, faults),
        top3=_share(_is_top3, faults),
        top1_of_attributable=_share(_is_top1, [e for e in faults if _is_attributable(e)]),
        abstained=_share(lambda each: outcome_of(each) in ("abstained", "silent"), faults),
        wrong_blame=_share(lambda each: bool(each.wrong_blame), faults),
        action_right=_share(lambda each: each.action_right, faults),
        to_attribute=times_of(each.to_attribute_ms for each in faults),
    )


def _confusion(faults: Sequence[FaultScore]) -> tuple[Confused, ...]:
    pairs = Counter(
        (each.true_class, each.fault_class or SILENT, each.class_right) for each in faults
    )
    return tuple(
        Confused(true_class=true, said_class=said, accepted=accepted, count=count)
        for (true, said, accepted), count in sorted(pairs.items())
    )


def _share(holds: Callable[[FaultScore], bool], faults: Sequence[FaultScore]) -> Share:
    return _of(sum(holds(each) for each in faults), len(faults))


def _of(count: int, of: int) -> Share:
    return Share(count=count, of=of, ppm=round(count * PPM / of) if of else None)


def times_of(times_ms: Iterable[int | None]) -> Times:
    """Their percentiles; None: it never happened."""
    every = list(times_ms)
    known = sorted(each for each in every if each is not None)
    return Times(
        count=len(known),
        of=len(every),
        median_ms=_nearest(known, 50),
        p90_ms=_nearest(known, 90),
        p99_ms=_nearest(known, 99),
        max_ms=known[-1] if known else None,
    )


def _nearest(ordered: Sequence[int], percent: int) -> int | None:
    """The nearest-rank percentile: a value that was really measured."""
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)] if ordered else None


def _alarms(runs: Sequence[ScoredRun]) -> Alarms:
    count = sum(len(each.score.false_alarms) for each in runs)
    gpu_ms = sum(each.gpu_ms for each in runs)
    return Alarms(
        count=count,
        gpu_ms=gpu_ms,
        per_1000_gpu_days_milli=_per_1000(1_000 * count, gpu_ms),
        at_most_per_1000_gpu_days_milli=_per_1000(_poisson_upper_milli(count), gpu_ms),
    )


def _per_1000(events_milli: int, gpu_ms: int) -> int | None:
    return round(events_milli * 1_000 * GPU_DAY_MS / gpu_ms) if gpu_ms else None


def _poisson_upper_milli(count: int) -> int:
    """The largest mean that still gives so few with 2.5 %, in thousandths.

    Of no event with 5 %: the rule of three (Hanley and Lippman-Hand, JAMA 1983). Else Byar's
    approximation (Breslow and Day 1987, formula 2.12), whose error is below 1 % from one event on.
    """
    if count == 0:
        return 2_996
    more = count + 1
    return round(1_000 * more * (1 - 1 / (9 * more) + 1.96 / (3 * math.sqrt(more))) ** 3)
