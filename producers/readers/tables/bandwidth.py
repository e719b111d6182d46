"""Results of nccl-tests and of perftest's `ib_write_bw` and its like, one measurement a size."""

import re
from collections.abc import Iterable
from typing import Final

from nemesis.producers.readers.notes import Note, Reader, TextLine, note
from nemesis.producers.readers.unplaced import unplaced
from nemesis.schemas.codes import TrialOutcome
from nemesis.schemas.observed import TrialFinished

_NCCL_HEAD: Final = re.compile(r"#\s+size\s+count\s+type\b|# nThread \d+")
_NCCL_RANK: Final = re.compile(r"#\s+Rank\s+\d+ (?:Group\s+\d+ )?Pid\s+\d+ on\s+(\S+)\s+device")
# size count type redop [root] time algbw busbw #wrong, twice
_NCCL_ROW: Final = re.compile(
    r"\s*(\d{1,15})\s+\d+\s+\w+\s+\w+(?:\s+-?\d+)?\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)\s+(\S+)\s+"
    r"([\d.]+)\s+([\d.]+)\s+([\d.]+)\s+(\S+)\s*\Z"
)
_PERF_HEAD: Final = re.compile(r"\s*(\S+) (?:Bidirectional )?BW Test\s*\Z")
_PERF_DEVICE: Final = re.compile(r".*\bDevice\s+: (\w+)")
_PERF_UNIT: Final = re.compile(r"\s*#bytes\s+#iterations\s+BW peak\[(\S+)\]\s+BW average\[(\S+)\]")
_PERF_ROW: Final = re.compile(r"\s*(\d{1,12})\s+(\d+)\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)\s*\Z")
_KBPS: Final = {"MB/sec": 1000, "MiB/sec": 1049, "Gb/sec": 125_000, "GB/sec": 1_000_000}
_US_NS: Final = 1000
_RIGHT: Final = ("0", "N/A", "0e+00")
NODES_MAX: Final = 256


class Bandwidth(Reader):
    """Reads measurements; of nccl-tests what it ran on stands above them."""

    starts = (_NCCL_HEAD, _NCCL_RANK, _PERF_HEAD)

    def __init__(self) -> None:
        self._nccl = False
        self._nodes: dict[str, None] = {}
        self._trial = ""
        self._device = ""
        self._unit_kbps = 0

    @property
    def busy(self) -> bool:
        """Below the head of a test."""
        return self._nccl or bool(self._trial)

    def take(self, line: TextLine) -> Iterable[Note]:
        """A measurement, or what it was made on."""
        text = line.text
        if match := _NCCL_RANK.match(text):
            if len(self._nodes) < NODES_MAX:
                self._nodes[match[1]] = None
        elif _NCCL_HEAD.match(text):
            self.known = self._nccl = True
        elif self._nccl and (match := _NCCL_ROW.match(text)):
            return [note(line, self._nccl_row(line, match))]
        elif match := _PERF_HEAD.match(text):
            self.known, self._trial, self._unit_kbps = True, match[1].lower(), 0
        elif self._trial and (match := _PERF_DEVICE.match(text)):
            self._device = match[1]
        elif self._trial and (match := _PERF_UNIT.match(text)):
            self._unit_kbps = _KBPS.get(match[2], 0)
        elif self._unit_kbps and (match := _PERF_ROW.match(text)):
            return [note(line, self._perf_row(line, match))]
        return ()

    def _nccl_row(self, line: TextLine, row: re.Match[str]) -> TrialFinished:
        wrong = [each for each in (row[5], row[9]) if each not in _RIGHT and _is_count(each)]
        outcome: TrialOutcome = "failed" if wrong else "measured"
        return TrialFinished(
            **unplaced(line.host),
            trial="nccl-tests",
            outcome=outcome,
            components=tuple(f"node/{name}" for name in self._nodes if name != "localhost"),
            rate_kbps=_kbps(row[4], 1_000_000),
            duration_ns=_kbps(row[2], _US_NS),
            size_bytes=int(row[1]),
            says=f"{wrong[0]} wrong values" if wrong else "",
        )

    def _perf_row(self, line: TextLine, row: re.Match[str]) -> TrialFinished:
        return TrialFinished(
            **unplaced(line.host),
            trial=self._trial,
            outcome="measured",
            components=(f"nic//{self._device}",) if self._device else (),
            rate_kbps=_kbps(row[4], self._unit_kbps),
            size_bytes=int(row[1]),
        )


def _is_count(cell: str) -> bool:
    return cell.isdecimal() and int(cell[:15]) > 0


def _kbps(number: str, scale: int) -> int:
    try:
        return min(int(float(number) * scale), 2**62)
    except (ValueError, OverflowError):
        return 0
