"""Promises on public lines: each means what its catalogue says, or is named as not understood."""

import csv
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nemesis.processors.attribution.kernel_messages import KernelMessage, parse
from nemesis.processors.attribution.kernel_signs import sign_in
from nemesis.processors.attribution.log_messages import parse_line as parse_log_line
from nemesis.producers.readers.kernel_line import parse_line


@pytest.fixture(scope="module")
def kernel_lines(shared: Path) -> list[dict[str, str]]:
    with (shared / "data" / "kernel_loglines" / "lines.tsv").open() as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def meant(line: str) -> KernelMessage | None:
    peeled = parse_line(line)
    if peeled is None:
        return None
    return parse(peeled.text) or sign_in(peeled.text, peeled.priority)


def test_every_public_xid_line_tells_its_code_and_device(
    kernel_lines: list[dict[str, str]],
) -> None:
    xids = [row for row in kernel_lines if row["kind"] == "xid" and row["code"].isdecimal()]
    wrong = []
    for row in xids:
        message = meant(row["line"])
        if message is None or (message.kind, message.code) != ("xid", int(row["code"])):
            wrong.append(row["line"])
    assert len(xids) > 50
    assert wrong == []


INFORMS = re.compile(
    r"mlx5_core .*(?:Cable (?:un)?plugged|ACCESS_REG|insufficient power|bandwidth|E-Switch|MLX5E"
    r"|tc offload|renamed)|EDAC .*(?:\b\d+ CE |Giving out device)"
    r"|NVRM: (?:GPU at PCI:|loading NVIDIA|GPU\d+ GSP RPC buffer)"
)
"""Lines of healthy machines, and lines that only name what the line after them is about."""


def test_public_lines_of_other_kinds_are_understood_or_said_to_be_not(
    kernel_lines: list[dict[str, str]],
) -> None:
    silent = [row["line"] for row in kernel_lines if meant(row["line"]) is None]
    assert [line for line in silent if not INFORMS.search(line)] == []


LOG_KINDS = {
    "watchdog_timeout": "timeout",
    "watchdog_state": "group_state",
    "heartbeat_stuck": "stuck_in_host",
    "ib_wc": "completion",
    "sock_closed": "peer_closed",
}


def test_public_lines_of_torch_and_nccl_tell_what_they_say(shared: Path) -> None:
    rows: list[dict[str, Any]] = [
        msgspec.json.decode(line)
        for line in (shared / "data" / "torch_nccl_log_fixtures.jsonl").read_text().splitlines()
    ]
    told = [(row, parse_log_line("torch", row["line"])) for row in rows]
    for row, message in told:
        if row["kind"] not in LOG_KINDS:
            continue
        assert message is not None, row["line"]
        assert message.kind == LOG_KINDS[row["kind"]]
        want = row["want"]
        if want.get("rank"):
            assert message.rank == int(want["rank"])
        if "op" in want:
            assert message.op == want["op"].lower()
        if row["kind"] == "watchdog_state" and want.get("enq"):
            assert message.seq == int(want["enq"])
        if row["kind"] == "ib_wc":
            assert message.number == int(want["status"])
            assert message.device == want.get("hca", "")
    assert sum(row["kind"] in LOG_KINDS for row in rows) >= 12
