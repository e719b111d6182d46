"""Promises of what the failure model is shown: rates, levels, what is missing and what is new."""

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from nemesis.processors.ecc_model.channels import CHANNELS, FLAGS, ChannelReader, Step
from nemesis.processors.ecc_model.inputs import (
    CODE_MAX,
    INPUTS,
    MARK,
    InputMaker,
    coded,
    octave_codes,
)
from nemesis.schemas.channels import ABSENT, GPU_CHANNELS

Readings = Mapping[str, int]
POLLED = np.array([True])
SILENT = np.array([False])


def block(*rows: Readings) -> NDArray[np.int64]:
    """A GPU each; what is not named reads 0."""
    return np.array([[row.get(name, 0) for name in GPU_CHANNELS] for row in rows], np.int64)


def shows(step: Step, name: str, gpu: int = 0) -> int | None:
    """A channel's value, None where it is missing."""
    at = CHANNELS.index(name)
    return None if step.missing[at, gpu] else int(step.values[at, gpu])


def flagged(step: Step, gpu: int = 0) -> list[str]:
    return [name for at, name in enumerate(FLAGS) if step.flags[at, gpu]]


def read(*steps: Readings | None) -> list[Step]:
    """One GPU, a reading or no poll a step."""
    reader = ChannelReader(1)
    return [reader.read(block(each or {}), SILENT if each is None else POLLED) for each in steps]


@pytest.mark.parametrize(
    ("channel", "readings", "expected"),
    [
        ("dram_ce", {"dram_ce_count": 7}, 7),
        ("dram_ue", {"dram_ue_count": 1}, 1),
        ("sram_ce", {"sram_ce_count": 2}, 2),
        ("sram_ue", {"sram_ue_count": 3}, 3),
        ("remapped_rows", {"remapped_rows_count": 4}, 4),
        ("spare_rows_low", {"banks_spare_low_count": 5}, 5),
        ("memory_temp_c", {"memory_temp_c": 61}, 61),
        ("power_mw", {"power_mw": 612_000}, 612_000),
        (
            "link_replay",
            {"pcie_replay_count": 1, "nvlink_replay_count": 2, "nvlink_crc_count": 4},
            7,
        ),
    ],
)
def test_each_channel_is_read_from_its_counters(
    channel: str, readings: Readings, expected: int
) -> None:
    _, second = read({}, readings)
    assert shows(second, channel) == expected


def test_a_lifetime_count_at_first_sight_says_nothing() -> None:
    first, second = read({"dram_ce_count": 10**9}, {"dram_ce_count": 10**9 + 2})
    assert (shows(first, "dram_ce"), shows(second, "dram_ce")) == (None, 2)
    assert shows(first, "memory_temp_c") == 0


def test_a_counter_that_fell_began_anew_and_says_so() -> None:
    _, fell, after = read({"dram_ce_count": 500}, {"dram_ce_count": 3}, {"dram_ce_count": 4})
    assert (shows(fell, "dram_ce"), flagged(fell)) == (3, ["counter_reset"])
    assert (shows(after, "dram_ce"), flagged(after)) == (1, [])


def test_what_came_while_nobody_polled_is_spread_and_never_lost() -> None:
    steps = read({}, None, None, {"dram_ce_count": 7, "dram_ue_count": 1}, {"dram_ce_count": 7})
    assert [shows(each, "dram_ce") for each in steps] == [None, None, None, 3, 0]
    assert shows(steps[3], "dram_ue") == 1


def test_what_cannot_be_read_is_missing_and_counts_go_on_after_it() -> None:
    _, without, again = read(
        {"sram_ce_count": 5, "memory_temp_c": 60},
        {"sram_ce_count": ABSENT, "memory_temp_c": ABSENT, "dram_ce_count": 1},
        {"sram_ce_count": 6},
    )
    assert shows(without, "sram_ce") is None
    assert shows(without, "memory_temp_c") is None
    assert shows(without, "dram_ce") == 1
    assert shows(again, "sram_ce") == 1


def test_a_gpu_without_nvlink_still_shows_what_its_pcie_link_replays() -> None:
    absent = {"nvlink_replay_count": ABSENT, "nvlink_crc_count": ABSENT}
    _, second = read(absent, {"pcie_replay_count": 3, **absent})
    assert shows(second, "link_replay") == 3
    _, none = read({}, {"pcie_replay_count": ABSENT, **absent})
    assert shows(none, "link_replay") is None


