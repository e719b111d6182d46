"""Promises of the recording file: nothing changes in it, damage is named with its place."""

import hashlib
import os
import re
import stat
import subprocess
import sys
import zlib
from pathlib import Path

import msgspec
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from nemesis.replay.reader import NoRecordingError, Recording
from nemesis.replay.recording import (
    BLOB_PART_BYTES,
    BlobLine,
    CorruptRecordingError,
    FactLine,
    NewerRecordingError,
    RecordingExistsError,
    decode_line,
    encode_line,
    fact_line,
)
from nemesis.replay.slices import BadTimeError, parse_time_ns
from nemesis.replay.writer import CannotWriteError, RecordingWriter
from nemesis.schemas.facts import Record
from tests.replay_logs import busy_log, write

RECORDS = busy_log().records


def text_of(path: Path) -> bytes:
    raw = path.read_bytes()
    if path.suffix == ".zst":
        return zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True).read()
    return raw


def writing(path: Path) -> RecordingWriter:
    return RecordingWriter(path, cell="c", made_by="t", made_at="", from_seq=1, force=False)


@pytest.fixture(params=["slice.ndjson", "slice.ndjson.zst"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return write(tmp_path / request.param, RECORDS)


def test_records_come_back_byte_for_byte_but_for_states(path: Path) -> None:
    records = list(Recording(path).records())
    assert [r.seq for r in records] == [r.seq for r in RECORDS]
    for old, new in zip(RECORDS, records, strict=True):
        if not old.subject.endswith(".snapshot"):
            assert new == old


@given(st.binary(max_size=200), st.booleans())
@settings(max_examples=300)
def test_any_payload_comes_back(payload: bytes, event: bool) -> None:
    subject = "nemesis.events.note_added.k" if event else "nemesis.telemetry.n.sample"
    record = Record(7, subject, 1, payload)
    raw = encode_line(fact_line(record))
    assert raw.count(b"\n") == 1
    line = decode_line(raw[:-1])
    assert isinstance(line, FactLine)
    assert line.record() == record


@given(
    st.sampled_from([b'{"a":1}', b' {"a":1}', b'{"a":1} ', b'{"a":\n1}', b'"\xff"', b"1", b"\n"])
)
def test_json_that_is_not_one_clean_line_comes_back_too(payload: bytes) -> None:
    line = decode_line(encode_line(fact_line(Record(7, "nemesis.events.a.b", 1, payload)))[:-1])
    assert isinstance(line, FactLine)
    assert line.record().payload == payload


def test_an_event_lies_in_the_file_as_the_json_that_it_was(path: Path) -> None:
    event = next(r for r in RECORDS if r.subject.startswith("nemesis.events."))
    assert event.payload in text_of(path)


def test_the_header_says_what_is_in_the_file(path: Path) -> None:
    first, rest = text_of(path).split(b"\n", 1)
    header = Recording(path).header
    assert msgspec.json.decode(first)["format"] == "nemesis-recording"
    assert header.sha256 == hashlib.sha256(rest).hexdigest()
    assert (header.from_seq, header.to_seq, header.lines) == (1, len(RECORDS), len(RECORDS))
    assert header.counts["telemetry.kernel"] == 16
    assert header.gaps == []
    (plan,) = header.processors
    assert (plan.name, plan.start_version, len(plan.states)) == ("attribution", 1, 1)


def test_only_its_owner_may_read_it(path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_recording_is_replaced_only_when_told(path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(RecordingExistsError, match="exists"):
        write(path, RECORDS[:3])
    assert path.read_bytes() == before
    write(path, RECORDS[:3], force=True)
    assert Recording(path).header.to_seq == 3


def test_a_file_that_came_into_being_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "slice.ndjson"
    with writing(path) as writer:
        path.write_text("mine")
        with pytest.raises(RecordingExistsError, match="exists"):
            writer.finish(to_seq=0)
    assert path.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [path]


def test_a_writer_that_stops_half_way_leaves_nothing(tmp_path: Path) -> None:
    def stop_half_way() -> None:
        with writing(tmp_path / "x.zst") as writer:
            writer.record(RECORDS[0])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stop_half_way()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["x.zst", "x.ndjson"])
def test_while_it_is_written_nothing_lies_there_that_a_kill_could_leave(
    tmp_path: Path, name: str
) -> None:
    with writing(tmp_path / name) as writer:
        writer.record(RECORDS[0])
        assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(CannotWriteError, match=r"cannot write .*: No such file or directory"):
        write(tmp_path / "none" / "x.ndjson", RECORDS)


def test_a_full_disk_is_one_line_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = """
import resource, signal, sys
from pathlib import Path
from tests.replay_logs import busy_log, write
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
records = busy_log(seconds=400).records
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
write(Path(sys.argv[1]), records)
"""
    for name in ("x.ndjson", "x.ndjson.zst"):
        ran = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path / name)],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(_path())},
        )
        assert f"CannotWriteError: cannot write {tmp_path / name}: File too large" in ran.stderr
        assert list(tmp_path.iterdir()) == []


