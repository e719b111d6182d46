"""Promises of replay: the log's conclusions are drawn again, or the first difference shows."""

from hashlib import sha256
from pathlib import Path

import msgspec
import pytest

from nemesis.processors.fold import Fold, Input
from nemesis.replay.course import Difference
from nemesis.replay.differences import differing_fields
from nemesis.replay.reader import Recording
from nemesis.replay.verify import Report, plans_of, verify, verify_log
from nemesis.replay.what_if import compare
from nemesis.replay.writer import RecordingWriter
from nemesis.schemas.facts import Record, encode_conclusion
from nemesis.schemas.kept import ConclusionUndeliverable, InputLost, ProcessorAdvanced
from tests.replay_logs import Copy, Counting, Log, busy_log, make_counting, write


def replay(records: list[Record]) -> Report:
    return verify_log(records, plans_of(records), {}, make_counting)


def difference(report: Report) -> Difference:
    assert report.verdict == "different"
    assert report.first is not None
    assert report.first.difference is not None
    return report.first.difference


def index_of(records: list[Record], subject: str, nth: int = 0) -> int:
    return [i for i, r in enumerate(records) if r.subject.startswith(subject)][nth]


VERDICT = "nemesis.events.fault_attributed."


def test_a_log_replays_equal() -> None:
    report = replay(busy_log().records)
    (attribution,) = report.processors
    assert report.verdict == "equal"
    assert attribution.equal_count == 5
    assert attribution.states_equal_count == 1
    assert attribution.unanswered_count == 0
    assert (report.facts_count, report.samples_count) == (len(busy_log().records), 16)


@pytest.mark.parametrize("name", ["x.ndjson", "x.ndjson.zst"])
def test_a_recording_replays_equal(tmp_path: Path, name: str) -> None:
    seen: list[int] = []
    path = write(tmp_path / name, busy_log(seconds=2000).records)
    report = verify(Recording(path), make_counting, progress=seen.append)
    assert report.verdict == "equal"
    assert seen == [4096, 8192, 12288]


def test_conclusions_that_the_slice_ends_before_are_not_missing() -> None:
    log = busy_log()
    log.tick()
    for _ in range(6):
        log.kernel()
    report = replay(log.records)
    assert report.verdict == "equal"
    assert report.processors[0].unanswered_count == 2


def test_a_changed_conclusion_is_shown_field_by_field() -> None:
    records = busy_log().records
    at = index_of(records, VERDICT, 1)
    changed = records[at].payload.replace(b"line 6", b"line 7")
    records[at] = msgspec.structs.replace(records[at], payload=changed)
    found = difference(replay(records))
    assert (found.kind, found.recorded_seq) == ("content", records[at].seq)
    assert [(f.field, f.recorded, f.replayed) for f in found.fields] == [
        ("data.reason", '"line 7 of n2, by version 1"', '"line 6 of n2, by version 1"')
    ]


def test_equal_json_in_other_bytes_is_a_difference() -> None:
    records = busy_log().records
    at = index_of(records, VERDICT)
    spaced = records[at].payload.replace(b'"specversion":', b'"specversion": ')
    records[at] = msgspec.structs.replace(records[at], payload=spaced)
    found = difference(replay(records))
    assert found.kind == "content"
    assert [f.field for f in found.fields] == ["payload"]


def test_another_subject_is_a_difference() -> None:
    records = busy_log().records
    at = index_of(records, VERDICT)
    records[at] = msgspec.structs.replace(records[at], subject=VERDICT + "other")
    assert difference(replay(records)).fields[0].field == "(subject)"


def test_a_conclusion_left_out_is_missing() -> None:
    records = busy_log().records
    gone = records.pop(index_of(records, VERDICT, 1))
    found = difference(replay(records))
    assert found.kind == "missing"
    assert found.replayed == gone.payload.decode()


def test_the_last_conclusion_left_out_is_missed_by_the_position() -> None:
    records = busy_log().records
    records.pop(index_of(records, VERDICT, -1))
    found = difference(replay(records))
    assert found.kind == "missing"
    assert "its position says" in found.note


def test_a_conclusion_that_replay_does_not_draw_is_unexpected() -> None:
    records = busy_log().records
    at = index_of(records, "nemesis.telemetry.n1.kernel", 2)
    other = msgspec.msgpack.decode(records[at].payload) | {"n": 1}
    records[at] = msgspec.structs.replace(records[at], payload=msgspec.msgpack.encode(other))
    assert difference(replay(records)).kind in ("unexpected", "content", "missing")


