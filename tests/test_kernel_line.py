"""Promises of the reader of kernel lines: no prefix hides what the kernel said."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemesis.producers.readers.kernel_line import parse_line

XID = "NVRM: Xid (PCI:0000:9b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
AUGUST = int(datetime(2026, 8, 11, 3, 14, 22, tzinfo=UTC).timestamp()) * 1_000_000_000
FEBRUARY = int(datetime(2000, 2, 1, 14, 25, 31, tzinfo=UTC).timestamp()) * 1_000_000_000

PREFIXES = [
    # prefix, host, clock, time_ns
    ("", "", "none", 0),
    ("kernel: ", "", "none", 0),
    ("kernel:", "", "none", 0),
    ("[155044.078590] ", "", "uptime", 155_044_078_590_000),
    ("[    0.000001] ", "", "uptime", 1_000),
    ("[ 130.456250] [ T1946] ", "", "uptime", 130_456_250_000),
    ("[ 130.456250][   C3] ", "", "uptime", 130_456_250_000),
    ("[  130.456250 <    0.000012>] ", "", "uptime", 130_456_250_000),
    ("[Tue Aug 11 03:14:22 2026] ", "", "wall", AUGUST),
    ("[Sun Feb  1 14:25:31 2026] ", "", "wall", 1_769_955_931_000_000_000),
    ("kern  :err   : [  130.456250] ", "", "uptime", 130_456_250_000),
    ("kern  :warn  : 2026-08-11T03:14:22,285060+00:00 ", "", "wall", AUGUST + 285_060_000),
    ("Feb 01 14:25:31 node17 kernel: ", "node17", "year", FEBRUARY),
    ("Feb  1 14:25:31 node17 kernel: ", "node17", "year", FEBRUARY),
    ("Feb 01 14:25:31.5 node17 kernel: ", "node17", "year", FEBRUARY + 500_000_000),
    ("Feb 01 14:25:31 node17 kernel: [16450076.435595] ", "node17", "year", FEBRUARY),
    ("<4>Feb 01 14:25:31 node17.rack2.example kernel: ", "node17.rack2.example", "year", FEBRUARY),
    ("2026-08-11T03:14:22.123456+00:00 node17 kernel: [1.435595] ", "node17", "wall", None),
    ("2026-08-11T03:14:22+0000 node17 kernel: ", "node17", "wall", AUGUST),
    ("2026-08-11T05:14:22+0200 node17 kernel: ", "node17", "wall", AUGUST),
    ("2026-08-11T03:14:22Z node17 kernel: ", "node17", "wall", AUGUST),
    ("2026-08-11 03:14:22 node17 kernel: ", "node17", "wall", AUGUST),
    ("Tue 2026-08-11 03:14:22 UTC node17 kernel: ", "node17", "wall", AUGUST),
    ("1786418062.000000 node17 kernel: ", "node17", "wall", AUGUST),
    ("[ 5044.078590] node17 kernel: ", "node17", "uptime", 5_044_078_590_000),
    ("<4>1 2026-08-11T03:14:22Z node17 kernel - - - ", "node17", "wall", AUGUST),
    ("<4>1 2026-08-11T03:14:22Z node17 kernel 0 ID [a b] ", "node17", "wall", AUGUST),
    ("4,3964,206764307,-;", "", "uptime", 206_764_307_000),
    ("4,3964,206764307,-,caller=T1946;", "", "uptime", 206_764_307_000),
    ("<6>[  201.650687] ", "", "uptime", 201_650_687_000),
    ("2026-08-11T03:14:22.000000000Z stderr F ", "", "wall", AUGUST),
    ("2026-08-11T03:14:22Z stdout F [  130.456250] ", "", "wall", AUGUST),
    ("kmsg-reader-1  | [  130.456250] ", "", "uptime", 130_456_250_000),
    ("[pod/kmsg-7xk2p/reader] [  130.456250] ", "", "uptime", 130_456_250_000),
    ("19:14:43  ", "", "day", 69_283_000_000_000),
    ("node17: [  130.456250] ", "node17", "uptime", 130_456_250_000),
    ("dmesg.txt:12:[  130.456250] ", "", "uptime", 130_456_250_000),
    ("/var/log/kern.log:Feb  1 14:25:31 node17 kernel: ", "node17", "year", FEBRUARY),
    ("\x1b[32m[  130.456250] \x1b[0m", "", "uptime", 130_456_250_000),
    ("[Aug11 03:14] ", "", "none", 0),
    ("[  +0.000004] ", "", "none", 0),
    ("[2026-08-11 03:14:22,000] INFO ", "", "wall", AUGUST),
    ("> [  130.456250] ", "", "uptime", 130_456_250_000),
    ("    [  130.456250] ", "", "uptime", 130_456_250_000),
    ("2026/08/11 03:14:22 kmsg ", "", "none", 0),
    ("a tool of somebody says: ", "", "none", 0),
]


@pytest.mark.parametrize(("prefix", "host", "clock", "time_ns"), PREFIXES, ids=repr)
def test_a_prefix_is_taken_off_and_says_when_and_where(
    prefix: str, host: str, clock: str, time_ns: int | None
) -> None:
    line = parse_line(prefix + XID)
    assert line is not None
    assert line.text == XID
    assert line.from_kernel
    assert line.host == host
    assert line.clock == clock
    assert time_ns is None or line.time_ns == time_ns


@pytest.mark.parametrize(
    "raw",
    [
        "Feb  1 14:25:31 node17 systemd[1]: Started Session 3.",
        "2026-08-11T03:14:22Z node17 kubelet[4711]: pod started",
        "<30>1 2026-08-11T03:14:22Z node17 sshd 12 - - accepted",
        "13,3964,206764307,-;systemd[1]: written to /dev/kmsg by a program",
    ],
)
def test_a_line_of_another_program_is_not_the_kernels(raw: str) -> None:
    line = parse_line(raw)
    assert line is not None
    assert line.from_kernel is False


@pytest.mark.parametrize(
    "raw",
    [
        "step 100 loss 2.31",
        "[rank1]:[E810 03:04:11.061727749 ProcessGroupNCCL.cpp:683] [Rank 1] Watchdog caught",
        "2024-08-22 03:14:07 kp-0:3468:3905 [4] NCCL WARN NET/IB : Got completion",
        "[12.5] loading weights",
        "99:99:99 is no time",
        "Feb 31 99:00:00 nor is this",
    ],
)
def test_a_line_that_nothing_shows_to_be_the_kernels_is_left_open(raw: str) -> None:
    line = parse_line(raw)
    assert line is not None
    assert line.from_kernel is None


@pytest.mark.parametrize("raw", ["", "   ", "\r\n", "# context that a person added", "\0\0"])
def test_blank_lines_and_remarks_are_no_messages(raw: str) -> None:
    assert parse_line(raw) is None


@pytest.mark.parametrize(
    "text",
    [
        "Out of memory: Killed process 4711 (python3) total-vm:1kB",
        "Memory cgroup out of memory: Killed process 90211 (pingmesh)",
        "EDAC MC3: 1 UE memory read error on CPU_SrcID#1",
        "{1}[Hardware Error]: event severity: fatal",
        "pcieport 0000:00:03.0: AER: Multiple Uncorrected (Fatal) error received",
        "mlx5_core 0000:41:00.0: poll_health:852:(pid 0): device's health compromised",
        "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up",
        "INFO: task python3:4711 blocked for more than 120 seconds.",
    ],
)
def test_what_only_a_kernel_says_is_known_behind_any_prefix(text: str) -> None:
    for prefix in ("", "22.08.2024 03:14 >> ", "[n017] "):
        line = parse_line(prefix + text)
        assert line is not None
        assert line.text == text
        assert line.from_kernel


def test_a_device_name_with_a_colon_is_not_taken_for_host_and_program() -> None:
    line = parse_line("[    6.402915] mlx5_core 0000:04:00.0: E-Switch: Total vports 2")
    assert line is not None
    assert line.text == "mlx5_core 0000:04:00.0: E-Switch: Total vports 2"
    other = parse_line("[    6.402915] pci bus: resource 4")
    assert other is not None
    assert other.text == "pci bus: resource 4"


def test_brackets_of_a_kernel_line_are_not_taken_for_a_syslog_header() -> None:
    line = parse_line(
        "2026-08-11T03:14:22+00:00 node17 kernel: [   15.201377] [drm] [nvidia-drm] [GPU 1] Loading"
    )
    assert line is not None
    assert (line.host, line.from_kernel) == ("node17", True)
    assert line.text == "[drm] [nvidia-drm] [GPU 1] Loading"


def test_carriage_returns_and_nuls_are_no_part_of_a_message() -> None:
    line = parse_line(f"[    1.000000] \0{XID}\r")
    assert line is not None
    assert line.text == XID


@given(st.text(max_size=200))
def test_no_text_whatever_breaks_the_reader(raw: str) -> None:
    line = parse_line(raw)
    assert line is None or line.text.strip() == line.text != ""


@given(st.sampled_from([prefix for prefix, *_ in PREFIXES]), st.text(max_size=80))
def test_whatever_follows_a_prefix_is_read_or_is_nothing(prefix: str, rest: str) -> None:
    line = parse_line(prefix + rest)
    assert line is None or 0 <= line.time_ns < 2**63


@given(st.lists(st.sampled_from([prefix for prefix, *_ in PREFIXES]), max_size=4))
def test_prefixes_in_any_number_and_order_leave_the_text(prefixes: list[str]) -> None:
    line = parse_line("".join(prefixes) + XID)
    assert line is not None
    assert line.text == XID
    assert line.from_kernel


def test_the_public_lines_keep_their_text_under_every_prefix(shared: Path) -> None:
    rows = (shared / "data" / "kmsg_xid_fixtures.jsonl").read_text().splitlines()
    assert len(rows) == 215
    for row in rows:
        raw: str = json.loads(row)["line"]
        line = parse_line(raw)
        assert line is not None
        start = max(raw.find("NVRM: "), raw.find("nvidia-nvswitch"))
        assert line.text == raw[max(start, 0) :].strip()
        assert line.from_kernel or start < 0


def test_lines_from_other_projects_tests_are_read(shared: Path) -> None:
    rows = (shared / "data" / "kernel_loglines" / "lines.tsv").read_text().splitlines()[1:]
    assert len(rows) == 304
    for row in rows:
        line = parse_line(row.split("\t")[3])
        assert line is not None
        assert not line.text.startswith("[ ")
