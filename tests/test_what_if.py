"""Promises of --compare: today's code and other settings over what was observed and operated."""

from pathlib import Path

import msgspec
import pytest

from nemesis.processors.catalogue import Catalogue
from nemesis.processors.fold import Fold
from nemesis.replay.reader import Recording
from nemesis.replay.what_if import (
    BadSettingError,
    Changes,
    compare,
    parse_policy,
    parse_settings,
)
from nemesis.replay.writer import RecordingWriter
from nemesis.schemas.decided import RecoveryDecided
from nemesis.schemas.done import AttemptCompleted, AttemptStarted
from nemesis.schemas.facts import Conclusion, Fact
from nemesis.schemas.operated import PolicyApplied
from tests.replay_logs import Copy, Counting, Log, busy_log, write

TODAY: Catalogue = {"attribution": {1: Counting}}


class Deciding(Counting):
    """Decides on every verdict, says what became of its decisions, and obeys a policy."""

    name = "healer"
    reads: tuple[str, ...] = ("fault_attributed", "policy_applied", "attempt_completed")

    def __init__(self, version: int = 1) -> None:
        super().__init__(version)
        self.action = "watch"

    def step(self, fact: Fact) -> list[Conclusion]:
        """A decision for a verdict, with the action that the policy names."""
        self.seen += 1
        if fact.kind == "policy_applied":
            self.action = msgspec.json.decode(fact.data.policy)["action"]
            return []
        if fact.kind == "attempt_completed":
            return [self._decision(fact, f"after-{fact.data.decision}")]
        return [self._decision(fact, f"job/{fact.data.incident}")]

    def _decision(self, fact: Fact, name: str) -> Conclusion:
        data = RecoveryDecided(
            at_ns=fact.log_time_ns, reason="r", decision=name, incident="i", mode="act",
            deadline_ns=0, action=self.action, target="node/n1",  # type: ignore[arg-type]
        )  # fmt: skip
        return Conclusion(data=data, key=name, cause=(fact.seq,))


class Sooner(Counting):
    """A later version that concludes from two lines."""

    def __init__(self, version: int = 2) -> None:
        super().__init__(version)
        self.every = 2

    def configure(self, settings: bytes) -> None:
        """Knows no settings."""


def compared(tmp_path: Path, log: Log, catalogue: Catalogue = TODAY, **options: object) -> Changes:
    path = write(tmp_path / "x.ndjson", log.records, force=True)
    return compare(Recording(path), catalogue, **options)  # type: ignore[arg-type]


def test_the_same_code_changes_nothing(tmp_path: Path) -> None:
    seen: list[int] = []
    changes = compared(tmp_path, busy_log(seconds=1000), progress=seen.append)
    assert (changes.gone, changes.new, changes.changed) == ([], [], [])
    assert changes.same_count == 666
    assert seen == [4096]


def test_other_settings_show_what_they_add_and_what_they_take(tmp_path: Path) -> None:
    changes = compared(tmp_path, busy_log(), settings={"attribution": b'{"every":2}'})
    assert [said.key for said in changes.new] == [f"n2-{n}" for n in (2, 4, 8, 10, 14, 16)]
    assert [said.key for said in changes.gone] == ["n1-3", "n1-9", "n1-15"]
    assert all(said.id.startswith("what-if:attribution/") for said in changes.new)
    assert changes.new[0].reason == "line 2 of n2, by version 1"
    assert changes.same_count == 2


def test_todays_version_takes_up_the_state_of_an_older_one(tmp_path: Path) -> None:
    log = busy_log()
    fold = Fold(Counting())
    copy = Copy(log, fold)
    copy.read(upto=8)
    path = tmp_path / "slice.ndjson"
    with RecordingWriter(
        path, cell="c", made_by="t", made_at="", from_seq=9, force=False
    ) as writer:
        writer.start("attribution", in_seq=8, version=1, state=fold.snapshot())
        for record in log.records[8:]:
            writer.record(record)
        writer.finish(to_seq=log.end)
    changes = compare(Recording(path), {"attribution": {1: Counting, 2: Sooner}})
    assert [said.key for said in changes.new][:2] == ["n2-4", "n2-8"]
    kept = compare(Recording(path), TODAY, settings={"attribution": b'{"every":3}'})
    assert (kept.new, kept.gone, kept.changed) == ([], [], [])


