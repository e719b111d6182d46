"""What `nemesis ecc evaluate` and `explain` say to people."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nemesis.sim.prediction.evaluation import Evaluation, Figure, Told
    from nemesis.sim.prediction.explain import Explanation
    from nemesis.sim.prediction.figures import Value
    from nemesis.sim.prediction.judge import Judgement

SHOWN = 8
"""Parts of an explanation, at most."""


def told_of(found: "Judgement") -> Iterator[str]:
    """A judgement, line by line."""
    evaluation = found.evaluation
    yield f"model {found.model_sha256[:12]}; {_about(evaluation)}"
    for split in dict.fromkeys(each.split for each in evaluation.figures):
        yield ""
        yield f"{split:13}{'PR-AUC at 2 h':26}{'F1 at 0.5, 1, 2, 3 h':28}ECE at 0.5 to 3 h"
        own = [each for each in evaluation.figures if each.split == split]
        for each in own:
            f1 = ", ".join(f"{value.value:.3f}" for value in each.f1)
            errors = ", ".join(f"{value:.4f}" for value in each.calibration_error)
            yield f"  {each.scorer:11}{_value(each.pr_auc, 4):26}{f1:28}{errors}"
        for each in own:
            yield from _alarms(each)
    yield from _rest(found)


def _about(found: "Evaluation") -> str:
    if found.mix is None:
        return f"{found.lives_count} GPUs of a log, {found.gpu_days:.1f} GPU-days"
    return (
        f"simulated, mix {found.mix}, {found.lives_count} lives, {found.gpu_days:.0f} GPU-days, "
        f"seed {found.seed}; recall of failures is at most {100 * found.recall_ceiling:.1f} %"
    )


def _alarms(figure: "Figure") -> Iterator[str]:
    for each in figure.told:
        yield f"  {figure.scorer:11}{_told(each)}"


def _told(told: "Told") -> str:
    at = f"{told.name} ({told.horizon_s / 3600:g} h, {told.threshold_ppm / 1e4:.1f} %)"
    if told.precision is None:
        return f"{at}: never speaks"
    leads = ", ".join(f"{each // 60}" for each in told.leads_s) or "-"
    return (
        f"{at}: {told.alarms_count} alarms, precision {_value(told.precision, 3)}, "
        f"recall {_value(told.recall, 3)}, false per 1,000 GPU-days "
        f"{_value(told.false_per_1000_gpu_days, 3)}, needless per 10,000 at most "
        f"{told.needless_per_10000_gpu_days_at_most:,.2f}, node-hours saved a month "
        f"{_value(told.node_hours_saved_a_month, 0)}, lead in minutes {leads}"
    )


def _rest(found: "Judgement") -> Iterator[str]:
    yield ""
    for each in found.evaluation.absent:
        yield f"left out: {each.scorer}: {each.why}"
    costs = found.evaluation.costs
    yield (
        f"costs in node-hours (assumed): missed {costs.missed:.3g}, foreseen"
        f" {costs.foreseen:.3g}, needless {costs.needless:.3g}; lead times at 10, 25, 50, 75 and"
        " 90 %"
    )
    if found.leaks is not None:
        yield (
            f"leaks: shuffled labels {_value(found.leaks.shuffled, 3)}, names "
            f"{_value(found.leaks.names, 3)} (chance is 0.5), GPUs in two splits "
            f"{found.leaks.shared_count}"
        )
    if found.rounding is not None:
        yield (
            f"integers lose {found.rounding.f1_points:+.2f} points of F1 and "
            f"{found.rounding.pr_auc_points:+.2f} of PR-AUC against floats"
        )


def _value(value: "Value", digits: int) -> str:
    return f"{value.value:,.{digits}f} ({value.low:,.{digits}f} to {value.high:,.{digits}f})"


def told_of_score(found: "Explanation") -> Iterator[str]:
    """A score taken apart, line by line."""
    chances = ", ".join(f"{each / 1e4:.1f}" for each in found.chances_ppm)
    yield (
        f"{found.gpu}, minute {found.step / 12:.1f}: {found.chance_ppm / 1e4:.1f} % to fail within "
        f"{found.horizon_s / 3600:g} h (all horizons: {chances} %)"
    )
    yield "without this input, the rest unchanged:"
    for each in found.inputs[:SHOWN]:
        if each.brought_milli:
            yield _part(each.name, each.brought_milli, each.chance_ppm)
    yield "without this minute of the fast inputs (0 is the last):"
    for each in found.minutes[:SHOWN]:
        if each.brought_milli:
            yield _part(each.name, each.brought_milli, each.chance_ppm)


def _part(name: str, brought_milli: int, chance_ppm: int) -> str:
    return f"  {name:18}{-brought_milli / 1e3:+8.2f} log odds, {chance_ppm / 1e4:5.1f} %"
