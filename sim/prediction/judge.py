"""`nemesis ecc evaluate` and `explain`: which model, which lives, and what is judged of them.

A model is judged on simulated lives beside every baseline, or on the GPUs of a recorded log, where
there is nothing to fit a baseline to and thresholds are those of the tiers.
"""

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from nemesis.processors.ecc_model.channels import STEP_NS
from nemesis.processors.ecc_model.inputs import INPUTS, Codes
from nemesis.processors.ecc_model.model import RECEPTIVE_STEPS, Model, load_model
from nemesis.processors.ecc_model.shipped import latest, shipped
from nemesis.schemas.errors import NemesisError
from nemesis.sim.prediction.alarms import Costs
from nemesis.sim.prediction.evaluation import Drawing, Evaluation, evaluate, of_log
from nemesis.sim.prediction.explain import Explanation, explained
from nemesis.sim.prediction.leaks import Leaks, probed
from nemesis.sim.prediction.logged import read_log
from nemesis.sim.prediction.precursors import Mix, load_precursors
from nemesis.sim.prediction.quantised import Rounding, rounding
from nemesis.sim.prediction.recurrent import recurrent
from nemesis.sim.prediction.scored import EVERY_STEPS, scored
from nemesis.sim.prediction.splits import DataSet, draw_set

LEARNT_COUNT: Final = 60
"""Lives of every kind that baselines learn from where a model does not say its own."""
SHOWN_STEPS: Final = 2_160
"""Of one GPU: its last three hours."""


class NoSuchScoreError(NemesisError):
    """Nothing of that name, or no score at that time; or no model at all."""

    exit_code = 2


class Named(msgspec.Struct, frozen=True):
    """A model, and the run that it came from where that is beside it."""

    model: Model
    sha256: str
    state: Path | None = None


class Asked(msgspec.Struct, kw_only=True, frozen=True):
    """What to judge by."""

    mix: Mix
    each: int
    quiet: int
    seed: int
    learnt: int = 0
    """Lives of every kind that baselines learn from; 0: as many as the model did."""
    gru: Path | None = None
    log: Path | None = None
    ledger: Path | None = None
    costs: Costs = Costs()
    splits: tuple[str, ...] = ()
    alone: bool = False
    """Without baselines and probes, which another judgement of the same lives has."""


class Hours(msgspec.Struct, kw_only=True, frozen=True):
    """One GPU's last three hours."""

    gpu: str
    kind: str
    minutes_left: tuple[float, ...]
    """Until it fails, negative as on an axis."""
    chances_ppm: tuple[tuple[int, ...], ...]
    """By horizon."""
    codes: dict[str, tuple[int, ...]]
    """Inputs that showed something."""


class Judgement(msgspec.Struct, kw_only=True, frozen=True):
    """Everything that is said of a model."""

    model_sha256: str
    card: str
    evaluation: Evaluation
    leaks: Leaks | None = None
    rounding: Rounding | None = None
    """None: the run with its floats is not beside the model, or torch is not installed."""
    hours: Hours | None = None


class _Card(msgspec.Struct):
    """Of a model, as `train.Card` writes it."""

    each_count: int


class Point(msgspec.Struct, kw_only=True, frozen=True):
    """One score: of a log's GPU or of a simulated one."""

    mix: Mix
    kind: str
    seed: int
    head: int
    log: Path | None = None
    gpu: str = ""
    minutes: int | None = None


def named(path: Path | None) -> Named:
    """A model by its file, or the shipped one.

    Raises:
        MalformedFactError: not a model.
        NoSuchScoreError: none is shipped.
    """
    if path is None:
        digest = latest()
        own = shipped(digest)
        if own is None:
            raise NoSuchScoreError(
                "this release ships no failure model",
                hint="train one: nemesis ecc train FOLDER; name it: --model FOLDER/model.msgpack",
            )
        return Named(load_model(own), digest)
    raw = path.read_bytes()
    state = path.with_name("state.pt")
    return Named(load_model(raw), sha256(raw).hexdigest(), state if state.is_file() else None)