def _path() -> list[str]:
    root = Path(__file__).parent.parent
    return [str(root), str(root / "src")]


def test_large_blobs_come_back_whole(tmp_path: Path) -> None:
    content = os.urandom(2 * BLOB_PART_BYTES + 5)
    names = [hashlib.sha256(each).hexdigest() for each in (content, b"")]
    path = tmp_path / "x.ndjson.zst"
    with writing(path) as writer:
        writer.start("attribution", in_seq=0, version=1, state=b"state")
        writer.record(RECORDS[0])
        writer.blob(names[0], content)
        writer.blob(names[1], b"")
        writer.finish(to_seq=1)
    blobs = dict(Recording(path).blobs())
    assert blobs[names[0]] == content
    assert blobs[names[1]] == b""
    assert list(Recording(path).states().values()) == [b"state"]


def test_a_blob_that_has_another_hash_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.ndjson"
    with writing(path) as writer:
        writer.blob("0" * 64, b"content")
        writer.finish(to_seq=0)
    with pytest.raises(CorruptRecordingError, match="has the hash"):
        list(Recording(path).blobs())


# Damage


def place(error: CorruptRecordingError) -> tuple[int, int]:
    found = re.search(r"line (\d+), byte (\d+)", error.message)
    assert found
    return int(found[1]), int(found[2])


def read_all(path: Path) -> None:
    list(Recording(path).records())


@given(cut=st.integers(min_value=0, max_value=len(RECORDS) * 300))
@settings(max_examples=60)
def test_a_file_cut_short_anywhere_says_where_it_ends(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    path = write(tmp_path_factory.mktemp("cut") / "x.ndjson", RECORDS)
    whole = path.read_bytes()
    cut %= len(whole)
    path.write_bytes(whole[:cut])
    with pytest.raises(CorruptRecordingError, match="expected") as caught:
        read_all(path)
    line, byte = place(caught.value)
    assert line == whole[:cut].count(b"\n") + 1
    assert byte in (cut, 0)


@given(cut=st.floats(min_value=0, max_value=1, exclude_max=True))
@settings(max_examples=40)
def test_a_compressed_file_cut_short_anywhere_is_an_error_with_a_place(
    tmp_path_factory: pytest.TempPathFactory, cut: float
) -> None:
    path = write(tmp_path_factory.mktemp("cut") / "x.ndjson.zst", RECORDS)
    whole = path.read_bytes()
    # the last four bytes are the packer's own check, the text before them has a better one
    path.write_bytes(whole[: int(cut * (len(whole) - 4))])
    with pytest.raises(CorruptRecordingError, match="expected") as caught:
        read_all(path)
    assert place(caught.value)[0] >= 1


@given(
    at=st.floats(min_value=0, max_value=1, exclude_max=True),
    flip=st.integers(min_value=1, max_value=255),
)
@settings(max_examples=80)
def test_a_changed_byte_after_the_header_is_found_in_its_line(
    tmp_path_factory: pytest.TempPathFactory, at: float, flip: int
) -> None:
    path = write(tmp_path_factory.mktemp("flip") / "x.ndjson", RECORDS)
    whole = bytearray(path.read_bytes())
    body = whole.index(b"\n") + 1
    offset = body + int(at * (len(whole) - body))
    whole[offset] ^= flip
    path.write_bytes(whole)
    with pytest.raises(CorruptRecordingError, match="expected") as caught:
        read_all(path)
    line, byte = place(caught.value)
    true_line = bytes(whole[:offset]).count(b"\n") + 1
    # a line's end turned into something else joins two lines, the last one ends with the file
    assert line in (true_line, true_line + 1)
    assert abs(byte - offset) < 2000


def test_a_changed_byte_in_a_compressed_file_is_an_error_with_a_place(tmp_path: Path) -> None:
    path = write(tmp_path / "x.ndjson.zst", RECORDS)
    whole = bytearray(path.read_bytes())
    whole[-60] ^= 255
    path.write_bytes(whole)
    with pytest.raises(CorruptRecordingError, match=r"line \d+, byte \d+: expected"):
        read_all(path)


def test_lines_in_another_order_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "x.ndjson", RECORDS)
    header, one, two, *rest = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([header, two, one, *rest]))
    with pytest.raises(
        CorruptRecordingError, match=r"line 3, .*expected a sequence above 2, got 1"
    ):
        read_all(path)


def test_a_line_left_out_is_noticed(tmp_path: Path) -> None:
    path = write(tmp_path / "x.ndjson", RECORDS)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:4] + lines[5:]))
    with pytest.raises(CorruptRecordingError, match=f"expected {len(lines)} lines"):
        read_all(path)


