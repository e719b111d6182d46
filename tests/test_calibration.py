"""Promises of calibrated confidence: a verdict says of itself how often its like is right."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemesis.processors.attribution.calibration import (
    ANY_KIND,
    PPM,
    calibrated_ppm,
    read_off,
    verdict_kind,
)
from nemesis.processors.attribution.calibration_table import MEASURED, Measured
from tests.attribution_log import SECOND_NS, cluster, xid
from tests.calibrate import CONFIDENCE_PPM_MAX, Sample, fitted, line, rising

CLAIMS = st.integers(0, PPM)
KIND = "gpu.off_bus gpu"


def seen(
    right_count: int, count: int, claimed_ppm: int = 800_000, kind: str = KIND
) -> list[Sample]:
    """Verdicts of one kind and claim, so many of them right."""
    return [Sample(kind, claimed_ppm, at < right_count, named=True) for at in range(count)]


@given(low=CLAIMS, high=CLAIMS, kind=st.sampled_from(["", *MEASURED]))
def test_who_claims_more_is_never_believed_less(low: int, high: int, kind: str) -> None:
    low, high = sorted((low, high))
    rows = MEASURED.get(kind, ())
    assert 0 <= read_off(rows, low) <= read_off(rows, high) <= PPM


def test_a_kind_that_never_came_up_gets_what_its_claim_was_worth_in_all_kinds() -> None:
    assert "app.timeout switch" not in MEASURED
    found = calibrated_ppm("app.timeout", ["switch/s1"], 730_000)
    assert found == read_off(MEASURED.get(ANY_KIND, ()), 730_000)


@pytest.mark.parametrize("kind", sorted(MEASURED))
def test_every_row_of_the_table_rests_on_verdicts_and_none_is_certain(kind: str) -> None:
    rows = MEASURED[kind]
    assert [row.claimed_ppm for row in rows] == sorted({row.claimed_ppm for row in rows})
    for row in rows:
        assert row.verdicts_count > 0
        assert 0 <= row.right_count <= row.verdicts_count
        assert 0 < row.confidence_ppm <= CONFIDENCE_PPM_MAX


def test_between_two_measured_claims_the_line_between_them_holds() -> None:
    rows = (Measured(600_000, 9, 10, 800_000), Measured(800_000, 9, 10, 900_000))
    assert [read_off(rows, claim) for claim in (0, 300_000, 600_000, 700_000, 800_000, PPM)] == [
        0, 400_000, 800_000, 850_000, 900_000, PPM,
    ]  # fmt: skip


def test_a_verdict_says_what_is_measured_and_what_its_rule_claims() -> None:
    log = cluster("n1", "n2")
    log.kernel(xid(79, "0000:1b:00", "GPU has fallen off the bus."))
    log.tick(3)
    culprits = [each.id for each in log.last.culprits]
    assert log.last.claimed_ppm == 980_000
    assert log.last.confidence_ppm == calibrated_ppm("gpu.off_bus", culprits, 980_000)


def test_whether_somebody_is_named_rests_on_the_claim_and_not_on_the_table() -> None:
    log = cluster("n1", "n2")
    log.processor.configure(b'{"named_ppm_min": 981000}')
    log.kernel(xid(79, "0000:1b:00", "GPU has fallen off the bus."), at_ns=log.now_ns - SECOND_NS)
    log.tick(3)
    assert log.last.verdict == "class-only"
    assert log.last.claimed_ppm == 980_000


def test_few_verdicts_move_little_and_many_move_all_the_way_but_never_to_certainty() -> None:
    (few,) = fitted(seen(5, 5))[KIND]
    assert 900_000 < few.confidence_ppm < 960_000
    (many,) = fitted(seen(10_000, 10_000))[KIND]
    assert many.confidence_ppm == CONFIDENCE_PPM_MAX
    (wrong,) = fitted(seen(200, 1_000))[KIND]
    assert 200_000 < wrong.confidence_ppm < 205_000


def test_a_rare_kind_leans_on_what_others_with_its_claim_were_worth() -> None:
    crowd = seen(1_000, 1_000, kind="nic nic")
    (alone,) = fitted(seen(5, 5))[KIND]
    (among,) = fitted([*crowd, *seen(5, 5)])[KIND]
    assert among.confidence_ppm > alone.confidence_ppm


def test_a_claim_that_was_worth_less_than_a_lower_one_is_pooled_with_it() -> None:
    assert rising([(1, 3.0), (1, 1.0), (2, 5.0)]) == [2.0, 2.0, 5.0]
    assert rising([(1, 4.0), (1, 3.0), (2, 1.0)]) == [2.25, 2.25, 2.25]


def test_the_kind_of_a_verdict_is_its_class_and_what_it_names_first() -> None:
    assert verdict_kind("network.link", ["port/leaf1/3", "nic/n1/mlx5_0"]) == "network.link port"
    assert verdict_kind("network.link", []) == "network.link nobody"


def test_the_report_shows_the_error_before_and_after() -> None:
    own = seen(1_000, 1_000)
    assert "ECE  20.0 % ->  1.0 %" in line("x", own, fitted(own))
