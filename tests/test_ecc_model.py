"""Promises of the failure model as a processor: it speaks of changes alone, and only if it may."""

from hashlib import sha256

import pytest

from nemesis.processors.catalogue import first_settings
from nemesis.processors.ecc_model.ecc_model import EccModel
from nemesis.processors.ecc_model.model import load_model
from nemesis.processors.ecc_model.shipped import FIRST_MODEL, shipped
from nemesis.processors.fold import Input
from nemesis.processors.processor import NotInReleaseError
from nemesis.schemas.channels import ABSENT
from nemesis.schemas.errors import MalformedFactError
from tests.conftest import ROOT
from tests.ecc_log import (
    FILE,
    HISTORY,
    MODEL,
    OTHER,
    Nodes,
    bands,
    fold,
    power_for,
    quiet,
    said,
    settings,
    stepped,
    watched,
)

GPU = "gpu/n1/0000:01:00.0"
SECOND = "gpu/n1/0000:02:00.0"
ACT, WATCH, RECORD, HALF_ACT = 122, 110, 65, 60
"""Codes: a chance of 95, 86, 51 and 47 %."""


def shown(log: Nodes, *codes: int, node: str = "n1") -> Nodes:
    """A cell each, the first GPU at this code and the second at rest."""
    for code in codes:
        log.power(node, code, 0)
        log.tick()
    return log


def test_a_gpu_whose_chance_crosses_a_band_is_told_once_with_its_model_and_its_jobs() -> None:
    log = watched("n1")
    log.submit("llama", "n1", 2)
    shown(quiet(log, "n1"), ACT, ACT, ACT)
    (told,) = said(log)
    assert (told.component, told.band, told.rule) == (GPU, "act", "ecc_model")
    assert (told.probability_ppm, told.horizon_ns) == (953_125, 1_800_000_000_000)
    assert (told.jobs, told.ranks) == (("llama",), (0,))
    assert told.reason == (
        f"{GPU}: model {MODEL[:12]} gives it a chance of 95 % to fail within 0.5 h;"
        " its counters show nothing by themselves"
    )
    assert told.evidence[0].says.startswith("within 0.5, 1, 2 and 3 h: 95, 95, 95, 95 %;")
    assert told.incident.startswith("i-")


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ((RECORD, WATCH, ACT), ["record", "watch", "act"]),
        ((ACT, WATCH, RECORD, HALF_ACT - 1), ["act", "watch"]),
        ((ACT, HALF_ACT + 1, ACT), ["act"]),
        ((WATCH, HALF_ACT - 4, HALF_ACT - 6, 3), ["watch", "record", "clear"]),
        ((RECORD, 0, RECORD), ["record", "clear", "record"]),
    ],
)
def test_a_band_goes_up_at_its_threshold_and_down_below_half_of_it(
    codes: tuple[int, ...], expected: list[str]
) -> None:
    told = bands(shown(quiet(watched("n1"), "n1"), *codes))
    assert told == [(GPU, band) for band in expected]


