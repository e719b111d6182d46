"""Promises about files that nobody vouches for: read by content, or named with the reason."""

import gzip
import json
import os
import pickle
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemesis.producers.readers.bundle import NoSuchPathError, Unread, read_bundle
from nemesis.producers.readers.bundle_facts import BundleFacts
from nemesis.schemas.observed import CollectiveRecorded
from tests.dumps import dump, entry, pickled

REAL_DUMP = (Path(__file__).parent.parent / "data" / "fr_samples" / "hang" / "rank_2").read_bytes()
XID = "[    1.000000] NVRM: Xid (PCI:0000:9b:00): 79, pid=1, name=x, GPU has fallen off the bus.\n"


class _Runs:
    """Unpickled by an ordinary unpickler, it would make a folder."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (self.path,)


def unread(root: Path) -> dict[str, str]:
    return {each.file: each.why for each in read_bundle([root]).unread}


def unread_of_runs(root: Path) -> dict[str, str]:
    bundle = read_bundle([root])
    BundleFacts(bundle)
    return {each.file: each.why for each in bundle.unread}


def recorded(root: Path) -> list[CollectiveRecorded]:
    facts = BundleFacts(read_bundle([root]))
    return [fact for fact in facts if isinstance(fact, CollectiveRecorded)]


def test_a_pickle_that_would_run_something_runs_nothing_and_is_named(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    (bundle / "_dump_0").write_bytes(pickled(dump([entry(1)], extra=_Runs(str(trap)))))
    assert "posix.mkdir" in unread(bundle)["_dump_0"]
    assert not trap.exists()


@pytest.mark.parametrize(
    "payload",
    [
        b"\x80\x04\x96" + struct.pack("<Q", 1 << 44) + b".",  # BYTEARRAY8 of 16 TB
        b"\x80\x04\x8e" + struct.pack("<Q", 1 << 44) + b".",  # BINBYTES8 of 16 TB
        b"\x80\x02Nr" + struct.pack("<I", 0xFFFFFFF0) + b".",  # a memo of four billion places
        b"\x80\x02cbuiltins\neval\n(X\x01\x00\x00\x001tR.",
        b"\x80\x02\x82\x01.",  # an extension code
        b"\x80\x02(lp0\n0.",
        b"\x80\x02",
        b"\x80\x05\xff\xff\xff",
    ],
)
def test_a_hostile_or_broken_pickle_is_named(tmp_path: Path, payload: bytes) -> None:
    (tmp_path / "_dump_0").write_bytes(payload)
    assert list(unread(tmp_path)) == ["_dump_0"]


def test_a_truncated_dump_is_named_and_its_rank_is_missing(tmp_path: Path) -> None:
    for rank in range(4):
        payload = pickled(dump([entry(1, done=False)]))
        (tmp_path / f"_dump_{rank}").write_bytes(payload[:100] if rank == 2 else payload)
    assert "broken pickle" in unread(tmp_path)["_dump_2"]
    missing = {fact.rank for fact in recorded(tmp_path) if fact.dump_missing}
    assert missing == {2}


@settings(max_examples=300)
@given(st.data())
def test_a_dump_with_damaged_bytes_is_read_or_named(data: st.DataObject) -> None:
    payload = bytearray(REAL_DUMP)
    for _ in range(data.draw(st.integers(1, 6))):
        payload[data.draw(st.integers(2, len(payload) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(2, len(payload)))
    folder = Path.home() / "damaged"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "_dump_0").write_bytes(payload[:cut])
    bundle = read_bundle([folder])
    list(BundleFacts(bundle))
    assert len(bundle.dumps) + len(bundle.logs) + len(bundle.unread) >= 1


def test_a_dump_of_an_unknown_version_is_named(tmp_path: Path) -> None:
    (tmp_path / "_dump_0").write_bytes(pickled(dump([], version="7.1")))
    assert "'7.1', expected 2.x" in unread(tmp_path)["_dump_0"]


def test_a_pickle_of_something_else_is_named(tmp_path: Path) -> None:
    (tmp_path / "state.pkl").write_bytes(pickle.dumps([1, 2, 3]))
    assert "no flight-recorder dump" in unread(tmp_path)["state.pkl"]


def test_files_of_no_known_kind_are_named(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "notes.txt").write_text("the job is as it was at noon")
    (tmp_path / "broken.gz").write_bytes(b"\x1f\x8b\x08\x00garbage")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "notes.txt")
    os.mkfifo(tmp_path / "pipe")
    named = unread(tmp_path)
    assert named.keys() == {"empty", "notes.txt", "broken.gz", "link", "pipe"}
    assert named["empty"] == "empty"
    assert named["pipe"] == named["link"] == "not a plain file"


def test_a_kernel_log_is_known_by_its_lines_whatever_its_name(tmp_path: Path) -> None:
    (tmp_path / "IMG_0001.jpg").write_text(XID)
    bundle = read_bundle([tmp_path])
    assert [log.file for log in bundle.logs] == ["IMG_0001.jpg"]
    assert bundle.unread == []


@pytest.mark.parametrize("shape", [{"saw": [XID.strip()]}, [{"contains": XID.strip()}]])
def test_a_json_document_that_quotes_a_kernel_line_is_no_log_of_it(
    tmp_path: Path, shape: object
) -> None:
    (tmp_path / "ticket.json").write_text(json.dumps(shape, indent=2))
    assert unread(tmp_path) == {"ticket.json": "JSON without messages of a kernel"}


@pytest.mark.parametrize("name", ["MESSAGE", "message", "msg", "textPayload"])
def test_json_that_names_a_kernel_line_as_a_message_is_a_log(tmp_path: Path, name: str) -> None:
    line = json.dumps({"dmesg": [{"pri": 4, name: XID.strip()}]}, indent=3)
    (tmp_path / "dmesg.json").write_text(line)
    assert [log.file for log in read_bundle([tmp_path]).logs] == ["dmesg.json"]


def test_a_path_that_is_not_there_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(NoSuchPathError, match=r"nowhere: no such file or directory"):
        read_bundle([tmp_path / "nowhere"])
    assert NoSuchPathError.exit_code == 2


def test_files_and_links_that_a_person_names_are_read_each_under_its_own_name(
    tmp_path: Path,
) -> None:
    for node in ("n1", "n2"):
        (tmp_path / node).mkdir()
        (tmp_path / node / "dmesg").write_text(XID)
    (tmp_path / "link").symlink_to(tmp_path / "n1" / "dmesg")
    roots = [tmp_path / "n1" / "dmesg", tmp_path / "n2" / "dmesg"]
    bundle = read_bundle(roots)
    assert [log.file for log in bundle.logs] == [str(root) for root in roots]
    assert sorted({event.host for event in BundleFacts(bundle).timeline.events}) == ["n1", "n2"]
    assert [log.file for log in read_bundle([tmp_path / "link"]).logs] == [str(tmp_path / "link")]
    assert len(read_bundle([tmp_path, tmp_path]).logs) == 2


def test_what_this_user_may_not_read_is_named() -> None:
    """Runs as another user where the tests run as root, whom no mode keeps out."""
    code = (
        "import os, sys, pathlib\n"
        "from nemesis.producers.readers.bundle import read_bundle\n"
        "os.geteuid() or os.setuid(65534)\n"
        "for each in read_bundle([pathlib.Path(sys.argv[1])]).unread:\n"
        "    print(each.file, each.why, sep=': ')\n"
    )
    # not below tmp_path: pytest shuts the folder above it to every other user
    with tempfile.TemporaryDirectory() as folder:
        bundle = Path(folder)
        bundle.chmod(0o755)
        (bundle / "shut").mkdir()
        for name in ("shut/dmesg", "secret", "open"):
            (bundle / name).write_text(XID)
        (bundle / "shut").chmod(0)
        (bundle / "secret").chmod(0)
        done = subprocess.run(
            [sys.executable, "-c", code, folder], capture_output=True, text=True, check=True
        )
        (bundle / "shut").chmod(0o700)
    assert sorted(done.stdout.splitlines()) == [
        "secret: permission denied",
        "shut: permission denied",
    ]


@pytest.mark.parametrize(
    ("there", "missing"),
    [([0, 1, 3], [2]), ([0, 1], []), ([3], []), ([0, 1, 2, 3], [])],
    ids=["one is missing", "half of a job is nobody's evidence", "one alone", "all are there"],
)
def test_a_missing_dump_is_evidence_only_beside_those_of_the_others(
    tmp_path: Path, there: list[int], missing: list[int]
) -> None:
    for rank in there:
        (tmp_path / f"_dump_{rank}").write_bytes(pickled(dump([entry(1, done=False)])))
    facts = recorded(tmp_path)
    assert [fact.rank for fact in facts if fact.dump_missing] == missing
    assert len(facts) == len(there) + len(missing)


def test_dumps_of_several_nodes_in_folders_side_by_side_are_one_run(tmp_path: Path) -> None:
    for rank in range(4):
        folder = tmp_path / f"node{rank // 2}"
        folder.mkdir(exist_ok=True)
        (folder / f"nccl_trace_rank_{rank}").write_bytes(pickled(dump([entry(1, done=False)])))
    facts = recorded(tmp_path)
    assert {fact.job for fact in facts} == {"job"}
    assert sorted(fact.rank for fact in facts) == [0, 1, 2, 3]


def test_runs_in_folders_of_their_own_stay_apart(tmp_path: Path) -> None:
    for run in ("1", "second"):
        (tmp_path / run).mkdir()
        for rank in range(4):
            (tmp_path / run / f"_dump_{rank}").write_bytes(pickled(dump([entry(len(run))])))
    facts = recorded(tmp_path)
    assert sorted({fact.job for fact in facts}) == ["job-1", "job-second"]
    assert len(facts) == 8


def test_json_beside_pickle_of_one_moment_counts_once(tmp_path: Path, shared: Path) -> None:
    facts = recorded(shared / "data" / "fr_samples" / "dead")
    assert sorted(fact.rank for fact in facts) == [0, 1, 2, 3]
    assert [fact.rank for fact in facts if fact.dump_missing] == [2]


def test_a_dump_without_a_number_in_its_name_is_placed_by_its_groups(tmp_path: Path) -> None:
    config = {"7": {"name": "7", "desc": "EXPERT_DATA", "ranks": "[3]"}}
    (tmp_path / "trace.pickle").write_bytes(pickled(dump([], pg_config=config)))
    assert [fact.rank for fact in recorded(tmp_path)] == [3]


def test_of_two_dumps_of_a_rank_the_newer_counts_and_the_older_is_named(tmp_path: Path) -> None:
    for moment in (1, 2):
        payload = pickled(dump([entry(moment)]))
        (tmp_path / f"nccl_trace_rank_3_178641806{moment}").write_bytes(payload)
    bundle = read_bundle([tmp_path])
    assert [run.dumps[3].file[-1] for run in BundleFacts(bundle).runs] == ["2"]
    why = "nccl_trace_rank_3_1786418062 is a newer dump of rank 3"
    assert bundle.unread == [Unread("nccl_trace_rank_3_1786418061", why)]


def test_what_an_earlier_job_left_behind_is_named_and_not_judged(tmp_path: Path) -> None:
    now_ns = 1_786_418_062_000_000_000
    for rank in range(4):
        at_ns = now_ns - (7200 * 10**9 if rank == 3 else 0)
        (tmp_path / f"_dump_{rank}").write_bytes(pickled(dump([entry(1, at_ns=at_ns)])))
    assert "older than the dumps beside it" in unread_of_runs(tmp_path)["_dump_3"]
    assert [fact.rank for fact in recorded(tmp_path) if not fact.dump_missing] == [0, 1, 2]


def test_a_dump_that_nothing_places_is_named(tmp_path: Path) -> None:
    (tmp_path / "trace.pickle").write_bytes(pickled(dump([entry(1)])))
    bundle = read_bundle([tmp_path])
    BundleFacts(bundle)
    assert bundle.unread == [
        Unread("trace.pickle", "neither its name nor its groups tell its rank")
    ]


def test_dumps_beside_the_kernel_log_of_a_node_are_of_that_node(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "dmesg").write_text(f"Aug 11 03:00:00 n017 kernel: {XID}")
    (tmp_path / "a" / "_dump_0").write_bytes(pickled(dump([entry(1)])))
    assert recorded(tmp_path)[0].node == "n017"


def test_every_fact_knows_its_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "dmesg").write_text(f"# context\n{XID}")
    (tmp_path / "_dump_0").write_bytes(pickled(dump([entry(1)])))
    facts = BundleFacts(read_bundle([tmp_path]))
    ids = [f"localhost/{kind}/1/1" for kind in ("kernel", "collective")]
    assert len(list(facts)) == 2
    origins = [facts.origin(each) for each in ids]
    assert [(each.file, each.line) for each in origins if each] == [("dmesg", 2), ("_dump_0", None)]
    assert facts.origin("localhost/kernel/1/2") is None


def test_progress_counts_each_file_once_as_large_as_it_lies_there(tmp_path: Path) -> None:
    kernel = "".join(f"[{at:12.6f}] usb 1-14: new device\n" for at in range(60_000))
    (tmp_path / "dmesg").write_text(kernel + "[60000.000001] NVRM: Xid (PCI:0000:4c:00): 79, x\n")
    (tmp_path / "rank_0.log.gz").write_bytes(gzip.compress(b"INFO step 1 of 9\n" * 200_000))
    (tmp_path / "empty").touch()
    (tmp_path / "link").symlink_to("dmesg")
    sizes = [each.stat().st_size for each in tmp_path.iterdir()]
    heard: list[int] = []
    read_bundle([tmp_path], heard.append)
    assert sum(heard) == sum(sizes)
    assert len([each for each in heard if each]) > len(sizes)
