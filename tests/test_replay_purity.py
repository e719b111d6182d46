"""Promises of purity, for every processor of this release and over every recording that we have."""

import os
import random
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest

from nemesis.processors.catalogue import CATALOGUE
from nemesis.processors.fold import Fold, Input
from nemesis.replay.reader import Recording
from nemesis.replay.verify import plans_of, verify, verify_log
from nemesis.replay.versions import latest, maker
from nemesis.schemas.facts import (
    Conclusion,
    Fact,
    decode_conclusion,
    decode_observation,
    encode_conclusion,
    encode_observation,
)
from nemesis.schemas.registry import EVENTS, TELEMETRY
from tests.record_scenarios import SCENARIOS
from tests.replay_logs import Copy, Counting, Log

ROOT = Path(__file__).parent.parent
RECORDINGS = sorted((ROOT / "tests" / "recordings").glob("*.ndjson.zst"))
CUTS_COUNT = 200


def names(path: Path) -> str:
    return path.name.removesuffix(".ndjson.zst")


recordings = pytest.mark.parametrize("path", RECORDINGS, ids=names)
processors = pytest.mark.parametrize("name", sorted(CATALOGUE))


def test_there_are_recordings_of_what_the_script_records_and_they_are_small() -> None:
    assert set(SCENARIOS) <= {names(path) for path in RECORDINGS}
    for path in RECORDINGS:
        assert path.stat().st_size < 300_000


@recordings
def test_a_golden_recording_replays_equal(path: Path) -> None:
    recording = Recording(path)
    report = verify(recording, maker(recording.header.nemesis_version))
    assert report.verdict == "equal", report.first
    assert report.unknown_facts == {}
    assert sum(each.equal_count for each in report.processors) > 0
    assert sum(each.states_equal_count for each in report.processors) > 0


@recordings
def test_every_recorded_fact_encodes_again_to_its_old_bytes(path: Path) -> None:
    for record in Recording(path).records():
        item = Input(record)
        if item.space == "telemetry" and item.token in TELEMETRY:
            observation = decode_observation(item.token, record.payload)
            assert encode_observation(observation) == record.payload
        elif item.space == "events" and item.token in EVENTS:
            event, data = decode_conclusion(item.token, record.payload)
            subject, payload = encode_conclusion(
                id=event.id, source=event.source, at_ns=data.at_ns, data=data, key=item.name,
                cause=event.cause, job=event.job,
            )  # fmt: skip
            assert subject == record.subject
            # `time` is for people and may come from a clock of its writer
            assert payload.split(b'"time"')[0] == record.payload.split(b'"time"')[0]
            assert (
                payload.partition(b'"datacontenttype"')[2]
                == (record.payload.partition(b'"datacontenttype"')[2])
            )


@recordings
@processors
def test_a_state_restored_at_any_point_is_the_state_that_was_kept(path: Path, name: str) -> None:
    records = [r for r in Recording(path).records() if not r.subject.startswith("nemesis.cursor.")]
    cuts = set(random.Random(7).sample(range(len(records)), min(CUTS_COUNT, len(records))))
    make = CATALOGUE[name][latest(name)]
    kept, restored = Fold(make()), Fold(make())
    for at, record in enumerate(records):
        item = Input(record)
        assert kept.step(item) == restored.step(item)
        if at in cuts:
            state = kept.snapshot()
            assert restored.snapshot() == state
            restored = Fold(make())
            restored.restore(state)
            assert restored.snapshot() == state
    assert kept.snapshot() == restored.snapshot()


def replayed_elsewhere(path: Path, **variables: str) -> str:
    """A digest of all conclusions and states, from another process in another environment."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.test_replay_purity", str(path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"} | variables,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def digest_of(path: Path) -> str:
    """Everything that every processor concludes from a recording, and its state at the end."""
    digest = sha256()
    for name in sorted(CATALOGUE):
        fold = Fold(CATALOGUE[name][latest(name)]())
        for record in Recording(path).records():
            item = Input(record)
            if item.space != "cursor":
                for each in fold.step(item):
                    digest.update(each.subject.encode() + each.payload)
        digest.update(fold.snapshot())
    return digest.hexdigest()


@recordings
def test_hash_seeds_and_cpu_features_change_nothing(path: Path) -> None:
    here = digest_of(path)
    assert replayed_elsewhere(path, PYTHONHASHSEED="1") == here
    assert replayed_elsewhere(path, PYTHONHASHSEED="2") == here
    plain = "AVX2 FMA3 AVX512F AVX512CD AVX512_SKX X86_V3 X86_V4"
    assert replayed_elsewhere(path, NPY_DISABLE_CPU_FEATURES=plain) == here


class ReadsTheClock(Counting):
    """A processor that breaks the rule."""

    def verdict(self, fact: Fact) -> Conclusion:
        """Says what time it is."""
        said = super().verdict(fact)
        reason = f"concluded at {time.monotonic_ns()}"
        return msgspec.structs.replace(said, data=msgspec.structs.replace(said.data, reason=reason))


def test_a_processor_that_reads_a_clock_is_caught_with_what_it_said_each_time() -> None:
    log = Log()
    log.activate()
    log.tick()
    for _ in range(3):
        log.kernel()
    live = Copy(log, Fold(ReadsTheClock()))
    live.read()
    live.commit()
    report = verify_log(
        log.records, plans_of(log.records), {}, lambda name, version: ReadsTheClock()
    )
    assert report.verdict == "different"
    assert report.first is not None
    found = report.first.difference
    assert found is not None
    assert found.kind == "content"
    (field,) = found.fields
    assert field.field == "data.reason"
    assert field.recorded.startswith('"concluded at')
    assert field.recorded != field.replayed


if __name__ == "__main__":
    print(digest_of(Path(sys.argv[1])))
