"""The figures of failure prediction: `python -m tests.prediction_table [options] [--write]`.

With models named it judges them anew and keeps what it found in tests/failure_figures; without, it
reads that, and what `tests.needless_days` kept there. Prints Markdown; with `--write` puts it
between the marks of docs/prediction.md. All is simulated.

    --honest MODEL        of the honest mix: what is shipped
    --seeds MODEL ...     of the seed mix, by seeds of training; the first is kept for the bench
    --first N             which training the first of --seeds is
    --gru FOLDER          a run of `nemesis ecc train --network gru` on the honest mix
    --lives N --quiet N   drawn in each split
    --splits NAME ...     these alone
"""

import argparse
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from nemesis.sim.prediction.evaluation import Evaluation, Figure, Told
from nemesis.sim.prediction.figures import Value
from nemesis.sim.prediction.judge import Asked, Judgement, judge, named
from nemesis.sim.prediction.precursors import Mix
from tests.needless_days import TIERS, Needless

ROOT = Path(__file__).parent.parent
KEPT = Path(__file__).parent / "failure_figures"
SEED_MODEL = KEPT / "seed.msgpack"
NEEDLESS = KEPT / "needless.json"
"""What `python -m tests.needless_days --kept` writes."""
BEGIN, END = "<!-- prediction -->", "<!-- /prediction -->"
SEED = 2


def kept(mix: Mix) -> list[Judgement]:
    """What was found last, of each model of a mix."""
    paths = sorted(KEPT.glob(f"{mix}-*.json"))
    return [msgspec.json.decode(path.read_bytes(), type=Judgement) for path in paths]


def judged(model: Path, mix: Mix, options: argparse.Namespace, number: int) -> None:
    """Judge a model and keep what is found, without what only plots need.

    Baselines are judged beside the first training alone: they would be the same beside the others.
    What rounding costs is known where the run with its floats is there, and kept where it was.
    """
    asked = Asked(
        mix=mix,
        each=options.lives,
        quiet=options.quiet,
        seed=SEED,
        gru=options.gru if mix == "honest" else None,
        splits=tuple(options.splits),
        alone=mix == "seed" and number > 1,
    )
    found = judge(named(model), asked, told=lambda line: print(line, file=sys.stderr))
    figures = tuple(replace(each, curve=(), reliability=()) for each in found.evaluation.figures)
    trimmed = replace(found, hours=None, evaluation=replace(found.evaluation, figures=figures))
    path = KEPT / f"{mix}-{number}.json"
    if path.exists() and trimmed.rounding is None:
        before = msgspec.json.decode(path.read_bytes(), type=Judgement)
        if _weights_of(before) == _weights_of(trimmed):
            trimmed = replace(trimmed, rounding=before.rounding)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(trimmed), indent=1) + b"\n")


def _weights_of(found: Judgement) -> list[object]:
    """What a model's weights follow from; its card says more, of chances that are fitted later."""
    card = msgspec.json.decode(found.card)
    return [card["mix"], card["plan"], card["history"]]


def tables() -> Iterator[str]:
    """Everything that is kept, as Markdown."""
    seeds, honest = kept("seed"), kept("honest")
    if seeds:
        yield from _seed(seeds)
    for each in honest:
        yield from _honest(each)
    if NEEDLESS.is_file():
        yield from _needless(msgspec.json.decode(NEEDLESS.read_bytes(), type=Needless))


def _about(found: Evaluation) -> str:
    return (
        f"{found.lives_count} lives, {found.gpu_days:,.0f} GPU-days as drawn, seed {found.seed}, "
        f"parameters `{found.precursors_sha256[:12]}`"
    )


def _seed(seeds: Sequence[Judgement]) -> Iterator[str]:
    yield f"**Seed mix, simulated: every failure announces itself.** {_about(seeds[0].evaluation)}."
    yield ""
    yield "| split | scorer | F1 at 0.5 h | at 1 h | at 2 h | at 3 h | PR-AUC at 2 h |"
    yield "|---|---|---|---|---|---|---|"
    splits = list(dict.fromkeys(each.split for each in seeds[0].evaluation.figures))
    for split in splits:
        for number, each in enumerate(seeds, 1):
            yield _row(each.evaluation.of(split, "model"), f"model, training {number}")
        for figure in seeds[0].evaluation.figures:
            if figure.split == split and figure.scorer != "model":
                yield _row(figure, figure.scorer)
    yield ""
    yield from _rest(seeds[0])


def _row(figure: Figure, name: str) -> str:
    f1 = " | ".join(value(each) for each in figure.f1)
    return f"| {figure.split} | {name} | {f1} | {value(figure.pr_auc)} |"