def test_an_invented_conclusion_is_unexpected() -> None:
    log = busy_log()
    payload = log.records[index_of(log.records, VERDICT, -1)].payload
    log.add(VERDICT + "n1-9", payload.replace(b'"id":"attribution/', b'"id":"attribution/9'))
    assert difference(replay(log.records)).kind == "unexpected"


def test_two_conclusions_in_the_wrong_order_are_a_difference() -> None:
    records = busy_log(every_s=8).records
    one, two = index_of(records, VERDICT, 0), index_of(records, VERDICT, 1)
    a, b = records[one], records[two]
    records[one] = msgspec.structs.replace(b, seq=a.seq)
    records[two] = msgspec.structs.replace(a, seq=b.seq)
    assert difference(replay(records)).kind == "missing"


def test_another_state_is_a_difference() -> None:
    records = busy_log().records
    at = index_of(records, "nemesis.cursor.attribution.snapshot")
    other = msgspec.msgpack.decode(records[at].payload) | {"sha256": "0" * 64}
    records[at] = msgspec.structs.replace(records[at], payload=msgspec.msgpack.encode(other))
    found = difference(replay(records))
    assert (found.kind, found.recorded) == ("state", f"sha256 {'0' * 64}")


def test_what_happened_before_the_first_difference_counts_and_later_ones_do_not() -> None:
    records = busy_log().records
    for nth in (2, 4):
        at = index_of(records, VERDICT, nth)
        changed = records[at].payload.replace(b"line", b"LINE")
        records[at] = msgspec.structs.replace(records[at], payload=changed)
    report = replay(records)
    assert report.processors[0].equal_count == 2
    assert difference(report).recorded_seq == records[index_of(records, VERDICT, 2)].seq


# Versions, settings, skips, losses, restarts


def test_an_upgrade_and_new_settings_in_mid_log_replay() -> None:
    log = Log()
    log.activate(1)
    old = Copy(log, Fold(Counting(1)))
    log.tick()
    for _ in range(4):
        log.kernel()
    old.read()
    old.commit()
    log.activate(1, b'{"every":2}')
    log.kernel()
    log.kernel()
    log.activate(2, b'{"every":1}')
    log.kernel()
    old.read()
    old.commit()
    new = Copy(log, Fold(Counting(2)))
    new.fold.restore(old.fold.snapshot())
    new.fold.take_over()
    log.kernel()
    new.read()
    new.commit(snapshot=True)
    report = replay(log.records)
    (attribution,) = report.processors
    assert report.verdict == "equal"
    assert attribution.versions == [1, 2]
    assert attribution.equal_count == 1 + 1 + 2
    assert attribution.states_equal_count == 2


def test_a_version_that_is_not_here_names_the_release_to_install() -> None:
    report = replay(busy_log(version=7).records)
    assert report.verdict == "unverified"
    assert report.processors[0].unverified == (
        "attribution version 7 is not here; pip install nemesis==9"
    )


def test_up_to_an_upgrade_to_a_version_that_is_not_here_all_is_verified() -> None:
    log = busy_log()
    log.activate(7)
    report = replay(log.records)
    (attribution,) = report.processors
    assert report.verdict == "unverified"
    assert attribution.equal_count == 5
    assert "version 7 is not here" in attribution.unverified


def test_a_skipped_input_is_skipped_again() -> None:
    log = Log()
    log.activate()
    log.tick()
    for text in ("a", "crash", "b", "c", "d"):
        log.kernel(text)
    copy = Copy(log, Fold(Counting(), skips={4: "RuntimeError: cannot step this"}))
    copy.read()
    copy.commit(snapshot=True)
    report = replay(log.records)
    assert report.verdict == "equal"
    assert report.processors[0].equal_count == 2
    assert report.processors[0].states_equal_count == 1


def test_a_step_that_crashes_where_the_live_one_did_not_is_a_difference() -> None:
    log = Log()
    log.activate()
    log.kernel("crash")
    log.kernel("a")
    position = ProcessorAdvanced(in_seq=3, log_time_ns=0, version=1)
    log.add("nemesis.cursor.attribution", msgspec.msgpack.encode(position))
    found = difference(replay(log.records))
    assert (found.kind, found.seq) == ("crash", 2)
    assert found.replayed == "RuntimeError: cannot step this"


def test_a_step_that_crashes_and_was_never_answered_ends_the_verification() -> None:
    log = busy_log()
    log.kernel("crash")
    report = replay(log.records)
    assert report.verdict == "unverified"
    assert "nobody had answered" in report.processors[0].unverified
    assert report.processors[0].equal_count == 5