def judge(of: Named, asked: Asked, *, told: Callable[[str], None]) -> Judgement:
    """Judge a model on simulated lives or on a log.

    Raises:
        BadLogError, NoTorchError and those of Recording.
    """
    if asked.log is not None:
        log = read_log(asked.log, asked.ledger)
        return Judgement(
            model_sha256=of.sha256,
            card=of.model.card,
            evaluation=of_log(of.model, log.data, asked.costs),
            hours=_hours(of.model, log.data),
        )
    precursors = load_precursors()
    drawing = Drawing(
        mix=asked.mix,
        each=asked.each,
        quiet=asked.quiet,
        seed=asked.seed,
        learnt=asked.learnt or _learnt(of.model),
    )
    others = {} if asked.gru is None else {"gru": recurrent(asked.gru).ranks}
    found = evaluate(
        of.model,
        precursors,
        drawing,
        others=others,
        costs=asked.costs,
        splits=asked.splits,
        alone=asked.alone,
        told=told,
    )
    if asked.alone:
        return Judgement(model_sha256=of.sha256, card=of.model.card, evaluation=found)
    told("probing for leaks")
    data = drawing.set("devices", precursors)
    return Judgement(
        model_sha256=of.sha256,
        card=of.model.card,
        evaluation=found,
        leaks=probed(drawing.set("train", precursors), data),
        rounding=_rounding(of, drawing.set("calibration", precursors), data, told),
        hours=_hours(of.model, data),
    )


def _learnt(model: Model) -> int:
    """Lives of every kind that a model learnt from, by its card."""
    return msgspec.json.decode(model.card, type=_Card).each_count if model.card else LEARNT_COUNT


def _rounding(
    of: Named, calibration: DataSet, data: DataSet, told: Callable[[str], None]
) -> Rounding | None:
    if of.state is None:
        return None
    told("judging the same weights as floats")
    return rounding(of.model, of.state, calibration, data)


def _hours(model: Model, data: DataSet) -> Hours | None:
    """Of the failing GPU whose chance of failing within two hours came to be the highest."""
    lives = data.lives
    fails = lives.fails > RECEPTIVE_STEPS + EVERY_STEPS
    if not fails.any():
        return None
    found = scored(model, data)
    highest = np.where(fails[found.gpus], found.ppm[2], -1)
    gpu = int(found.gpus[int(np.argmax(highest))])
    end = int(lives.fails[gpu])
    begin = max(0, end - SHOWN_STEPS)
    own = (found.gpus == gpu) & (found.steps >= begin)
    codes = lives.codes[found.steps[own], :, gpu]
    return Hours(
        gpu=lives.devices[gpu],
        kind=lives.kinds[gpu],
        minutes_left=tuple((-found.until[own] / EVERY_STEPS).tolist()),
        chances_ppm=tuple(tuple(row) for row in found.ppm[:, own].tolist()),
        codes={
            name: tuple(codes[:, at].tolist())
            for at, name in enumerate(INPUTS)
            if codes[:, at].any()
        },
    )


def score_of(of: Named, point: Point) -> Explanation:
    """Take one score apart.

    Raises:
        NoSuchScoreError: no such GPU, kind or time.
    """
    name, codes, ends = _life(point)
    if point.minutes is None:
        step = _highest(of.model, codes[:ends], point.head)
    else:
        step = point.minutes * 60_000_000_000 // STEP_NS
    if not RECEPTIVE_STEPS <= step < len(codes):
        raise NoSuchScoreError(
            f"{name}: {len(codes) // EVERY_STEPS} minutes are known of it and the first"
            f" {RECEPTIVE_STEPS // EVERY_STEPS} are only looked back at; expected --minutes between"
        )
    return explained(of.model, codes, name, step, point.head)


def _life(point: Point) -> tuple[str, Codes, int]:
    """(its name, codes [step, INPUTS], steps until it fails)."""
    if point.log is not None:
        lives = read_log(point.log).data.lives
        if point.gpu not in lives.devices:
            known = ", ".join(lives.devices[:4])
            raise NoSuchScoreError(f"no GPU {point.gpu!r} in {point.log}: it has {known}, ...")
        at = lives.devices.index(point.gpu)
    else:
        lives = draw_set(
            "devices", load_precursors(), each=1, quiet=2, seed=point.seed, mix=point.mix
        ).lives
        if point.kind not in lives.kinds:
            known = ", ".join(sorted(set(lives.kinds)))
            raise NoSuchScoreError(f"no kind of life {point.kind!r}: there are {known}")
        at = lives.kinds.index(point.kind)
    ends = int(lives.fails[at])
    return lives.devices[at], lives.codes[:, :, at], ends if ends >= 0 else len(lives.codes)


def _highest(model: Model, codes: Codes, head: int) -> int:
    from nemesis.processors.ecc_model.network import Network

    network = Network(model, 1, part_width=1)
    logits = np.array([network.step(each[:, None])[head, 0] for each in codes])
    if len(logits) <= RECEPTIVE_STEPS:
        return len(logits)
    return RECEPTIVE_STEPS + int(np.argmax(logits[RECEPTIVE_STEPS:]))
