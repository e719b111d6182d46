"""Promises of drift: a day's shares of what the model was shown, against those of training."""

import msgspec
import numpy as np
import pytest

from nemesis.processors.ecc_model.drift import Tally
from nemesis.processors.ecc_model.ecc_model import EccModel
from nemesis.processors.ecc_model.inputs import INPUTS
from nemesis.processors.ecc_model.model import HORIZONS_S, SHARE_BINS, load_model
from nemesis.processors.ecc_model.scorer import Scores
from nemesis.processors.fold import Fold
from nemesis.schemas.errors import MalformedFactError
from nemesis.schemas.facts import decode_conclusion
from nemesis.schemas.inferred import ModelDriftMeasured
from tests.ecc_log import HISTORY, Nodes, quiet, stepped, watched
from tests.failure_models import filed, watching_model

DAY_CELLS = 17_280
ROWS = len(INPUTS) + len(HORIZONS_S)


def scores(code: int, logit: int, *heard: bool) -> Scores:
    """Every GPU shows the same."""
    return Scores(
        np.full((len(INPUTS), len(heard)), code, np.int8),
        np.full((len(HORIZONS_S), len(heard)), logit, np.int16),
        np.array(heard),
    )


def trained(code: int, logit: int) -> bytes:
    """The shares of training in which nothing else was ever shown."""
    tally = Tally()
    tally.add(scores(code, logit, True))
    return tally.shares()


@pytest.mark.parametrize("value", [-127, -1, 0, 1, 127])
def test_what_lies_where_it_lay_in_training_has_not_moved(value: int) -> None:
    tally = Tally()
    tally.add(scores(value, value * 16, True, True))
    assert tally.seen == 2
    assert tally.shifts_ppm(trained(value, value * 16)) == [0] * ROWS
    far = 127 if value < 0 else -127
    assert tally.shifts_ppm(trained(far, far * 16)) == [1_000_000] * ROWS


def test_the_shift_is_the_part_that_lies_elsewhere() -> None:
    tally = Tally()
    for code in (0, 0, 0, 100):
        tally.add(scores(code, 0, True))
    shifts = tally.shifts_ppm(trained(0, 0))
    assert shifts[: len(INPUTS)] == [250_000] * len(INPUTS)
    assert shifts[len(INPUTS) :] == [0] * len(HORIZONS_S)


def test_who_is_not_judged_is_not_counted_and_a_state_is_taken_up() -> None:
    tally, other = Tally(), Tally()
    tally.add(scores(100, 5, False, False))
    assert tally.seen == 0
    tally.add(scores(100, 5, True, False))
    other.resume(tally.state())
    assert (other.seen, other.shares()) == (1, tally.shares())
    assert other.state() == tally.state()


def drifts(shares: bytes, log: Nodes) -> list[ModelDriftMeasured]:
    """What a model that was trained with these shares says of its days."""
    model = msgspec.structs.replace(watching_model("power_mw"), shares=shares)
    name, raw = filed(model)
    records = [*log.records]
    activated = next(at for at, each in enumerate(records) if "processor_activated" in each.subject)
    renamed = watched("n1", model=name)
    records[activated] = msgspec.structs.replace(renamed.records[-1], seq=records[activated].seq)
    said = stepped(Fold(EccModel({name: raw}.get)), records)
    data = [decode_conclusion(each.subject.split(".")[2], each.payload)[1] for each in said]
    assert all(isinstance(each, ModelDriftMeasured) for each in data)
    assert all(each.model == name for each in data)
    return data


def test_after_a_day_one_fact_says_which_input_is_farthest_from_training() -> None:
    log = quiet(watched("n1"), "n1", cells=HISTORY + 36)
    log.tick(DAY_CELLS)
    quiet(log, "n1", cells=5)
    (told,) = drifts(trained(0, 0), log)
    assert told.seen_count == 6  # three minutes, two GPUs
    shifts = {each.name: each.shift_ppm for each in told.inputs}
    assert "dram_ce" not in shifts
    assert shifts["memory_temp_c"] == 1_000_000
    assert told.score_shift_ppm == 0
    assert told.reason.endswith(
        "of its inputs memory_temp_c is farthest from training, 100 % lie elsewhere; "
        "of its scores 0 %"
    )


def test_a_day_without_judgement_and_a_model_without_shares_say_nothing() -> None:
    log = quiet(watched("n1"), "n1", cells=HISTORY + 36)
    log.tick(DAY_CELLS)
    quiet(log, "n1", cells=5)
    assert drifts(b"", log) == []
    early = quiet(watched("n1"), "n1", cells=30)
    early.tick(DAY_CELLS)
    assert drifts(trained(0, 0), early) == []


def test_a_model_whose_shares_do_not_fit_is_refused() -> None:
    _, raw = filed(msgspec.structs.replace(watching_model("power_mw"), shares=b"abc"))
    with pytest.raises(MalformedFactError, match=f"expected {4 * ROWS * SHARE_BINS} or none"):
        load_model(raw)