def test_inputs_that_were_lost_to_the_processor_are_lost_in_replay() -> None:
    log = Log()
    log.activate()
    log.tick()
    lost = [log.kernel() for _ in range(2)]
    copy = Copy(log, Fold(Counting()))
    copy.read(upto=2)
    copy.fold.seq = lost[-1]
    for _ in range(3):
        log.kernel()
    copy.read()
    data = InputLost(at_ns=1, reason="t", name="attribution", from_seq=lost[0], to_seq=lost[-1])
    log.event(data, key="attribution")
    copy.commit(snapshot=True)
    report = replay(log.records)
    assert report.verdict == "equal"
    assert (report.processors[0].equal_count, report.processors[0].states_equal_count) == (1, 1)


def test_a_copy_that_came_up_without_its_state_is_named_beside_a_difference() -> None:
    log = busy_log()
    copy = Copy(log, Fold(Counting()))
    copy.fold.seq = log.end
    copy.fold.take_over()
    copy.started("reread", 0)
    for _ in range(4):
        log.kernel()
    copy.read()
    copy.commit()
    found = difference(replay(log.records))
    assert "read again what was left of the log" in found.note


def test_a_copy_that_came_up_from_a_snapshot_changes_nothing() -> None:
    log = busy_log()
    fold = Fold(Counting())
    for record in log.records[:-3]:
        item = Input(record)
        if item.space != "cursor":
            fold.step(item)
    copy = Copy(log, Fold(Counting()))
    copy.fold.restore(fold.snapshot())
    copy.started("snapshot", fold.seq)
    for _ in range(4):
        log.kernel()
    copy.read()
    copy.held = copy.held[-1:]
    copy.commit(snapshot=True)
    report = replay(log.records)
    assert report.verdict == "equal"
    assert report.processors[0].states_equal_count == 2


# Slices


def test_a_slice_starts_from_the_state_before_it(tmp_path: Path) -> None:
    log = busy_log()
    fold = Fold(Counting())
    for record in log.records[:8]:
        fold.step(Input(record))
    path = tmp_path / "slice.ndjson.zst"
    with RecordingWriter(
        path, cell="c", made_by="t", made_at="", from_seq=9, force=False
    ) as writer:
        writer.start("attribution", in_seq=8, version=1, state=fold.snapshot())
        for record in log.records[8:]:
            writer.record(record)
        writer.finish(to_seq=log.end)
    report = verify(Recording(path), make_counting)
    assert report.verdict == "equal"
    assert report.processors[0].equal_count == 4
    assert report.processors[0].states_equal_count == 1


def test_a_slice_that_starts_at_an_upgrade_goes_on_with_the_new_version(tmp_path: Path) -> None:
    log = busy_log()
    old = Copy(log, Fold(Counting()))
    log.activate(2)
    old.read()
    state, at = old.fold.snapshot(), log.end
    new = Copy(log, Fold(Counting(2)))
    new.fold.restore(state)
    new.fold.take_over()
    for _ in range(4):
        log.kernel()
    new.read()
    new.commit(snapshot=True)
    path = tmp_path / "slice.ndjson"
    with RecordingWriter(
        path, cell="c", made_by="t", made_at="", from_seq=at + 1, force=False
    ) as writer:
        writer.start("attribution", in_seq=at, version=2, state=state, handed_over=True)
        for record in log.records[at:]:
            writer.record(record)
        writer.finish(to_seq=log.end)
    report = verify(Recording(path), make_counting)
    assert report.verdict == "equal"
    assert report.processors[0].versions == [2]
    assert (report.processors[0].equal_count, report.processors[0].states_equal_count) == (1, 1)
    today = compare(Recording(path), {"attribution": {1: Counting, 2: lambda: Counting(2)}})
    assert (today.same_count, today.new, today.gone) == (1, [], [])


def test_a_slice_without_a_state_is_not_verified_and_says_so() -> None:
    from nemesis.replay.plan import Planner

    planner = Planner(from_beginning=False)
    for record in busy_log().records:
        planner.see(record)
    report = verify_log(busy_log().records, planner.plans(), {}, make_counting)
    assert report.verdict == "unverified"
    assert "neither the log's beginning nor a state" in report.processors[0].unverified


def test_a_state_that_does_not_restore_is_said_so() -> None:
    plans = plans_of(busy_log().records)
    plans[0].start_seq, plans[0].start_sha256 = 3, "0" * 64
    report = verify_log(busy_log().records, plans, {"0" * 64: b"\xc1"}, make_counting)
    assert "does not restore" in report.processors[0].unverified


