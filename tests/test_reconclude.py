"""Promises of putting today's conclusions into a recording."""

import shutil
from pathlib import Path

import pytest

from nemesis.replay.reader import Recording
from nemesis.replay.verify import verify
from nemesis.replay.versions import maker
from tests.reconclude import again, rewrite
from tests.record_scenarios import FOLDER

GOLDEN = FOLDER / "gpu-off-bus.ndjson.zst"


def test_a_recording_that_replays_equal_stays_as_it_is() -> None:
    recording = Recording(GOLDEN)
    assert again(recording) == list(recording.records())


def test_what_verdicts_say_otherwise_is_put_in_and_replays_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(shutil.copy(GOLDEN, tmp_path))
    monkeypatch.setattr("nemesis.processors.attribution.calibration.MEASURED", {})
    before = Recording(path)
    make = maker(before.header.nemesis_version)
    assert verify(before, make).verdict == "different"
    rewrite(path)
    after = Recording(path)
    assert verify(after, make).verdict == "equal"
    assert [each.subject for each in after.records()] == [
        each.subject for each in Recording(GOLDEN).records()
    ]


def test_a_conclusion_that_is_not_drawn_any_more_asks_for_a_new_recording(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "nemesis.processors.attribution.attribution.Attribution.step", lambda *_: ()
    )
    with pytest.raises(SystemExit, match="record it anew"):
        again(Recording(GOLDEN))
