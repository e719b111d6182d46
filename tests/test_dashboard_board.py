"""Promises of the page's document: what it says of the log, and that changes lead to the whole."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemesis.replay.reader import Recording
from nemesis.schemas import decided, done, inferred, kept, operated
from nemesis.schemas.facts import Record
from nemesis.schemas.observed import GpuDescribed, InventoryReported, NicDescribed, SampleTaken
from nemesis.views.dashboard import feed
from nemesis.views.dashboard.board import INCIDENTS_MAX, Board
from nemesis.views.dashboard.incident_page import incident_document
from tests.replay_logs import SECOND_NS, START_NS, Log

RECORDINGS = Path(__file__).parent / "recordings"
NAMES = sorted(path.name for path in RECORDINGS.glob("*.zst"))
GPUS = ("0000:1b:00.0", "0000:2c:00.0")
CULPRIT = "gpu/n1/0000:2c:00.0"


def inventory(log: Log, node: str = "n1", *, boot_id: str = "a") -> None:
    log._observe(
        InventoryReported,
        node,
        "inventory",
        gpus=tuple(GpuDescribed(pci=pci) for pci in GPUS),
        nics=(NicDescribed(name="mlx5_0", switch_port="port/leaf01/1"),),
        boot_id=boot_id,
    )


def verdict(incident: str = "i-1", **fields: Any) -> inferred.FaultAttributed:
    known: dict[str, Any] = {
        "at_ns": START_NS, "reason": "the GPU is gone", "incident": incident, "revision": 0,
        "verdict": "attributed", "fault_class": "gpu.off_bus", "jobs": ("llama",),
        "culprits": (inferred.Culprit(kind="gpu", id=CULPRIT),), "confidence_ppm": 980_000,
    }  # fmt: skip
    return msgspec.convert(known | fields, inferred.FaultAttributed)


def recovery(mode: str = "act", **fields: Any) -> decided.RecoveryDecided:
    known: dict[str, Any] = {
        "at_ns": START_NS, "reason": "a rank is lost", "decision": "llama/1", "incident": "i-1",
        "mode": mode, "deadline_ns": START_NS + 10 * SECOND_NS, "job": "llama",
        "action": "shrink", "target": "job/llama", "members": "0", "world": 1, "job_revision": 2,
    }  # fmt: skip
    return msgspec.convert(known | fields, decided.RecoveryDecided)


def completed() -> done.AttemptCompleted:
    return done.AttemptCompleted(
        at_ns=START_NS, reason="goes on", decision="llama/1", actor="a", job="llama", world=1
    )


def submitted() -> operated.JobSubmitted:
    return operated.JobSubmitted(
        at_ns=START_NS, by="ann", reason="train", job="llama", nodes=("n1",), ranks_per_node=2
    )


def board_of(log: Log, **options: Any) -> Board:
    board = Board(cell="lab", **options)
    for record in log.records:
        board.see(record)
    return board


def told(*facts: msgspec.Struct) -> Log:
    """A node with two GPUs and a job on them; then these facts, a second apart."""
    log = Log()
    inventory(log)
    log.event(submitted(), key="llama")
    for number, data in enumerate(facts):
        log.event(data, key=f"k{number}")
        log.tick()
    return log


def applied(document: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """What a browser makes of changes: the same as static/store.js."""
    after = document | {k: v for k, v in changes.items() if k not in ("nodes", "incidents", "feed")}
    after["nodes"] = [list(node) for node in document["nodes"]]
    for at, *rest in changes.get("nodes", []):
        after["nodes"][at][2:] = rest
    rows = {row["id"]: row for row in document["incidents"]}
    rows |= {row["id"]: row for row in changes.get("incidents", [])}
    after["incidents"] = [row for id, row in rows.items() if id not in changes.get("gone", [])]
    after.pop("gone", None)
    after["feed"] = [*document["feed"], *changes.get("feed", [])][-200:]
    return after


def as_received(document: dict[str, Any]) -> dict[str, Any]:
    received: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(document))
    return received


def plain(document: dict[str, Any]) -> dict[str, Any]:
    built: dict[str, Any] = as_received(document)
    built["incidents"].sort(key=lambda row: row["id"])
    return built


@pytest.fixture(scope="module", params=NAMES)
def records(request: pytest.FixtureRequest) -> list[Record]:
    return list(Recording(RECORDINGS / request.param).records())


@settings(max_examples=15)
@given(data=st.data())
def test_changes_since_any_version_lead_to_the_whole_document(
    records: list[Record], data: st.DataObject
) -> None:
    first, second = sorted(data.draw(st.tuples(*[st.integers(0, len(records))] * 2)))
    board = Board(cell="lab")
    for record in records[:first]:
        board.see(record)
    before = plain(board.document())
    version = board.version
    for record in records[first:second]:
        board.see(record)
    changes = as_received(board.changes(version))
    if not changes.get("layout"):
        assert plain(applied(before, changes)) == plain(board.document())


def test_a_gpu_that_is_blamed_is_at_fault_until_the_recovery_takes_it_out() -> None:
    log = told(verdict())
    assert board_of(log).document()["nodes"] == [("n1", "leaf01", ".F", ".", "llama", "working")]
    for data in (recovery(), completed()):
        log.event(data, key="llama")
    board = board_of(log)
    assert board.document()["nodes"][0][2] == ".O"
    assert board.document()["unwell"] == [(CULPRIT, "O", "i-1")]
    inventory(log, boot_id="b")
    assert board_of(log).document()["nodes"][0][2] == "..", "it booted anew"


def test_a_rank_at_fault_is_shown_on_its_gpu_as_what_it_is() -> None:
    culprit = inferred.Culprit(kind="rank", id="rank/llama/1")
    board = board_of(told(verdict(fault_class="app.program", culprits=(culprit,))))
    assert board.document()["nodes"][0][2] == ".R"


def test_a_verdict_that_is_taken_back_clears_the_map() -> None:
    board = board_of(told(verdict(), verdict(verdict="no-fault", culprits=())))
    assert board.document()["nodes"][0][2] == ".."
    assert board.document()["unwell"] == []


def test_a_prediction_marks_until_it_is_clear() -> None:
    said: dict[str, Any] = {"at_ns": 1, "reason": "x", "component": CULPRIT, "incident": "i-2"}
    record, clear = (
        inferred.FailurePredicted(fault_class="gpu.memory", band=band, **said)
        for band in ("watch", "clear")
    )
    assert board_of(told(record)).document()["nodes"][0][2] == ".P"
    assert board_of(told(record, clear)).document()["nodes"][0][2] == ".."


def test_a_decision_in_approval_mode_waits_with_the_command_to_type() -> None:
    (waiting,) = board_of(told(verdict(), recovery("approve")), where=" --cell lab").document()[
        "waiting"
    ]
    assert waiting["approve"] == "nemesis approve llama/1 --cell lab --reason 'seen'"
    assert waiting["deadline_ms"] == (START_NS + 10 * SECOND_NS) // 1_000_000


@pytest.mark.parametrize(
    "answer",
    [
        operated.DecisionApproved(at_ns=1, by="ann", reason="yes", decision="llama/1"),
        operated.DecisionVetoed(at_ns=1, by="ann", reason="no", decision="llama/1"),
        done.AttemptStarted(at_ns=1, reason="does", decision="llama/1", actor="a"),
    ],
)
def test_an_answered_decision_waits_no_more(answer: msgspec.Struct) -> None:
    assert board_of(told(verdict(), recovery("approve"), answer)).document()["waiting"] == []


def test_an_unanswered_decision_expires_loudly() -> None:
    log = told(verdict(), recovery("approve"))
    for _ in range(12):
        log.tick()
    document = board_of(log).document()
    assert document["waiting"] == []
    assert [alarm["title"] for alarm in document["alarms"]] == ["Expired"]


def test_shadow_is_the_mode_until_a_policy_says_otherwise() -> None:
    policy = operated.PolicyApplied(
        at_ns=1, by="ann", reason="trust", policy=msgspec.Raw(b'{"mode":"approve"}')
    )
    assert board_of(told()).document()["mode"] == "shadow"
    assert board_of(told(policy)).document()["mode"] == "approve"


def test_pauses_breakers_and_trouble_of_the_log_are_alarms_until_they_end() -> None:
    pause = operated.PauseSet(at_ns=1, by="ann", reason="work", scope="ALL", paused=True)
    withheld = decided.RecoveryWithheld(
        at_ns=1, reason="too many", incident="i-1", action="shrink", target="job/llama",
        limit="shrinks_max", job="llama",
    )  # fmt: skip
    full = kept.LogMeasured(
        at_ns=1, reason="", used_bytes=9, limit_bytes=10, fill_ppm=900_000, first_seq=1, last_seq=2
    )
    board = board_of(told(pause, withheld, full))
    titles = [alarm["title"] for alarm in board.document()["alarms"]]
    assert titles == [
        "log nearly full", "breaker: shrinks_max", "a person must look", "paused: ALL",
    ]  # fmt: skip
    over = board_of(
        told(
            pause, withheld, full,
            operated.PauseSet(at_ns=1, by="ann", reason="done", scope="ALL", paused=False),
            operated.BreakerReset(at_ns=1, by="ann", reason="seen", limit="shrinks_max"),
            msgspec.structs.replace(full, fill_ppm=1),
        )
    )  # fmt: skip
    titles = [alarm["title"] for alarm in over.document()["alarms"]]
    assert titles == ["a person must look"]


def test_a_node_whose_samples_stay_away_is_silent_and_comes_back() -> None:
    log = told()
    log._observe(SampleTaken, "n1", "sample", period_ns=5 * SECOND_NS)
    for _ in range(30):
        log.tick()
    assert board_of(log).document()["nodes"][0][2:4] == ("SS", "S")
    log.sample()
    assert board_of(log).document()["nodes"][0][2:4] == ("..", ".")


def test_the_document_is_bounded_however_long_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nemesis.views.dashboard.feed.ROWS_MAX", 100)
    log = Log()
    for number in range(INCIDENTS_MAX + 300):
        log.event(verdict(f"i-{number}"), key=f"i-{number}")
    board = board_of(log)
    document = board.document()
    assert len(document["incidents"]) == INCIDENTS_MAX
    assert len(document["feed"]) == min(200, feed.ROWS_MAX)
    assert len(msgspec.json.encode(board.changes(1))) < 1_000_000


def test_the_story_of_an_incident_quotes_its_evidence_and_says_what_was_done() -> None:
    evidence = (inferred.Evidence(fact="n1/kernel/1/1", says="Xid 79", text="NVRM: <b>Xid</b>"),)
    board = board_of(told(verdict(evidence=evidence), recovery(), completed()))
    document = incident_document(board.incidents.by_id["i-1"])
    assert document["said"]["evidence"][0]["text"] == "NVRM: <b>Xid</b>"
    assert [e["fact"] for e in document["entries"]] == [
        "fault_attributed", "recovery_decided", "attempt_completed",
    ]  # fmt: skip
    assert document["outcome"] == "recovered"


def test_a_closed_incident_says_how_it_ended() -> None:
    closed = inferred.IncidentClosed(at_ns=1, reason="over", incident="i-1", outcome="no_action")
    (row,) = board_of(told(verdict(), closed)).document()["incidents"]
    assert (row["outcome"], row["open"]) == ("no action", False)


def test_an_incident_is_open_from_its_opening_to_its_close() -> None:
    opened = inferred.IncidentOpened(at_ns=1, reason="x", incident="i-1", trigger="verdict")
    (row,) = board_of(told(verdict(), opened)).document()["incidents"]
    assert row["open"]
    waits = board_of(told(verdict(), recovery("approve"))).document()["incidents"][0]
    assert (waits["outcome"], waits["open"]) == ("waits for approval", True)
    over = board_of(told(verdict(), recovery(), completed())).document()["incidents"][0]
    assert (over["outcome"], over["open"]) == ("recovered", False)


def test_rows_of_the_feed_are_found_by_words() -> None:
    board = board_of(told(verdict(), recovery(), completed()))
    assert [row.fact for row in board.feed.before(1 << 62, 10, "K1 decided")] == [
        "recovery_decided"
    ]
    assert board.feed.before(1, 10) == []


def test_a_rank_that_runs_elsewhere_by_now_is_forgiven_where_it_ran() -> None:
    rank = inferred.Culprit(kind="rank", id="rank/llama/1")
    anew = msgspec.structs.replace(submitted(), nodes=("n2",))
    board = board_of(told(verdict(culprits=(rank,)), anew, verdict(revision=1, culprits=())))
    assert board.node("n1") is not None
    assert board.document()["unwell"] == []


def test_a_rank_that_no_job_can_have_is_on_no_node() -> None:
    culprit = inferred.Culprit(kind="rank", id=f"rank/llama/{'9' * 5000}")
    assert board_of(told(verdict(culprits=(culprit,)))).document()["nodes"][0][2:4] == ("..", ".")
