"""Train the failure model: floats first, then on the grid of integers, then calibrated and frozen.

What a batch holds follows from the seed and its number alone, so a run that was interrupted goes on
as if it had not been. Failures without any sign are left out while learning: they look like
health, and how often they happen is set by calibration, on GPUs of its own.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import numpy as np

from nemesis.processors.ecc_model.channels import CHANNELS
from nemesis.processors.ecc_model.drift import Tally
from nemesis.processors.ecc_model.inputs import CODE_MAX, INPUTS, MARK, Codes
from nemesis.processors.ecc_model.model import (
    DILATIONS,
    HORIZONS_S,
    LOGITS,
    RECEPTIVE_STEPS,
    Model,
    expect_exact,
)
from nemesis.processors.ecc_model.scorer import Scores
from nemesis.sim.prediction.calibrate import hazard_tables
from nemesis.sim.prediction.float_network import SPARSE_STEPS, FloatNetwork
from nemesis.sim.prediction.labels import left, parts
from nemesis.sim.prediction.precursors import Precursors
from nemesis.sim.prediction.recurrent import RecurrentNetwork
from nemesis.sim.prediction.scored import Scored, scored
from nemesis.sim.prediction.splits import QUIET, DataSet
from nemesis.sim.telemetry.draws import Ints

JUDGED_COUNT: Final = 64
"""Steps of a cut that are judged, SPARSE_STEPS apart: neighbours say next to nothing new."""
CUT_STEPS: Final = RECEPTIVE_STEPS + 1 + SPARSE_STEPS * (JUDGED_COUNT - 1)
NEAR_SHARE: Final = 0.7
"""Of cuts of GPUs that fail: end in their last NEAR_STEPS, which is what is asked for."""
NEAR_STEPS: Final = 2_000
QUIET_SHARE: Final = 0.3
"""Of the turns of GPUs in which nothing happens that are really theirs."""
LEVELS_SHIFTED: Final = {"memory_temp_c": 12, "power_mw": 60}
"""Codes (6 C, 240 W) by which levels of a cut may lie elsewhere: what is learnt of one family is
asked of others, whose memory is cooler and whose power is another."""
UNREAD_SHARE: Final = 0.05
"""Chance of each channel of a cut not to be readable, except those that slow inputs are made of."""
UNREAD_NEVER: Final = frozenset(range(5))
WEIGHT_MAX: Final = 30.0
"""Common kinds count at most so much more than the rarest, or nothing would be learnt of it."""


Kind = Literal["tcn", "gru"]
"""tcn: the model; gru: a baseline that learns as it does."""


class Plan(msgspec.Struct, kw_only=True, frozen=True):
    """How long and how hard."""

    network: Kind = "tcn"
    channels: int = 32
    batches: int = 2_700
    exact_from: int = 1_800
    """From this batch on everything is rounded as in the shipped model."""
    batch: int = 16
    rate: float = 2e-3
    judge_every: int = 200
    judged: int = 96
    """Cuts that it is judged by."""
    patience: int = 5
    """Stop after so many judgements without a better one, once everything is rounded."""
    disturbed: float = 0.5
    """Share of cuts that are shown as of another family."""
    seed: int = 1


class Judged(msgspec.Struct):
    """The validation loss after so many batches."""

    batch: int
    loss: float


class Trainer:
    """A run of training, which can be left and taken up."""

    def __init__(self, plan: Plan, data: DataSet, validation: DataSet, precursors: Precursors):
        self.plan: Final = plan
        kinds: dict[Kind, Any] = {"tcn": FloatNetwork, "gru": RecurrentNetwork}
        self.network: Final[Any] = kinds[plan.network](plan.channels, plan.seed)
        self.history: list[Judged] = []
        self.batch = 0
        torch: Any = self.network.torch
        self._torch: Final[Any] = torch
        self._data: Final = data
        self._signs: Final = teaching(precursors)
        self._optimizer: Final = torch.optim.AdamW(
            self.network.parameters(), lr=plan.rate, weight_decay=1e-4
        )
        self._by_kind: Final = {
            kind: [at for at, own in enumerate(data.lives.kinds) if own == kind]
            for kind in self._signs
            if kind in data.lives.kinds
        }
        self._judges: Final = self._cuts(
            validation, np.random.default_rng([plan.seed, 0]), plan.judged
        )
        self._best: dict[str, list[Any]] = {}

    def run(self, told: Callable[[Judged], None], save_to: Path | None = None) -> None:
        """Learn until the plan is fulfilled or nothing gets better; the best weights stay."""
        plan, torch = self.plan, self._torch
        while self.batch < plan.batches and not self._exhausted():
            self.network.exact = self.batch >= plan.exact_from
            random = np.random.default_rng([plan.seed, self.batch + 1])
            rate = plan.rate * (0.02 + 0.98 * (1 - self.batch / plan.batches))
            for group in self._optimizer.param_groups:
                group["lr"] = rate
            self._optimizer.zero_grad()
            loss = self._loss(self._cuts(self._data, random, plan.batch))
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
            self._optimizer.step()
            self.batch += 1
            if self.batch % plan.judge_every == 0 or self.batch == plan.batches:
                judged = self._judge()
                if save_to is not None:
                    self.save(save_to)
                told(judged)
        if self._best:
            self._put(self._best)
        self.network.exact = True

    def save(self, path: Path) -> None:
        """Everything that the rest of the run depends on."""
        kept = {
            "batch": self.batch,
            "history": [(each.batch, each.loss) for each in self.history],
            "now": [each.detach() for each in self.network.parameters()],
            "best": self._best,
            "optimizer": self._optimizer.state_dict(),
        }
        partial = path.with_suffix(".part")
        self._torch.save(kept, partial)
        partial.replace(path)

    def take_up(self, path: Path) -> None:
        """Go on from what `save` wrote; only numbers are read from it."""
        kept = self._torch.load(path, weights_only=True)
        self.batch = kept["batch"]
        self.history = [Judged(batch, loss) for batch, loss in kept["history"]]
        self._best = kept["best"]
        self._put({"now": kept["now"]})
        self._optimizer.load_state_dict(kept["optimizer"])

    @property
    def best_loss(self) -> float:
        """The lowest with everything rounded."""
        return min(self._rounded_losses(), default=float("inf"))

    def _rounded_losses(self) -> list[float]:
        return [each.loss for each in self.history if each.batch > self.plan.exact_from]

    def _put(self, weights: dict[str, list[Any]]) -> None:
        with self._torch.no_grad():
            for own, other in zip(self.network.parameters(), weights["now"], strict=True):
                own.copy_(other)

    def _judge(self) -> Judged:
        with self._torch.no_grad():
            judged = Judged(self.batch, float(self._loss(self._judges)))
        if self.network.exact and judged.loss < self.best_loss:
            self._best = {"now": [each.detach().clone() for each in self.network.parameters()]}
        self.history.append(judged)
        return judged

    def _exhausted(self) -> bool:
        rounded = self._rounded_losses()
        late = rounded[-self.plan.patience :]
        return len(rounded) > self.plan.patience and min(late) > min(rounded)

    def _cuts(self, data: DataSet, random: np.random.Generator, count: int) -> tuple[Any, ...]:
        """(codes [cut, INPUTS, step], events, risk [cut, HORIZONS_S, judged], weights [cut])."""
        torch, lives = self._torch, data.lives
        kinds = sorted(self._by_kind)
        steps = len(lives.codes)
        length = min(CUT_STEPS, steps)
        codes, events, risk, weights = [], [], [], []
        for _ in range(count):
            kind = kinds[int(random.integers(len(kinds)))]
            if kind == QUIET and random.random() > QUIET_SHARE:
                kind = kinds[int(random.integers(len(kinds)))]
            gpus = [gpu for gpu, own in enumerate(lives.kinds) if own == kind]
            gpu = gpus[int(random.integers(len(gpus)))]
            fails = int(lives.fails[gpu])
            end = int(random.integers(length, steps + 1))
            if fails >= 0 and random.random() < NEAR_SHARE:
                end = min(max(fails - int(random.integers(NEAR_STEPS)), length), steps)
            begin = end - length
            judged = np.arange(begin + RECEPTIVE_STEPS, end, SPARSE_STEPS)
            happened, at_risk = parts(left(np.array(fails), judged))
            own = lives.codes[begin:end, :, gpu].T
            if data is self._data and random.random() < self.plan.disturbed:
                own = _disturbed(own, random)
            codes.append(own)
            events.append(happened)
            risk.append(at_risk)
            weights.append(self._signs[kind])
        return (
            torch.from_numpy(np.array(codes)),
            torch.from_numpy(np.array(events, np.float32)),
            torch.from_numpy(np.array(risk, np.float32)),
            torch.from_numpy(np.array(weights, np.float32)),
        )

    def _loss(self, cuts: tuple[Any, ...]) -> Any:
        codes, events, risk, weights = cuts
        logits = self.network.sparse(codes)
        losses = self._torch.nn.functional.binary_cross_entropy_with_logits(
            logits, events, reduction="none"
        )
        shares = risk * weights[:, None, None]
        return (losses * shares).sum() / shares.sum()


def _disturbed(codes: Codes, random: np.random.Generator) -> Codes:
    """As of a GPU of another family: levels lie elsewhere, and some channels cannot be read."""
    found = codes.copy()
    for name, most in LEVELS_SHIFTED.items():
        at = INPUTS.index(name)
        moved = found[at].astype(np.int16) + random.integers(-most, most + 1)
        there = found[len(CHANNELS) + at] == 0
        found[at] = np.where(there, moved.clip(-CODE_MAX, CODE_MAX), found[at])
    for at in np.flatnonzero(random.random(len(CHANNELS)) < UNREAD_SHARE).tolist():
        if at not in UNREAD_NEVER:
            found[at], found[len(CHANNELS) + at] = 0, MARK
    return found


def teaching(precursors: Precursors) -> dict[str, float]:
    """Kinds that something can be learnt of, each with what it weighs."""
    rarest = min(each.rate for each in precursors.kind)
    found = {
        each.name: min(each.rate / rarest, WEIGHT_MAX)
        for each in precursors.kind
        if each.sign or not each.fails
    }
    return found | {QUIET: WEIGHT_MAX}


def frozen(network: FloatNetwork, learnt: DataSet, *, data_sha256: str, card: str) -> Model:
    """The network in integers, with what it is shown of what it learnt from; no chances yet."""
    model = Model(
        inputs=INPUTS,
        channels=network.channels,
        stem=network.layer("stem"),
        convolutions=tuple(network.layer(f"convolution{at}") for at in range(2 * len(DILATIONS))),
        hidden=network.layer("hidden"),
        logits=network.layer("logits"),
        hazards=np.zeros((len(HORIZONS_S), LOGITS), "<i4").tobytes(),
        data_sha256=data_sha256,
        card=card,
    )
    expect_exact(model)
    return msgspec.structs.replace(model, shares=_shares(learnt, scored(model, learnt)))


def calibrated(model: Model, calibration: DataSet) -> Model:
    """Its hazards fitted to a split that it did not learn from; nothing else changes."""
    found = scored(model, calibration)
    events, risk = parts(found.until)
    logits: Ints = found.logits.astype(np.int64)
    tables = hazard_tables(logits, events, risk, found.weights, found.gpus)
    return msgspec.structs.replace(model, hazards=tables)


def _shares(data: DataSet, found: Scored) -> bytes:
    """What the model is shown, and says, of GPUs in which nothing happens: most of a fleet."""
    quiet = np.array(data.lives.kinds)[found.gpus] == QUIET
    codes = data.lives.codes[found.steps[quiet], :, found.gpus[quiet]].T
    tally = Tally()
    tally.add(Scores(codes, found.logits[:, quiet], np.ones(codes.shape[1], np.bool_)))
    return tally.shares()
