"""Promises of the reader of kernel logs: content decides, records of journald included."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemesis.producers.readers import kernel_log
from nemesis.producers.readers.bundle import read_bundle
from nemesis.producers.readers.kernel_log import KernelLog

XID = "NVRM: Xid (PCI:0000:9b:00): 79, pid=1, name=x, GPU has fallen off the bus."


def read(root: Path, content: str | bytes) -> KernelLog | None:
    root.mkdir(exist_ok=True)
    payload = content.encode() if isinstance(content, str) else content
    (root / "file").write_bytes(payload)
    logs = read_bundle([root]).logs
    return logs[0] if logs else None


def texts(log: KernelLog | None) -> list[tuple[int, str]]:
    assert log is not None
    return [(number, line.text) for number, line in log.lines]


def test_json_of_journald_is_read(tmp_path: Path) -> None:
    records = [
        {
            "MESSAGE": XID,
            "_HOSTNAME": "n017",
            "__REALTIME_TIMESTAMP": "1786418062000001",
            "_SOURCE_MONOTONIC_TIMESTAMP": "130456250",
            "_BOOT_ID": "b0",
            "PRIORITY": "3",
            "_TRANSPORT": "kernel",
        },
        {"MESSAGE": "Started x", "_HOSTNAME": "n017", "_TRANSPORT": "syslog"},
        {"MESSAGE": list(XID.encode()), "_HOSTNAME": "n017", "SYSLOG_IDENTIFIER": "kernel"},
    ]
    log = read(tmp_path, "\n".join(json.dumps(each) for each in records))
    assert texts(log) == [(1, XID), (3, XID)]
    assert log is not None
    first = log.lines[0][1]
    assert (first.host, first.priority, first.boot_id) == ("n017", 3, "b0")
    assert (first.clock, first.time_ns) == ("wall", 1_786_418_062_000_001_000)
    assert first.uptime_ns == 130_456_250_000


def test_export_of_journald_is_read_and_cited_at_its_message(tmp_path: Path) -> None:
    export = (
        "__CURSOR=s=1\n__REALTIME_TIMESTAMP=1786418062000001\n_TRANSPORT=kernel\n"
        f"_HOSTNAME=n017\nMESSAGE={XID}\nPRIORITY=4\n\n"
        "__CURSOR=s=2\n_TRANSPORT=syslog\nMESSAGE=other\n\n"
        f"__CURSOR=s=3\n_TRANSPORT=kernel\nMESSAGE={XID}\n"
    )
    assert texts(read(tmp_path, export)) == [(5, XID), (14, XID)]


def test_verbose_and_pretty_output_of_journald_are_read(tmp_path: Path) -> None:
    header = "Tue 2026-08-11 03:14:22.000001 UTC [s=ab;i=1;b=2;m=3;t=4;x=5]"
    verbose = f"{header}\n    _TRANSPORT=kernel\n    _HOSTNAME=n017\n    MESSAGE={XID}\n" * 2
    told = read(tmp_path, verbose)
    assert texts(told) == [(4, XID), (8, XID)]
    assert told is not None
    assert told.lines[0][1].time_ns == 1_786_418_062_000_001_000
    record = {"_TRANSPORT": "kernel", "_HOSTNAME": "n017", "MESSAGE": XID}
    pretty = (json.dumps(record, indent="\t").replace('": ', '" : ') + "\n") * 2
    log = read(tmp_path, pretty)
    assert texts(log) == [(4, XID), (9, XID)]
    assert log is not None
    assert {line.host for _, line in log.lines} == {"n017"}


def test_json_of_a_container_runtime_is_read(tmp_path: Path) -> None:
    record = {"log": f"[  130.456250] {XID}\n", "stream": "stderr", "time": "2026-08-11T03:14:22Z"}
    log = read(tmp_path, json.dumps(record))
    assert texts(log) == [(1, XID)]
    assert log is not None
    assert log.lines[0][1].clock == "wall"


def test_json_of_a_shape_of_its_own_is_searched_for_what_a_kernel_says(tmp_path: Path) -> None:
    record = {"resource": {"zone": "a"}, "jsonPayload": {"text": XID, "n": 1}}
    ((number, text),) = texts(read(tmp_path, json.dumps(record)))
    assert number == 1
    assert text.startswith(XID)
    listed = json.dumps([{"_TRANSPORT": "kernel", "MESSAGE": XID}] * 2, indent=2)
    assert texts(read(tmp_path, listed)) == [(4, XID), (8, XID)]


def test_device_lines_after_a_kmsg_record_are_no_messages(tmp_path: Path) -> None:
    kmsg = f"4,1,100,-;{XID}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:9b:00.0\n4,2,200,-;second\n"
    assert texts(read(tmp_path, kmsg)) == [(1, XID), (4, "second")]


def test_windows_line_ends_nuls_and_a_torn_last_line_are_read(tmp_path: Path) -> None:
    content = f"[    1.000000] {XID}\r\n[    2.000000] a\0b\r\n[    3.0000".encode()
    assert texts(read(tmp_path, content))[:2] == [(1, XID), (2, "ab")]


def test_a_training_log_with_one_kernel_line_gives_that_line_only(tmp_path: Path) -> None:
    log = read(tmp_path, f"step 1 loss 2.3\nstep 2 loss 2.2\nn1: {XID}\nOut of memory: no kernel\n")
    assert texts(log) == [(3, XID)]


def test_a_host_named_by_some_lines_is_that_of_all(tmp_path: Path) -> None:
    log = read(tmp_path, f"Aug 11 03:00:00 n1 kernel: {XID}\n[    2.000000] wrapped\n")
    assert log is not None
    assert {line.host for _, line in log.lines} == {"n1"}


@pytest.mark.parametrize(
    "name", ["nccl.log", "train.log", "step-times.csv", "nvidia-smi-q.txt", "show_gids.txt"]
)
def test_files_of_other_kinds_are_no_kernel_logs(shared: Path, tmp_path: Path, name: str) -> None:
    files = sorted((shared / "cases").glob(f"*/{name}"))
    assert files
    for file in files:
        assert read(tmp_path, file.read_bytes()) is None, file


def test_lines_of_torch_and_nccl_are_no_kernel_lines(shared: Path, tmp_path: Path) -> None:
    rows = (shared / "data" / "torch_nccl_log_fixtures.jsonl").read_text().splitlines()
    assert read(tmp_path, "\n".join(json.loads(row)["line"] for row in rows)) is None


def test_public_kernel_logs_are_read(shared: Path) -> None:
    folder = shared / "data" / "gpud_testdata"
    for name, count in {
        "components/accelerator/nvidia/xid/testdata/dmesg-with-xid-119.log": 40,
        "components/os/testdata/dmesg.decode.iso.log": 1,
        "components/memory/testdata/dmesg.decode.iso.log": 10,
        "pkg/kmsg/testdata/kmsg.1.log": 40,
        "pkg/kmsg/testdata/kmsg.2.peermem.log": 1,
        "pkg/pstore/testdata/dmesg-erst.txt": 10,
        "pkg/pstore/testdata/7530486857247/dmesg-erst-7530486857247752193": 10,
    }.items():
        bundle = read_bundle([folder / name])
        assert bundle.unread == []
        assert len(bundle.logs[0].lines) >= count, name
        certain = sum(line.from_kernel is True for _, line in bundle.logs[0].lines)
        assert certain >= len(bundle.logs[0].lines) * 0.9


@settings(max_examples=200)
@given(st.binary(max_size=400))
def test_no_bytes_whatever_do_more_than_be_unread(content: bytes) -> None:
    root = Path.home() / "bundle"
    root.mkdir(parents=True, exist_ok=True)
    (root / "file").write_bytes(content)
    bundle = read_bundle([root])
    assert bundle.read_count + len(bundle.unread) == 1
    assert all(each.why for each in bundle.unread)


def test_of_the_later_part_of_an_endless_log_only_telling_lines_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_log, "WHOLE_LINES_MAX", 3)
    monkeypatch.setattr(kernel_log, "LINES_MAX", 5)
    lines = [f"[{k:5d}.000000] usb 1-1: new device {k}" for k in range(1, 10)]
    lines += [f"[  100.{k:06d}] {XID}" for k in range(4)]
    log = read(tmp_path, "\n".join(lines))
    assert [number for number, _ in texts(log)] == [1, 2, 3, 10, 11]
    assert log is not None
    assert log.skimmed