def _honest(found: Judgement) -> Iterator[str]:
    evaluation = found.evaluation
    yield (
        f"**Honest mix, simulated**: {100 * evaluation.recall_ceiling:.1f} % of failures show a "
        f"sign, nobody's recall can be higher. {_about(evaluation)}; model "
        f"`{found.model_sha256[:12]}`."
    )
    yield ""
    yield (
        "| split | scorer | PR-AUC at 2 h | recall at precision 0.95 | at 0.99 | false alarms per "
        "1,000 GPU-days | node-hours saved a month | ECE at 2 h | of chances from 1 % on |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    for each in evaluation.figures:
        by_cost, precise, most = (_of(each, at) for at in ("by cost", *PRECISE))
        cells = [each.split, each.scorer, value(each.pr_auc, 4), _recall(precise), _recall(most)]
        cells += [
            value(by_cost.false_per_1000_gpu_days),
            value(by_cost.node_hours_saved_a_month, 0),
        ]
        cells += [f"{each.calibration_error[2]:.5f}", f"{each.calibration_error_alarming[2]:.3f}"]
        yield f"| {' | '.join(cells)} |"
    yield ""
    costs = evaluation.costs
    yield (
        f"False alarms and node-hours are those of alarms by cost: from a chance of "
        f"{costs.worth_ppm / 1e4:.1f} % within two hours on, told at {costs.told_ppm / 1e4:g} %, "
        f"at {costs.missed:.3g} node-hours for a failure that was missed, {costs.foreseen:.3g} for "
        f"one that was foreseen and {costs.needless:.3g} for a needless move (all assumed), 16,384 "
        f"GPUs in one job."
    )
    yield ""
    yield from _tiers(evaluation)
    yield from _rest(found)


PRECISE = ("precision 0.95", "precision 0.99")


def _tiers(found: Evaluation) -> Iterator[str]:
    yield (
        "| split | tier of the model | alarms as drawn | precision | recall | needless per 10,000 "
        "GPU-days, at most | lead in minutes, 10, 50, 90 % |"
    )
    yield "|---|---|---|---|---|---|---|"
    for each in found.figures:
        if each.scorer != "model":
            continue
        for name in ("act", "watch", "by cost"):
            told = _of(each, name)
            leads = [str(told.leads_s[at] // 60) for at in (0, 2, 4)] if told.leads_s else ["-"]
            cells = [each.split, f"{name}, {told.threshold_ppm / 1e4:.1f} %"]
            cells += [str(told.alarms_count)]
            cells += ["never speaks" if told.precision is None else value(told.precision)]
            cells += [value(told.recall), f"{told.needless_per_10000_gpu_days_at_most:.3g}"]
            yield f"| {' | '.join([*cells, ', '.join(leads)])} |"
    yield ""


def _rest(found: Judgement) -> Iterator[str]:
    for each in found.evaluation.absent:
        yield f"Left out: {each.scorer}, {each.why}."
    if found.leaks is not None:
        yield (
            f"Leaks, chance is 0.5: shuffled labels {value(found.leaks.shuffled)}, names of GPUs "
            f"{value(found.leaks.names)}; GPUs in two splits {found.leaks.shared_count}."
        )
    if found.rounding is not None:
        yield (
            f"Integers lose {found.rounding.f1_points:.2f} points of F1 and "
            f"{found.rounding.pr_auc_points:.2f} of PR-AUC against the same weights as floats."
        )
    yield ""


def _needless(found: Needless) -> Iterator[str]:
    yield (
        "**How often a GPU would be taken out for nothing, simulated**: lives drawn as often as "
        "they happen, every step scored, told by the processor's own latches; counted are GPUs "
        "whose first alarm no failure followed within its horizon; model "
        f"`{found.model_sha256[:12]}`."
    )
    yield ""
    yield "| split | GPU-days | tier | told of | needless | per 10,000 GPU-days | at most (95 %) |"
    yield "|---|---|---|---|---|---|---|"
    rows = [(split, "by cost", each) for split, each in found.counted.items()]
    rows += [("together", tier, found.together()) for tier in TIERS]
    for split, tier, each in rows:
        rate, most = each.rates(tier)
        cells = [split, f"{each.gpu_days:,.0f}", tier, str(each.told[tier])]
        cells += [str(each.needless[tier]), f"{rate:.2f}", f"{most:.2f}"]
        yield f"| {' | '.join(cells)} |"
    yield ""
    yield (
        f"Whatever it is shown, this model gives no chance above {found.most_ppm[0] / 1e4:.1f} % "
        f"within half an hour, nor above {found.most_ppm[2] / 1e4:.1f} % within two: its tables "
        "have none. So its `act` tier, the only one that asks for a shrink, cannot be reached, and "
        "moves by cost have a limit of their own."
    )
    yield ""


def _of(figure: Figure, name: str) -> Told:
    return next(each for each in figure.told if each.name == name)


def _recall(told: Told) -> str:
    return value(told.recall) if told.precision is not None else "never speaks"


def value(each: Value, digits: int = 3) -> str:
    """With its interval."""
    return f"{each.value:,.{digits}f} ({each.low:,.{digits}f} to {each.high:,.{digits}f})"


def main() -> None:
    """Judge, print, write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--honest", type=Path)
    parser.add_argument("--seeds", type=Path, nargs="*", default=[])
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--gru", type=Path)
    parser.add_argument("--lives", type=int, default=40)
    parser.add_argument("--quiet", type=int, default=400)
    parser.add_argument("--splits", nargs="*", default=[])
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    KEPT.mkdir(exist_ok=True)
    if options.honest:
        judged(options.honest, "honest", options, 1)
    for number, model in enumerate(options.seeds, options.first):
        judged(model, "seed", options, number)
    if options.seeds and options.first == 1:
        shutil.copyfile(options.seeds[0], SEED_MODEL)
    text = "\n".join(tables()).strip()
    print(text)
    if options.write:
        path = ROOT / "docs/prediction.md"
        put = f"{BEGIN}\n{text}\n{END}"
        before = path.read_text()
        path.write_text(re.sub(f"{BEGIN}.*?{END}", lambda _: put, before, flags=re.DOTALL))


if __name__ == "__main__":
    main()