def healed_log() -> tuple[Log, Catalogue]:
    log = Log()
    log.activate()
    log.activate(name="healer")
    policy = PolicyApplied(at_ns=1, by="op", reason="r", policy=msgspec.Raw(b'{"action":"watch"}'))
    log.event(policy, key="policy")
    log.tick()
    for _ in range(3):
        log.kernel()
    attribution, healer = Copy(log, Fold(Counting())), Copy(log, Fold(Deciding()))
    attribution.read()
    attribution.commit()
    healer.read()
    healer.commit()
    for data in (
        AttemptStarted(at_ns=1, reason="r", decision="job/n1-3", actor="a"),
        AttemptCompleted(at_ns=1, reason="r", decision="job/n1-3", actor="a"),
    ):
        log.event(data, key=data.decision)
    healer.read()
    healer.commit()
    return log, {"attribution": {1: Counting}, "healer": {1: Deciding}}


def test_another_policy_shows_what_would_have_been_decided(tmp_path: Path) -> None:
    log, catalogue = healed_log()
    changes = compared(tmp_path, log, catalogue, policy=b'{"action":"drain_node"}')
    assert (changes.gone, changes.new) == ([], [])
    assert [(each.key, each.fields[0].field) for each in changes.changed] == [
        ("job/n1-3", "action"),
        ("after-job/n1-3", "action"),
    ]
    assert changes.changed[0].fields[0].replayed == '"drain_node"'
    assert changes.same_count == 1


def test_what_was_done_counts_only_for_decisions_that_the_run_made(tmp_path: Path) -> None:
    log, catalogue = healed_log()
    changes = compared(tmp_path, log, catalogue, settings={"attribution": b'{"every":2}'})
    # the verdict has another name, so has the decision: nobody attempted that one
    assert {said.key for said in changes.gone} == {"n1-3", "job/n1-3", "after-job/n1-3"}
    assert {said.key for said in changes.new} == {"n1-2", "job/n1-2"}


def test_a_processor_that_is_not_here_is_left_out_and_named(tmp_path: Path) -> None:
    log, _ = healed_log()
    changes = compared(tmp_path, log)
    assert changes.notes == ["healer is not in this release and was left out"]
    assert changes.same_count == 1


def test_settings_of_a_processor_that_is_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadSettingError, match="--settings scheduler: no such processor") as caught:
        compared(tmp_path, busy_log(), settings={"scheduler": b"{}"})
    assert caught.value.hint == "there are attribution"


def test_a_slice_without_states_is_left_out_and_said_so(tmp_path: Path) -> None:
    path = tmp_path / "slice.ndjson"
    log = busy_log()
    with RecordingWriter(
        path, cell="c", made_by="t", made_at="", from_seq=9, force=False
    ) as writer:
        for record in log.records[8:]:
            writer.record(record)
        writer.finish(to_seq=log.end)
    changes = compare(Recording(path), TODAY)
    assert changes.notes == ["the recording holds no state of attribution to start from"]


@pytest.mark.parametrize("text", ["attribution", "attribution=3", "attribution={", "=[]"])
def test_settings_that_are_no_json_object_are_refused(text: str) -> None:
    with pytest.raises(BadSettingError) as caught:
        parse_settings([text])
    assert caught.value.hint == "expected NAME=JSON"


def test_a_policy_is_a_json_object_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    with pytest.raises(BadSettingError, match="No such file"):
        parse_policy(path)
    path.write_text("[1]")
    with pytest.raises(BadSettingError, match="no JSON object"):
        parse_policy(path)
    path.write_text('{"mode": "act"}')
    assert parse_policy(path) == b'{"mode":"act"}'
    assert parse_settings(["healer={}"]) == {"healer": b"{}"}