def test_with_mig_the_remapper_is_missing_and_all_else_is_read() -> None:
    mig = {"remapped_rows_count": ABSENT, "banks_spare_low_count": ABSENT, "remap_pending": ABSENT}
    _, second = read(mig, {"dram_ce_count": 1, **mig})
    assert shows(second, "remapped_rows") is None
    assert shows(second, "spare_rows_low") is None
    assert (shows(second, "dram_ce"), flagged(second)) == (1, [])


def test_no_poll_is_missing_in_every_channel() -> None:
    _, silent = read({"memory_temp_c": 60, "remap_pending": 1}, None)
    assert [shows(silent, name) for name in CHANNELS] == [None] * len(CHANNELS)
    assert flagged(silent) == []


def test_states_and_reasons_of_the_clock_are_flags() -> None:
    (step,) = read({"remap_pending": 1, "remap_failed": 1, "clock_event_reasons": 0x20 | 0x80})
    assert flagged(step) == ["remap_pending", "remap_failed", "thermal_slowdown", "power_brake"]
    (capped,) = read({"clock_event_reasons": 0x4})
    assert flagged(capped) == []


def test_another_part_in_the_place_is_seen_for_the_first_time() -> None:
    reader, maker = ChannelReader(2), InputMaker(2)
    polled = np.array([True, True])
    old = {"dram_ce_count": 900, "dram_ue_count": 1}
    for row in ({}, old):
        maker.make(reader.read(block(row, row), polled))
    reader.forget(np.array([0]))
    maker.forget(np.array([0]))
    step = reader.read(block({"dram_ce_count": 950}, {"dram_ce_count": 950}), polled)
    assert (shows(step, "dram_ce", 0), shows(step, "dram_ce", 1)) == (None, 50)
    codes = maker.make(step)
    recency = INPUTS.index("ue_recency")
    assert (codes[recency, 0], codes[recency, 1] > 0) == (0, True)


def test_a_block_that_is_too_narrow_or_short_is_refused() -> None:
    for rows, columns in ((1, 4), (2, len(GPU_CHANNELS))):
        with pytest.raises(ValueError, match="expected 1 rows of 16 or more"):
            ChannelReader(1).read(np.zeros((rows, columns), np.int64), POLLED)


@settings(max_examples=50)
@given(
    polls=st.lists(
        st.none() | st.tuples(st.integers(-3, 2**62), st.integers(-(2**63), 2**63 - 1)),
        max_size=12,
    )
)
def test_whatever_counters_and_levels_do_codes_stay_codes(
    polls: list[tuple[int, int] | None],
) -> None:
    reader, maker = ChannelReader(1), InputMaker(1)
    for each in polls:
        counter, level = each or (0, 0)
        row = {name: counter for name in GPU_CHANNELS} | {"memory_temp_c": level}
        step = reader.read(block(row), SILENT if each is None else POLLED)
        codes = maker.make(step)
        assert (np.abs(codes.astype(int)) <= CODE_MAX).all()
        assert (step.values[step.missing] == 0).all()
        assert codes[9:18, 0].tolist() == (step.missing[:, 0] * MARK).tolist()


def test_codes_grow_with_the_count_and_an_octave_has_so_many() -> None:
    counts = np.array([0, 1, 2, 3, 4, 8, 1000, 10**6])
    assert coded(counts, octave_codes(3)).tolist() == [0, 8, 16, 20, 24, 32, 87, 127]
    assert coded(counts, octave_codes(2)).tolist() == [0, 4, 8, 10, 12, 16, 43, 83]


def test_one_error_is_remembered_for_a_month_and_the_hours_forget_it_sooner() -> None:
    maker, reader = InputMaker(1), ChannelReader(1)
    reader.read(block({}), POLLED)
    seen = block({"dram_ue_count": 1, "dram_ce_count": 1})
    row = {name: at for at, name in enumerate(INPUTS)}
    first = maker.make(reader.read(seen, POLLED))[:, 0]
    quiet = reader.read(seen, POLLED)
    last = [maker.make(quiet)[:, 0] for _ in range(2 * 4096)][-1]  # 11.4 hours
    assert first[row["ue_recency"]] == CODE_MAX - 4
    assert {first[row[name]] for name in ("ue_month", "ce_hours", "ce_day", "ce_week")} == {20}
    assert [last[row[name]] for name in ("ue_month", "ce_week", "ce_day", "ce_hours")] == [
        19,  # of sixteen sixteenths one has faded
        19,
        16,
        8,  # e^-2 of sixteen is two
    ]
    assert 0 < last[row["ue_recency"]] < first[row["ue_recency"]]