def test_an_exchanged_line_is_noticed_by_the_hash_of_the_whole(tmp_path: Path) -> None:
    path = write(tmp_path / "x.ndjson", RECORDS)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[-1] = encode_line(FactLine(len(RECORDS), "nemesis.telemetry.n.sample", 1, b"forged"))
    path.write_bytes(b"".join(lines))
    with pytest.raises(CorruptRecordingError, match="expected sha256"):
        read_all(path)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "the file is empty"),
        (b"[ 12.0] NVRM: Xid\n", "expected the header of a recording"),
        (b"\xff\xfe\n", "expected the header of a recording"),
        (b'{"format":"other"}\n', "expected format 'nemesis-recording', got 'other'"),
        (b'{"format":"nemesis-recording","format_version":1}\n', "the header does not fit"),
    ],
)
def test_what_is_no_recording_is_said_so(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "x.ndjson"
    path.write_bytes(content)
    with pytest.raises(CorruptRecordingError, match=f"line 1, byte 0: .*{says}"):
        Recording(path)


def test_a_line_without_end_is_refused_before_it_fills_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "x.ndjson"
    path.write_bytes(b"{" * (18 << 20))
    with pytest.raises(CorruptRecordingError, match="expected lines of at most"):
        Recording(path)


def test_a_newer_format_names_the_release_that_reads_it(tmp_path: Path) -> None:
    path = write(tmp_path / "x.ndjson", RECORDS)
    first, rest = path.read_bytes().split(b"\n", 1)
    newer = msgspec.json.decode(first) | {
        "format_version": 2,
        "readable_since": "0.4",
        "nemesis_version": "0.5.1",
    }
    path.write_bytes(msgspec.json.encode(newer) + b"\n" + rest)
    with pytest.raises(NewerRecordingError, match=r"written by NEMESIS 0\.5\.1 in format 2") as e:
        Recording(path)
    assert e.value.hint == "pip install 'nemesis-gpu>=0.4'"


def test_a_file_that_is_not_there_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(NoRecordingError, match="No such file") as caught:
        Recording(tmp_path / "none.zst")
    assert "nemesis record" in caught.value.hint


def test_a_snapshot_that_does_not_decode_is_kept_as_it_is(tmp_path: Path) -> None:
    record = Record(1, "nemesis.cursor.attribution.snapshot", 1, b"\xc1")
    path = write(tmp_path / "x.ndjson", [record])
    assert list(Recording(path).records()) == [record]


def test_a_line_that_is_no_fact_and_no_blob_is_refused() -> None:
    raw = encode_line(FactLine(1, "nemesis.telemetry.n.sample", 1, b"x"))[:-1]
    body = raw[:-20].replace(b'"line":"fact"', b'"line":"song"')
    song = body + b',"crc32":"%08x"}' % zlib.crc32(body)
    with pytest.raises(ValueError, match="expected a fact or a blob: Invalid value 'song'"):
        decode_line(song)


@pytest.mark.parametrize(
    ("text", "at_ns"),
    [
        ("90s", 910 * 10**9),
        ("0.5m", 970 * 10**9),
        ("1970-01-01T00:00:05Z", 5 * 10**9),
        ("1970-01-01T00:00:05", 5 * 10**9),
        ("1970-01-01T01:00:00.25+01:00", 250 * 10**6),
    ],
)
def test_a_time_is_an_age_or_a_date(text: str, at_ns: int) -> None:
    assert parse_time_ns(text, now_ns=1000 * 10**9) == at_ns


@pytest.mark.parametrize("text", ["", "soon", "10 m", "-5m", "2026-13-01"])
def test_another_time_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(BadTimeError, match="not a time") as caught:
        parse_time_ns(text, now_ns=0)
    assert "10m" in caught.value.hint


def test_a_file_that_goes_on_behind_its_end_is_read_no_further(tmp_path: Path) -> None:
    path, bomb = tmp_path / "x.ndjson", tmp_path / "bomb.ndjson.zst"
    with writing(path) as writer:
        writer.blob(hashlib.sha256(b"x").hexdigest(), b"x")
        writer.finish(to_seq=0)
    first, line = path.read_bytes().splitlines(keepends=True)
    packed = zstandard.ZstdCompressor().compress(line * 1_000_000)
    bomb.write_bytes(zstandard.ZstdCompressor().compress(first) + packed)
    with pytest.raises(CorruptRecordingError, match="got more"):
        Recording(bomb).states()


@pytest.mark.parametrize("parts", [(0, 2), (1,), (0, 1, 1)])
def test_parts_of_a_blob_follow_each_other(tmp_path: Path, parts: tuple[int, ...]) -> None:
    path = tmp_path / "x.ndjson"
    with writing(path) as writer:
        for part in parts:
            writer._write(BlobLine("0" * 64, part, 3, b"x"))
        writer.finish(to_seq=0)
    with pytest.raises(CorruptRecordingError, match=r"expected part|has the hash"):
        Recording(path).states()


@pytest.mark.parametrize(("seq", "stored_ns"), [(1, -1), (1, 1 << 80), (-1, 1), (1 << 80, 1)])
def test_numbers_that_no_log_gives_are_refused(seq: int, stored_ns: int) -> None:
    line = b'{"line":"fact","seq":%d,"subject":"x","stored_ns":%d,"payload":""' % (seq, stored_ns)
    raw = line + b',"crc32":"%08x"}' % zlib.crc32(line)
    with pytest.raises(ValueError, match="expected a fact"):
        decode_line(raw)
