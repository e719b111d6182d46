"""Promises of what a simulated run leaves: refused before it begins, and never left in part."""

import errno
from pathlib import Path

import pytest

from nemesis.replay.recording import RecordingExistsError
from nemesis.replay.writer import CannotWriteError
from nemesis.sim import bundle
from nemesis.sim.faults.scenario import scenario_named
from nemesis.sim.outputs import expect_writable
from nemesis.sim.params import load_params
from nemesis.sim.simulation import Simulation
from nemesis.sim.what_if import leave_bundle
from tests.commands import nemesis
from tests.kind_runs import CLUSTER


@pytest.mark.parametrize("option", ["--ledger", "--record"])
def test_a_file_that_cannot_be_written_is_told_before_the_run(tmp_path: Path, option: str) -> None:
    missing = tmp_path / "nowhere" / "run.ndjson"
    ran = nemesis("sim", "--scenario", "rank-exit", option, str(missing))
    assert ran.returncode == 1
    assert ran.stdout == ""
    assert "nowhere/run.ndjson: No such file or directory" in ran.stderr


def test_trying_leaves_nothing_behind(tmp_path: Path) -> None:
    kept = tmp_path / "run.ndjson"
    kept.write_text("before")
    expect_writable(kept, force=True)
    with pytest.raises(RecordingExistsError, match="exists"):
        expect_writable(kept, force=False)
    assert [path.name for path in tmp_path.iterdir()] == ["run.ndjson"]
    assert kept.read_text() == "before"
    with pytest.raises(CannotWriteError, match="Is a directory"):
        expect_writable(tmp_path, force=False)


@pytest.mark.parametrize("is_there", [False, True])
def test_a_bundle_on_a_full_disk_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    folder = tmp_path / "incident"
    if is_there:
        folder.mkdir()

    def full(simulation: Simulation, folder: Path, **_: object) -> None:
        (folder / "dumps").mkdir()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(bundle, "write_bundle", full)
    scenario = scenario_named("rank-exit")
    with pytest.raises(CannotWriteError, match="incident: No space left on device"):
        leave_bundle(CLUSTER, scenario, load_params(), folder, seed=7)
    assert [each.name for each in tmp_path.rglob("*")] == (["incident"] if is_there else [])
