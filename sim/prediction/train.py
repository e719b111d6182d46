"""`nemesis ecc train`: data, training and freezing as one run in a folder, which can be taken up.

The folder holds `state.pt` while the run goes on, and at its end `model.msgpack` with a card that
says how it was made: parameters by their hash, seeds, losses. `nemesis ecc calibrate` fits the
chances of such a model anew, to other lives, and renews the card; its weights stay.
"""

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from nemesis.processors.ecc_model.model import Model
from nemesis.schemas.errors import NemesisError
from nemesis.sim.params import load_params
from nemesis.sim.prediction.float_network import torch_module
from nemesis.sim.prediction.precursors import Mix, Precursors
from nemesis.sim.prediction.splits import draw_set
from nemesis.sim.prediction.training import Judged, Plan, Trainer, calibrated, frozen

STATE: Final = "state.pt"
MODEL: Final = "model.msgpack"
CARD: Final = "card.md"
VALIDATION_SEED: Final = 1  # lives of the training split that are only judged by
CALIBRATED_TIMES: Final = 4
QUIET_TIMES: Final = 20
"""So many more lives to calibrate by: they cost a hundredth of a second each, and of the chances
that matter few healthy GPUs get any."""


class NoCardError(NemesisError):
    """A model that does not say how it was made."""

    exit_code = 2


class Card(msgspec.Struct, kw_only=True, frozen=True):
    """What a model says of how it was made."""

    mix: Mix
    plan: Plan
    each_count: int
    """Lives of every kind that it learnt from."""
    quiet_count: int
    calibrated_each_count: int = 0
    """And that its chances were fitted to; 0: as many as it learnt from."""
    calibrated_quiet_count: int = 0
    batches: int
    loss: float
    """The best validation loss with everything rounded."""
    history: tuple[Judged, ...]
    torch: str
    precursors_sha256: str
    params_sha256: str


def train(
    folder: Path,
    plan: Plan,
    precursors: Precursors,
    *,
    mix: Mix,
    each: int,
    quiet: int,
    told: Callable[[str], None],
) -> tuple[Model | None, Card]:
    """Train in a folder, from the start or from where it was left; a baseline gives no model.

    Raises:
        NoTorchError: torch is not installed.
    """
    torch = torch_module()
    torch.set_num_threads(1)  # a second thread collapses where anything else runs
    folder.mkdir(parents=True, exist_ok=True)
    told("drawing the lives of the GPUs to learn from")
    data = draw_set("train", precursors, each=each, quiet=quiet, seed=0, mix=mix)
    few = max(1, each // 4)
    judge = draw_set("train", precursors, each=few, quiet=few, seed=VALIDATION_SEED, mix=mix)
    trainer = Trainer(plan, data, judge, precursors)
    state = folder / STATE
    if state.exists():
        trainer.take_up(state)
        told(f"taking up the run after {trainer.batch} batches")
    trainer.run(lambda each: told(f"batch {each.batch}: loss {each.loss:.5f}"), state)
    params = load_params()
    card = Card(
        mix=mix,
        plan=plan,
        each_count=each,
        quiet_count=quiet,
        batches=trainer.batch,
        loss=trainer.best_loss,
        history=tuple(trainer.history),
        torch=str(torch.__version__),
        calibrated_each_count=CALIBRATED_TIMES * each,
        calibrated_quiet_count=QUIET_TIMES * quiet,
        precursors_sha256=precursors.sha256,
        params_sha256=params.sha256,
    )
    if plan.network != "tcn":
        (folder / CARD).write_text(written(card, b""))
        return None, card
    digest = sha256((precursors.sha256 + params.sha256).encode()).hexdigest()
    model = frozen(trainer.network, data, data_sha256=digest, card="")
    return _finished(folder, model, card, precursors, told), card


def calibrate(
    model: Model,
    folder: Path,
    precursors: Precursors,
    *,
    each: int,
    quiet: int,
    told: Callable[[str], None],
) -> tuple[Model, Card]:
    """Fit the chances of a trained model anew, and write it into a folder with its card.

    Raises:
        NoCardError: it does not say how it was made.
    """
    try:
        before = msgspec.json.decode(model.card, type=Card)
    except msgspec.DecodeError as error:
        raise NoCardError(
            f"a model whose card is no card of `nemesis ecc train`: {error}"
        ) from error
    card = replace(before, calibrated_each_count=each, calibrated_quiet_count=quiet)
    folder.mkdir(parents=True, exist_ok=True)
    return _finished(folder, model, card, precursors, told), card


def _finished(
    folder: Path, model: Model, card: Card, precursors: Precursors, told: Callable[[str], None]
) -> Model:
    """Calibrated and written, with its card."""
    told("calibrating on GPUs of their own")
    calibration = draw_set(
        "calibration",
        precursors,
        each=card.calibrated_each_count,
        quiet=card.calibrated_quiet_count,
        seed=0,
        mix=card.mix,
    )
    found = replace(calibrated(model, calibration), card=msgspec.json.encode(card).decode())
    raw = msgspec.msgpack.encode(found)
    (folder / MODEL).write_bytes(raw)
    (folder / CARD).write_text(written(card, raw))
    return found


def written(card: Card, raw: bytes) -> str:
    """A model card for people."""
    losses = "\n".join(f"| {each.batch} | {each.loss:.5f} |" for each in card.history)
    plan, digest = card.plan, sha256(raw).hexdigest()
    return f"""# Failure model {digest[:16]}

- weights: {len(raw)} bytes, SHA-256 `{digest}`
- learnt from synthetic lives of GPUs, mix `{card.mix}`: {card.each_count} of every kind and
  {card.quiet_count} quiet ones; precursors `{card.precursors_sha256}`, telemetry
  `{card.params_sha256}`
- chances fitted to {card.calibrated_each_count or card.each_count} other lives of every kind and
  {card.calibrated_quiet_count or card.quiet_count} quiet ones
- {plan.channels} channels, seed {plan.seed}, {card.batches} batches of {plan.batch} cuts, rounded
  from batch {plan.exact_from} on, torch {card.torch}
- best validation loss with everything rounded: {card.loss:.5f}
- not trained on, and not measured on, any real telemetry

| batch | validation loss |
|---|---|
{losses}
"""