def test_what_is_on_record_is_told_once_at_each_level_of_its_chance_until_it_is_over() -> None:
    """Codes of 5.5, 7.0, 11, 3.1, 21, 3.9, 21 and 1.6 %."""
    log = shown(quiet(watched("n1"), "n1"), 7, 9, 14, 4, 27, 5, 27, 2)
    told = [(each.band, each.probability_ppm // 1000) for each in said(log)]
    up = [("record", 54), ("record", 70), ("record", 109), ("record", 210)]
    assert told == [*up, ("clear", 0)]
    assert {each.horizon_ns for each in said(log)[:-1]} == {7_200_000_000_000}
    assert len({each.incident for each in said(log)}) == 1


def test_from_the_first_band_to_its_end_it_is_one_incident_and_then_another() -> None:
    log = shown(quiet(watched("n1"), "n1"), RECORD, ACT, 0, ACT)
    incidents = [each.incident for each in said(log)]
    assert incidents[0] == incidents[1] == incidents[2] != incidents[3]


def test_two_gpus_of_one_sample_are_two_incidents() -> None:
    log = quiet(watched("n1"), "n1")
    log.power("n1", ACT, ACT)
    log.tick()
    told = said(log)
    assert [each.component for each in told] == [GPU, SECOND]
    assert told[0].incident != told[1].incident


def test_nothing_is_said_in_a_parts_first_31_minutes() -> None:
    log = watched("n1")
    shown(log, *[ACT] * HISTORY)
    assert bands(log) == []
    assert bands(shown(log, ACT)) == [(GPU, "act")]


def test_time_before_the_first_poll_is_no_history() -> None:
    log = watched("n1")
    for _ in range(HISTORY):
        log.tick()
    assert bands(shown(log, *[ACT] * HISTORY)) == []
    assert bands(shown(log, ACT)) == [(GPU, "act")]


def test_another_serial_in_the_place_is_another_part() -> None:
    log = shown(quiet(watched("n1"), "n1"), ACT)
    log.inventory("n1", "new", "n1-1")
    shown(log, *[ACT] * HISTORY)
    assert bands(log) == [(GPU, "act"), (GPU, "clear")]
    assert said(log)[1].reason == f"{GPU}: another GPU is in its place"
    log.power("n1", ACT, ACT)
    log.tick()
    assert bands(log)[2:] == [(GPU, "act"), (SECOND, "act")]


def test_the_same_inventory_again_forgets_nothing() -> None:
    log = quiet(watched("n1"), "n1")
    log.inventory("n1", "n1-0", "n1-1")
    assert bands(shown(log, ACT)) == [(GPU, "act")]


def test_a_node_that_shows_another_number_of_gpus_begins_anew() -> None:
    log = shown(quiet(watched("n1", "n2"), "n1", "n2"), ACT)
    log.inventory("n1", "n1-0")
    for _ in range(3):
        log.power("n1", ACT)
        log.power("n2", ACT, 0)
        log.tick()
    told = bands(log)
    assert told == [(GPU, "act"), (GPU, "clear"), ("gpu/n2/0000:01:00.0", "act")]


def test_a_cell_without_a_sample_is_missing_and_no_recovery() -> None:
    log = shown(quiet(watched("n1"), "n1"), ACT)
    for _ in range(3):
        log.tick()
    assert bands(log) == [(GPU, "act"), (GPU, "clear")]  # what this model sees of nothing is 0
    assert said(log)[1].reason.endswith("came down to 0, 0, 0, 0 % within 0.5, 1, 2 and 3 h")


def test_what_is_late_or_not_read_changes_nothing() -> None:
    log = quiet(watched("n1"), "n1")
    log.sample("n1", {"power_mw": power_for(ACT)}, {}, at_ns=log.now_ns - 31_000_000_000)
    log.tick()
    log.sample("n1", {"power_mw": ABSENT}, {"power_mw": -5})
    log.tick()
    log.sample("n9", {"power_mw": power_for(ACT)})
    log.sample("n1", {"power_mw": power_for(ACT)})  # another number of GPUs than the node has
    log.tick()
    assert bands(log) == []


def test_short_gaps_of_the_clock_are_cells_without_a_sample() -> None:
    log = quiet(watched("n1"), "n1", cells=HISTORY - 5)
    log.power("n1", 0, 0)
    log.tick(5)
    assert bands(shown(log, ACT)) == [(GPU, "act")]


def test_after_more_than_a_minute_without_a_tick_the_window_begins_anew() -> None:
    log = quiet(watched("n1"), "n1")
    log.power("n1", ACT, 0)
    log.tick(13)
    assert bands(shown(log, *[ACT] * (HISTORY - 1))) == []
    assert bands(shown(log, ACT)) == [(GPU, "act")]


def test_a_second_ticker_and_ticks_within_a_cell_make_no_step() -> None:
    log = watched("n1")
    for _ in range(HISTORY):
        log.power("n1", ACT, 0)
        log.tick()
        for _ in range(3):
            log.tick(0)
    assert bands(log) == []
    for _ in range(4):
        log.power("n1", ACT, 0)
        log.tick(0.25)
    assert bands(log) == [(GPU, "act")]


def test_without_a_model_it_reads_no_samples_and_says_nothing() -> None:
    log = watched("n1", model=None)
    shown(log, *[ACT] * (HISTORY + 2))
    own = fold()
    assert stepped(own, log.records) == []
    assert "sample" not in own.heeds
    stepped(own := fold(), watched("n1").records)
    assert "sample" in own.heeds


def test_a_model_that_is_activated_later_knows_the_nodes_that_were_told_before() -> None:
    log = watched("n1", model=None)
    log.tick(1000)
    log.activate(MODEL)
    assert bands(shown(quiet(log, "n1"), ACT)) == [(GPU, "act")]


def test_what_a_model_said_is_taken_back_when_none_is_active_any_more() -> None:
    log = shown(quiet(watched("n1"), "n1"), ACT)
    log.activate(None)
    log.tick()
    told = said(log)
    assert [each.band for each in told] == ["act", "clear"]
    assert told[1].reason == f"{GPU}: no model is active any more"


def test_another_model_is_silent_until_it_has_seen_half_an_hour_itself() -> None:
    log = shown(quiet(watched("n1"), "n1"), ACT)
    log.activate(OTHER)
    shown(log, *[ACT] * HISTORY)
    assert bands(log) == [(GPU, "act")]
    assert bands(shown(log, ACT)) == [(GPU, "act"), (GPU, "clear")]  # it looks at the temperature


def test_a_model_that_is_not_here_does_not_answer_and_says_what_to_do() -> None:
    log = watched("n1", model="0" * 64)
    own = fold()
    stepped(own, log.records)
    assert own.lacks == (
        f"ecc_model: the active model {'0' * 64} is not in this release;"
        " run the release that ships it, put its file into the folder NEMESIS_MODELS,"
        " or activate one that is here"
    )
    with pytest.raises(AssertionError, match="is not in this release"):
        own.step(Input(quiet(log, "n1", cells=1).records[-1]))


def test_a_file_that_is_not_what_its_name_says_is_not_the_model() -> None:
    with pytest.raises(NotInReleaseError, match="is not in this release"):
        EccModel({MODEL: FILE[:-1] + b"x"}.get).configure(settings(MODEL))


@pytest.mark.parametrize("wrong", [b'{"model":"abc"}', b'{"models":[]}', b"[]", b"nonsense"])
def test_settings_that_are_none_are_refused(wrong: bytes) -> None:
    with pytest.raises(MalformedFactError, match="ecc_model"):
        EccModel().configure(wrong)


def test_a_part_without_sram_counters_and_nvlink_or_with_mig_is_judged_by_the_rest() -> None:
    hidden = (
        "sram_ce_count", "sram_ue_count", "nvlink_replay_count", "nvlink_crc_count",
        "remapped_rows_count", "banks_spare_low_count", "remap_pending", "remap_failed",
    )  # fmt: skip
    log = watched("n1")
    for code in (*[0] * HISTORY, ACT):
        row = {"power_mw": power_for(code)} | dict.fromkeys(hidden, ABSENT)
        log.sample("n1", row, {})
        log.tick()
    assert bands(log) == [(GPU, "act")]


def test_every_model_that_is_shipped_is_what_its_name_says_and_one_of_them_comes_first() -> None:
    files = {
        each.name.removesuffix(".msgpack"): each.read_bytes()
        for each in (ROOT / "processors" / "ecc_model" / "weights").glob("*.msgpack")
    }
    for name, raw in files.items():
        assert sha256(raw).hexdigest() == name
        model = load_model(raw)
        assert model.data_sha256
        assert model.card
        assert model.shares
        assert shipped(name) == raw
    assert FIRST_MODEL in {*files, ""}
    EccModel().configure(first_settings("ecc_model"))
    assert shipped("0" * 64) is None
