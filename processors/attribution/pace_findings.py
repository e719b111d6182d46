"""What the pace of a whole job proves: it waits for its data, or became slower.

Why: a synchronous job is as slow as its slowest part, and its own log tells only that it is. How:
steps that are several times as long as most, and spend it waiting for data, are the loader's or
the storage's; a job that became slower for its last steps is told of, and nobody blamed.
"""

from statistics import median_low
from typing import Final

from nemesis.processors.attribution import wanted
from nemesis.processors.attribution.findings import LINK_DOWN, STRAGGLER, Finding
from nemesis.processors.attribution.report_rules import proofs, proofs_of
from nemesis.processors.attribution.reports import Paced, Told

STEPS_MIN: Final = 5
LONG_FACTOR: Final = 3  # of the usual step: a checkpoint or an evaluation aside, nothing takes that
DATA_SHARE_PPM: Final = 500_000
SPENT_SHARE_PPM: Final = 100_000  # of all time: less is not what makes a job slow
LATEST: Final = 2
SLOWER_PPM: Final = 30_000  # steps of one job differ by 1 % (Megatron logs of BLOOM's training)


def judge_pace(told: Told) -> list[Finding]:
    """What the steps of the job prove."""
    if len(told.paces) < STEPS_MIN:
        return []
    found = _waits_for_data(told) or _slower(told)
    return [found] if found else []


def _waits_for_data(told: Told) -> Finding | None:
    usual_ns = median_low(each.step_ns for each in told.paces)
    held = [each for each in told.paces if each.data_ns * 1_000_000 > each.step_ns * DATA_SHARE_PPM]
    long = [each for each in held if each.step_ns > LONG_FACTOR * usual_ns] or held
    spent_ns = sum(each.data_ns for each in long)
    whole_ns = sum(each.step_ns for each in told.paces)
    if not long or spent_ns * 1_000_000 < whole_ns * SPENT_SHARE_PPM:
        return None
    seconds = max(each.data_ns for each in long) / 1e9
    return Finding(
        verdict="class-only",
        fault_class="dataloader",
        reason=f"{told.job} waited up to {seconds:.0f} s for its data, a step takes"
        f" {usual_ns / 1e9:.1f} s otherwise",
        confidence_ppm=850_000,
        level=STRAGGLER,
        proofs=proofs(long, "a step that waited for its data"),
        jobs=(told.job,),
        missing=("where the data lies and how fast it is read: iostat -x 1, nfsiostat 1",),
    )


def _slower(told: Told) -> Finding | None:
    """The last steps, each longer than all that came before."""
    paces = told.paces
    before, after = paces[:-LATEST], paces[-LATEST:]
    usual_ns = median_low(each.step_ns for each in before)
    limit_ns = usual_ns * (1_000_000 + SLOWER_PPM) // 1_000_000
    if not usual_ns or min(each.step_ns for each in after) <= limit_ns:
        return None
    quick = [each for each in before if each.step_ns <= limit_ns]
    slow: list[Paced] = [*(each for each in before if each not in quick), *after]
    return Finding(
        verdict="insufficient",
        fault_class="unknown",
        reason=f"{told.job} became slower, from {usual_ns / 1e9:.1f} s a step to"
        f" {after[-1].step_ns / 1e9:.1f} s; who keeps it waiting is not said",
        confidence_ppm=0,
        level=LINK_DOWN,
        proofs=proofs_of(
            [(each, "a slow step") for each in slow[-4:]]
            + [(each, "a step as they were before") for each in quick[:2]]
        ),
        jobs=(told.job,),
        missing=(wanted.PROFILE, wanted.CLOCK_REASONS, wanted.HOST_PRESSURE),
    )