def test_a_processor_that_was_never_activated_is_not_verified() -> None:
    log = Log()
    Copy(log, Fold(Counting())).commit()
    assert "ever activated" in replay(log.records).processors[0].unverified


def test_a_recording_without_processors_is_not_verified(tmp_path: Path) -> None:
    log = Log()
    log.tick()
    report = verify(Recording(write(tmp_path / "x.ndjson", log.records)), make_counting)
    assert report.verdict == "unverified"
    assert "no processor" in report.notes[0]


def test_gaps_are_told_with_their_cause(tmp_path: Path) -> None:
    records = [r for r in busy_log().records if not r.subject.endswith(".sample")]
    path = write(tmp_path / "x.ndjson", records, gap_cause="samples expire after 24 h")
    report = verify(Recording(path), make_counting)
    assert report.verdict == "equal"
    assert report.notes == [
        "16 sequences of the slice were no longer in the log, the first 4 to 4:"
        " samples expire after 24 h"
    ]


# Facts of later releases


def test_unknown_facts_are_named_and_replay_goes_on(tmp_path: Path) -> None:
    log = busy_log()
    log.add("nemesis.events.dimm_suspected.n1", b'{"specversion":"1.0"}')
    log.add("nemesis.telemetry.n1.optics", b"\x80")
    log.add("nemesis.events.dimm_suspected.n1", b"not json")
    path = write(tmp_path / "x.ndjson", log.records)
    first, rest = path.read_bytes().split(b"\n", 1)
    newer = msgspec.json.decode(first) | {"schema": "0.9", "nemesis_version": "0.9.2"}
    path.write_bytes(msgspec.json.encode(newer) + b"\n" + rest)
    report = verify(Recording(path), make_counting)
    assert report.verdict == "equal"
    assert report.unknown_facts == {"dimm_suspected": 2, "optics": 1}
    assert report.notes[0].startswith("written by NEMESIS 0.9.2 with the facts of 0.9")
    assert "unknown fact 'dimm_suspected', 2 times" in report.notes[1]


# What the log could not hold, and what is no JSON


def undeliverable(records: list[Record], at: int, refused: bytes) -> None:
    """Put the fact that stands for a refused conclusion in the place of one."""
    event = msgspec.json.decode(records[at].payload)
    data = ConclusionUndeliverable(
        at_ns=1,
        reason="r",
        name="attribution",
        error="too large",
        sha256=sha256(refused).hexdigest(),
    )
    subject, payload = encode_conclusion(
        id=event["id"], source=event["source"], at_ns=1, data=data, key="attribution", cause="1"
    )
    records[at] = msgspec.structs.replace(records[at], subject=subject, payload=payload)


def test_what_the_log_refused_for_good_is_accepted_by_its_hash() -> None:
    records = busy_log().records
    at = index_of(records, VERDICT)
    undeliverable(records, at, records[at].payload)
    report = replay(records)
    assert report.verdict == "equal"
    assert report.processors[0].equal_count == 5


def test_a_stand_in_for_something_else_is_a_difference() -> None:
    records = busy_log().records
    at = index_of(records, VERDICT)
    undeliverable(records, at, b"other")
    assert difference(replay(records)).kind == "content"
    broken = records[at].payload.replace(b'"sha256":"', b'"sha257":"')
    records[at] = msgspec.structs.replace(records[at], payload=broken)
    assert difference(replay(records)).kind == "content"


def test_values_that_are_no_json_are_shown_whole_and_long_ones_are_cut() -> None:
    (whole,) = differing_fields(b"\xff", b"{}")
    assert (whole.field, whole.recorded, whole.replayed) == ("payload", "\\xff", "{}")
    (cut,) = differing_fields(b'{"a":[1]}', b'{"a":[1,"%s"]}' % (b"x" * 300))
    assert (cut.field, cut.recorded) == ("a[1]", "(absent)")
    assert cut.replayed.endswith("(142 more)")
    assert differing_fields(b"1", b"1") == []


def test_what_is_no_fact_of_the_log_says_nothing_about_a_processor() -> None:
    log = busy_log()
    log.add("nemesis.cursor.attribution", b"\xc1")
    log.add("nemesis.cursor.attribution.snapshot", b"\xc1")
    log.add("nemesis.events.fact_skipped.attribution", b"{}")
    log.add("nemesis.events.fault_attributed.x", b"no json")
    assert replay(log.records).verdict == "equal"
