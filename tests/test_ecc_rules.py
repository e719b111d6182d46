"""Promises of ecc_rules: only documented thresholds speak, and only when the band changes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemesis.processors.ecc_rules.ecc_rules import EccRules
from nemesis.processors.ecc_rules.rules import CORRECTED_MAX, PROBATION_NS, RULES
from nemesis.processors.incident.names import incident_of
from nemesis.schemas.channels import ABSENT, GPU_CHANNELS
from nemesis.schemas.errors import MalformedFactError
from nemesis.schemas.inferred import FailurePredicted
from tests.attribution_log import SECOND_NS, Log, cluster, gpu_block, xid

GPU = "gpu/n1/0000:1b:00.0"


def memory_log() -> Log:
    """Two nodes with two GPUs each, whose first samples were clean."""
    log = cluster("n1", "n2", log=Log(EccRules()))
    read(log)
    return log


def read(log: Log, **first: int) -> None:
    """A sample in which the first GPU of n1 shows these."""
    log.sample("n1", gpu_count=2, gpu=gpu_block(first, {}))


def predictions(log: Log) -> list[FailurePredicted]:
    return [each.data for each in log.conclusions if isinstance(each.data, FailurePredicted)]


def bands(log: Log) -> list[tuple[str, str]]:
    return [(each.band, each.rule) for each in predictions(log)]


def test_a_failed_remapping_is_told_once_with_the_part_its_rank_and_what_was_read() -> None:
    log = memory_log()
    read(log, remap_failed=1)
    read(log, remap_failed=1, temp_c=50)
    (said,) = log.conclusions
    (predicted,) = predictions(log)
    assert (predicted.component, predicted.fault_class) == (GPU, "gpu.memory")
    assert (predicted.band, predicted.rule) == ("act", "remap_failed")
    assert (predicted.jobs, predicted.ranks) == (("llama",), (0,))
    assert predicted.evidence[0].fact == log.facts[-2].id
    assert predicted.incident == said.key == incident_of(log.facts[-2].id)
    assert said.cause == (log.facts[-2].seq,)


@pytest.mark.parametrize(
    ("reading", "said"),
    [
        ({"dram_ce_count": 500_000}, []),
        ({"remapped_rows_count": 3}, []),
        ({"pcie_replay_count": 10**9, "utilization_ppm": 7}, []),
        ({"remap_pending": 1}, [("record", "remap_pending")]),
        ({"banks_spare_low_count": 1}, [("record", "spare_rows_low")]),
        ({"dram_ue_count": 1}, [("record", "uncorrectable")]),
        ({"sram_ue_count": 4}, []),
        ({"sram_ue_count": 5}, [("watch", "sram_uncorrectable_max")]),
        ({"dram_ce_count": CORRECTED_MAX}, [("watch", "corrected_max")]),
        ({"remapped_rows_count": 448}, [("watch", "remapped_rows_max")]),
        (
            {"banks_spare_low_count": 1, "remapped_rows_count": 9},
            [("watch", "spare_rows_used")],
        ),
    ],
)
def test_each_threshold_gives_the_band_of_its_source(
    reading: dict[str, int], said: list[tuple[str, str]]
) -> None:
    log = memory_log()
    read(log, **reading)
    assert bands(log) == said


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (48, [("record", "uncorrectable")]),
        (63, []),
        (64, [("act", "remap_failed")]),
        (79, []),
        (92, [("record", "corrected_rate")]),
        (94, [("record", "uncorrectable")]),
        (95, [("record", "uncorrectable")]),
    ],
)
def test_each_xid_of_the_memory_gives_the_band_of_its_source(
    code: int, said: list[tuple[str, str]]
) -> None:
    log = memory_log()
    log.kernel(xid(code))
    assert bands(log) == said


def test_rows_that_are_remapped_while_spare_rows_are_low_raise_the_band_under_one_incident() -> (
    None
):
    log = memory_log()
    read(log, banks_spare_low_count=1)
    log.kernel(xid(63))
    read(log, banks_spare_low_count=1, remapped_rows_count=1, remap_failed=1)
    assert [band for band, _ in bands(log)] == ["record", "watch", "act"]
    assert len({each.incident for each in predictions(log)}) == 1


def test_a_band_comes_down_only_after_calm_and_is_then_another_incident() -> None:
    log = memory_log()
    read(log, remap_pending=1)
    read(log)
    log.tick(500)
    assert bands(log) == [("record", "remap_pending")]
    log.tick(160)
    assert bands(log)[1:] == [("clear", "")]
    read(log, remap_pending=1)
    first, cleared, again = predictions(log)
    assert first.incident == cleared.incident != again.incident


def test_a_flag_that_flickers_is_told_once() -> None:
    log = memory_log()
    for _ in range(20):
        read(log, banks_spare_low_count=1)
        log.tick(30)
        read(log)
        log.tick(30)
    assert bands(log) == [("record", "spare_rows_low")]


def test_after_an_uncorrectable_error_a_gpu_is_on_probation_for_thirty_days() -> None:
    log = memory_log()
    read(log, dram_ue_count=1)
    log.tick(PROBATION_NS / SECOND_NS - 60)
    assert len(predictions(log)) == 1
    log.tick(180)
    assert [band for band, _ in bands(log)] == ["record", "clear"]


def test_counters_that_begin_anew_after_a_reboot_are_no_news_and_rise_from_there() -> None:
    log = memory_log()
    read(log, dram_ce_count=900, sram_ue_count=3, remapped_rows_count=2)
    read(log)
    read(log, dram_ce_count=1, sram_ue_count=3)
    assert bands(log) == []
    read(log, dram_ue_count=1)
    assert bands(log) == [("record", "uncorrectable")]


def test_a_reading_that_could_not_be_taken_changes_nothing() -> None:
    log = memory_log()
    read(log, banks_spare_low_count=1)
    lost = dict.fromkeys(GPU_CHANNELS, ABSENT)
    read(log, **lost)
    log.tick(3600)
    read(log, banks_spare_low_count=1)
    assert bands(log) == [("record", "spare_rows_low")]


def test_a_storm_of_corrected_errors_is_degraded_and_no_forecast_of_a_failure() -> None:
    log = memory_log()
    for minute in range(14):
        read(log, dram_ce_count=1_000 * minute)
        log.tick(60)
    (said,) = predictions(log)
    assert (said.band, said.rule, said.probability_ppm) == ("record", "degraded", 0)
    assert said.evidence[0].says == "1000 corrected errors in the last 60 s"
    log.tick(3_700)
    assert bands(log)[1:] == [("clear", "")]


@pytest.mark.parametrize(
    "counts",
    [
        [1_000 * (minute // 2) for minute in range(40)],  # a burst every other minute
        [50 * minute for minute in range(40)],  # fewer than one a second
        [5_000_000, *[0] * 20],  # what it counted in its life, and a reboot
    ],
)
def test_bursts_and_a_trickle_of_corrected_errors_are_no_storm(counts: list[int]) -> None:
    log = memory_log()
    for count in counts:
        read(log, dram_ce_count=count)
        log.tick(60)
    assert predictions(log) == []


def test_another_gpu_in_the_same_place_clears_what_was_said_of_the_one_before() -> None:
    log = cluster("n1", log=Log(EccRules()))
    log.inventory("n1", "0000:1b:00.0", serial="1")
    read(log, remap_failed=1)
    log.inventory("n1", "0000:1b:00.0", serial="1")
    assert [band for band, _ in bands(log)] == ["act"]
    log.inventory("n1", "0000:1b:00.0", serial="2")
    assert [band for band, _ in bands(log)] == ["act", "clear"]


def test_late_facts_and_parts_that_nobody_knows_predict_nothing() -> None:
    log = memory_log()
    failed = gpu_block({"remap_failed": 1}, {})
    log.sample("n1", gpu_count=2, gpu=failed, at_ns=log.now_ns - 31 * SECOND_NS)
    log.sample("n9", gpu_count=2, gpu=failed)
    log.kernel(xid(64), at_ns=log.now_ns - 31 * SECOND_NS)
    log.kernel(xid(64), "n9")
    log.kernel(xid(64, "0000:99:00"))
    log.sample("n1", gpu_count=2, gpu=b"short")
    assert predictions(log) == []


def test_no_rule_claims_a_probability_without_a_horizon() -> None:
    assert all((rule.probability_ppm > 0) == (rule.horizon_ns > 0) for rule in RULES)
    order = {"act": 0, "watch": 1, "record": 2}
    assert [order[rule.band] for rule in RULES] == sorted(order[rule.band] for rule in RULES)


def test_it_has_no_settings() -> None:
    with pytest.raises(MalformedFactError):
        EccRules().configure(b'{"x": 1}')


rows = st.dictionaries(
    st.sampled_from(GPU_CHANNELS[:8]),
    st.sampled_from((0, 1, 2, 9, 500, CORRECTED_MAX, ABSENT)),
)


@settings(max_examples=40)
@given(st.lists(st.tuples(rows, st.sampled_from((1, 61, 700))), max_size=12))
def test_a_band_is_never_said_twice_in_a_row_and_always_opens_with_more_than_clear(
    readings: list[tuple[dict[str, int], int]],
) -> None:
    log = memory_log()
    for reading, seconds in readings:
        read(log, **reading)
        log.tick(seconds)
    said = [band for band, _ in bands(log)]
    assert all(one != other for one, other in zip(["clear", *said], said, strict=False))
