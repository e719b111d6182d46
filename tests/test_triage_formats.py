"""The promise that a verdict does not depend on who wrote the log: every public kernel case, in
every format."""

import gzip
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from nemesis.cli.triage import triage_paths
from nemesis.producers.readers.bundle import read_bundle
from nemesis.producers.readers.timeline import arrange

BOOT_S = 1_786_000_000


def _at(offset_ns: int) -> datetime:
    return datetime.fromtimestamp(BOOT_S + offset_ns / 1e9, UTC)


def _uptime(offset_ns: int) -> str:
    return f"{offset_ns // 10**9:5d}.{offset_ns % 10**9 // 1000:06d}"


def _journal_json(offset_ns: int, text: str) -> str:
    record = {
        "MESSAGE": text,
        "_HOSTNAME": "n017",
        "_TRANSPORT": "kernel",
        "PRIORITY": "4",
        "__REALTIME_TIMESTAMP": str(BOOT_S * 10**6 + offset_ns // 1000),
    }
    return json.dumps(record)


FORMATS: dict[str, Callable[[int, str], str]] = {
    "dmesg": lambda t, text: f"[{_uptime(t)}] {text}",
    "dmesg with callers": lambda t, text: f"[{_uptime(t)}] [  T1946] {text}",
    "dmesg -T": lambda t, text: f"[{_at(t):%a %b %d %H:%M:%S %Y}] {text}",
    "dmesg -x": lambda t, text: f"kern  :err   : [{_uptime(t)}] {text}",
    "dmesg iso": lambda t, text: f"{_at(t):%Y-%m-%dT%H:%M:%S,%f}+00:00 {text}",
    "journal short": lambda t, text: f"{_at(t):%b %d %H:%M:%S} n017 kernel: {text}",
    "journal short-iso": lambda t, text: f"{_at(t):%Y-%m-%dT%H:%M:%S}+0000 n017 kernel: {text}",
    "journal short-full": lambda t, text: f"{_at(t):%a %Y-%m-%d %H:%M:%S} UTC n017 kernel: {text}",
    "journal short-monotonic": lambda t, text: f"[{_uptime(t)}] n017 kernel: {text}",
    "journal json": _journal_json,
    "syslog": lambda t, text: f"{_at(t):%b %d %H:%M:%S} n017 kernel: [{_uptime(t)}] {text}",
    "syslog 5424": lambda t, text: f"<4>1 {_at(t):%Y-%m-%dT%H:%M:%SZ} n017 kernel - - - {text}",
    "kmsg": lambda t, text: f"4,{t % 9999},{t // 1000},-;{text}",
    "pstore": lambda t, text: f"<4>[{_uptime(t)}] {text}",
    "container": lambda t, text: (
        f"{_at(t):%Y-%m-%dT%H:%M:%S.%f}000Z stderr F [{_uptime(t)}] {text}"
    ),
    "time of day": lambda t, text: f"{_at(t):%H:%M:%S}  {text}",
    "kernel only": lambda _, text: f"kernel: {text}",
}
CASES = ("01", "04", "10", "14", "17", "22", "23", "60", "67", "68", "71")


def essence(answer: Any) -> tuple[str, str, list[str], str]:
    """What a verdict says, the host aside."""
    culprits = [each.id.replace("/n017/", "/localhost/") for each in answer.culprits]
    return answer.verdict, answer.fault_class, culprits, answer.recovery.action


@pytest.mark.parametrize("number", CASES)
def test_a_verdict_does_not_depend_on_who_wrote_the_log(
    shared: Path, tmp_path: Path, number: str
) -> None:
    (case,) = (shared / "cases").glob(f"{number}-*")
    (source,) = [*case.glob("dmesg.txt"), *case.glob("journal.txt")]
    expected = essence(triage_paths([source]))
    events = arrange(read_bundle([source]).logs, 0).events
    first_ns = events[0].at_ns
    for name, written in FORMATS.items():
        path = tmp_path / name
        lines = [written(e.at_ns - first_ns + 60 * 10**9, e.line.text) for e in events]
        path.write_bytes(gzip.compress("\n".join(lines).encode()))
        answer = triage_paths([path])
        assert essence(answer) == expected, name
        quoted = {(each.line, each.text) for each in answer.evidence}
        assert quoted <= {(k, line) for k, line in enumerate(lines, 1)}, name


def test_every_format_of_one_boot_together_is_one_verdict(shared: Path, tmp_path: Path) -> None:
    (case,) = (shared / "cases").glob("67-*")
    expected = essence(triage_paths([case / "dmesg.txt"]))
    events = arrange(read_bundle([case / "dmesg.txt"]).logs, 0).events
    for name in ("dmesg", "journal short-iso", "journal json", "syslog", "kmsg"):
        lines = [FORMATS[name](e.at_ns - events[0].at_ns + 60 * 10**9, e.line.text) for e in events]
        (tmp_path / name.replace(" ", "-")).write_text("\n".join(lines))
    answer = triage_paths([tmp_path])
    assert essence(answer) == expected
    assert answer.others == []
    assert len({(each.file, each.line) for each in answer.evidence}) == len(answer.evidence)
