"""Promises of the report: counts are counts, and nothing is lost, mixed or flattered."""

from pathlib import Path
from typing import Any

import pytest

from nemesis.sim.truth.calibration import calibration
from nemesis.sim.truth.ledger import LedgerOpened, MembershipFormed
from nemesis.sim.truth.ledger_file import BadLedgerError, ledger_of, read_ledger_file, write_ledger
from nemesis.sim.truth.report import outcome_of, report
from nemesis.sim.truth.report_text import lines
from nemesis.sim.truth.score import FaultScore, Score
from nemesis.sim.truth.scored import Ceiling, MixedParametersError, ScoredRun


def fault(**fields: Any) -> FaultScore:
    said: dict[str, Any] = {
        "kind": "xid79",
        "culprit": "gpu/n001/0000:1b:00.0",
        "detected": True,
        "verdict": "attributed",
        "named": ("gpu/n001/0000:1b:00.0",),
        "class_right": True,
        "culprit_right": True,
        "wrong_blame": (),
        "action": "shrink",
        "action_right": True,
        "to_verdict_ms": 500,
        "to_decision_ms": 600,
        "to_resume_ms": 4_000,
        "true_class": "gpu.off_bus",
        "fault_class": "gpu.off_bus",
        "attributable": True,
        "right_at": 0,
        "confidence_ppm": 900_000,
        "to_detect_ms": 400,
        "to_attribute_ms": 500,
    }
    return FaultScore(**{**said, **fields})


SILENT: dict[str, Any] = {
    "detected": False,
    "verdict": "",
    "named": (),
    "fault_class": "",
    "class_right": False,
    "right_at": None,
    "to_attribute_ms": None,
}


def run(*faults: FaultScore, alarms: tuple[str, ...] = (), params: str = "a") -> ScoredRun:
    return ScoredRun(
        suite="basic",
        scenario="basic-1",
        seed=1,
        cluster="drawn",
        nodes_count=16,
        gpus_count=128,
        passed_ns=86_400_000_000_000 // 128,
        params_sha256=params,
        nemesis_version="0.1.0",
        ceiling=Ceiling(
            right_count=sum(bool(each.attributable) for each in faults), wrong_blame_count=0
        ),
        score=Score(
            faults=faults,
            false_alarms=alarms,
            recovered=True,
            steps_redone_count=0,
            restarts_count=0,
            world=111,
        ),
    )


def test_every_fault_ends_in_one_outcome_and_wrong_blame_outweighs_all() -> None:
    assert outcome_of(fault()) == "right"
    assert outcome_of(fault(wrong_blame=("nic/n002/mlx5_0",))) == "wrong blame"
    assert outcome_of(fault(right_at=2)) == "among three"
    assert outcome_of(fault(right_at=None)) == "beside"
    assert outcome_of(fault(right_at=None, named=())) == "abstained"
    assert outcome_of(fault(**SILENT)) == "silent"


def test_rates_are_counts_of_counts() -> None:
    found = report(
        [
            run(fault(), fault(right_at=1), alarms=("i-1",)),
            run(fault(**SILENT, attributable=False)),
            run(fault(wrong_blame=("nic/n002/mlx5_0",), right_at=None, fault_class="nic")),
        ]
    )
    assert (found.top1.count, found.top1.of, found.top1.ppm) == (1, 4, 250_000)
    assert (found.top3.count, found.wrong_blame.count, found.abstained.count) == (2, 1, 1)
    assert (found.attributable.count, found.attributable_in_bounds) == (3, True)
    assert (found.top1_of_attributable.count, found.top1_of_attributable.of) == (1, 3)
    assert sum(found.outcomes.values()) == 4
    assert {(each.said_class, each.count) for each in found.confusion} >= {("(silent)", 1)}
    assert found.to_attribute.median_ms == 500
    text = "\n".join(lines(found))
    assert "75.0 %   (3 of 4)" in text
    assert "parameters a" in text


@pytest.mark.parametrize(("faults_count", "inside"), [(1, True), (19, True), (20, False)])
def test_a_share_of_few_faults_proves_nothing(faults_count: int, inside: bool) -> None:
    assert report([run(fault()) for _ in range(faults_count)]).attributable_in_bounds is inside


def test_false_alarms_are_counted_per_gpu_day_with_what_they_may_be_at_most() -> None:
    (one, none) = (report([run(alarms=("i-1",))]).alarms, report([run()]).alarms)
    # each run watches one GPU-day
    assert (one.per_1000_gpu_days_milli, none.per_1000_gpu_days_milli) == (1_000_000, 0)
    assert none.at_most_per_1000_gpu_days_milli == 2_996_000
    # exact, chi-square: 5.572 events
    assert abs((one.at_most_per_1000_gpu_days_milli or 0) - 5_572_000) < 60_000


def test_scores_of_different_parameters_are_never_added_up() -> None:
    with pytest.raises(MixedParametersError, match="2 different parameter files"):
        report([run(fault()), run(fault(), params="b")])


def test_confidence_that_means_what_it_says_has_no_error() -> None:
    honest = [(900_000, at < 9) for at in range(10)]
    assert calibration(honest).ece_ppm == 0
    assert calibration([(900_000, False)] * 4).ece_ppm == 900_000
    mixed = calibration([(900_000, True), (900_000, False), (500_000, True), (500_000, False)])
    assert (mixed.ece_ppm, mixed.count) == (200_000, 4)


def test_a_ledger_file_says_what_was_written_and_one_that_is_cut_is_refused(tmp_path: Path) -> None:
    opened = LedgerOpened(
        scenario="basic-1",
        seed=1,
        cluster="drawn",
        nodes_count=16,
        gpus_count=128,
        start_ns=100,
        params_sha256="a",
        nemesis_version="0.1.0",
    )
    formed = MembershipFormed(at_ns=200, epoch=0, step=1, world=8, redone_count=0, restarts_count=0)
    path = tmp_path / "run.ledger.ndjson"
    write_ledger(path, ledger_of(opened, [formed], 900))
    assert read_ledger_file(path) == ledger_of(opened, [formed], 900)
    assert read_ledger_file(path).passed_ns == 800
    assert path.stat().st_mode & 0o077 == 0
    whole = path.read_bytes().splitlines(keepends=True)
    for kept, says in ((whole[:2], "cut short"), (whole[1:], "line 1"), ([b"{}\n"], "line 1")):
        path.write_bytes(b"".join(kept))
        with pytest.raises(BadLedgerError, match=says):
            read_ledger_file(path)
