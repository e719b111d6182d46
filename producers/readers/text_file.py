"""Reads a file of text: every line goes to every reader, and what they make of it is kept.

No format is asked for and no name is trusted: each reader knows its own lines. A file may hold
several formats one after another, as reports that collect everything do.
"""

from collections.abc import Callable, Collection, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from nemesis.producers.readers.gpu.dcgm import Dcgm
from nemesis.producers.readers.gpu.dcgm_links import DcgmLinks
from nemesis.producers.readers.gpu.nvidia_smi_query import NvidiaSmiQuery
from nemesis.producers.readers.gpu.nvidia_smi_table import NvidiaSmiTable
from nemesis.producers.readers.gpu.nvidia_smi_xml import NvidiaSmiXml
from nemesis.producers.readers.gpu.topology_matrix import TopologyMatrix
from nemesis.producers.readers.host.board_log import BoardLog
from nemesis.producers.readers.host.limits import Limits
from nemesis.producers.readers.host.pcie_settings import PcieSettings
from nemesis.producers.readers.host.routes import Routes
from nemesis.producers.readers.host.units import Units
from nemesis.producers.readers.jobs.environment import Environment
from nemesis.producers.readers.jobs.program_log import ProgramLog, nccl_host
from nemesis.producers.readers.jobs.progress import Progress
from nemesis.producers.readers.jobs.ras_report import RasReport
from nemesis.producers.readers.jobs.scheduler_jobs import SchedulerJobs
from nemesis.producers.readers.jobs.scheduler_nodes import SchedulerNodes
from nemesis.producers.readers.jobs.scheduler_tables import SchedulerTables
from nemesis.producers.readers.jobs.stacks import Stacks
from nemesis.producers.readers.kernel_line import PREFIXES, TEXT_CHARS_MAX
from nemesis.producers.readers.line_gate import LineGate
from nemesis.producers.readers.nic.adapters import Adapters
from nemesis.producers.readers.nic.devlink_health import DevlinkHealth
from nemesis.producers.readers.nic.gids import Gids
from nemesis.producers.readers.nic.ibdiagnet import Ibdiagnet
from nemesis.producers.readers.nic.interfaces import Interfaces
from nemesis.producers.readers.nic.port_counters import PortCounters
from nemesis.producers.readers.nic.switch_tables import SwitchTables
from nemesis.producers.readers.notes import RANK_PREFIXES, Note, Reader, TextLine, text_line
from nemesis.producers.readers.tables.bandwidth import Bandwidth
from nemesis.producers.readers.tables.pair_matrix import PairMatrix
from nemesis.producers.readers.tables.release_table import ReleaseTable
from nemesis.producers.readers.tables.runs_table import RunsTable
from nemesis.producers.readers.tables.step_times import StepTimes
from nemesis.producers.readers.text_lines import numbered_lines, opened

WHOLE_LINES_MAX: Final = 200_000
NOTES_MAX: Final = 50_000  # kept of one file
_BINARY_BYTES: Final = 8192
_TELLING: Final = (
    b"rror",
    b"NCCL WARN",
    b"imeout",
    b"imed out",
    b"raceback",
    b"xception",
    b"Killed",
    b"killed",
    b"elapsed time per iteration",
    b"Batch (t)",
)
"""What a line says that may be of a fault, in a file too long to read whole."""
READERS: Final[tuple[type[Reader], ...]] = (
    NvidiaSmiXml,
    TopologyMatrix,
    NvidiaSmiTable,
    Dcgm,
    DcgmLinks,
    Adapters,
    NvidiaSmiQuery,
    Units,
    BoardLog,
    Limits,
    Routes,
    PcieSettings,
    Gids,
    Interfaces,
    DevlinkHealth,
    Ibdiagnet,
    PortCounters,
    SwitchTables,
    Stacks,
    SchedulerJobs,
    SchedulerNodes,
    SchedulerTables,
    RasReport,
    Bandwidth,
    PairMatrix,
    StepTimes,
    ReleaseTable,
    RunsTable,
    Progress,
    Environment,
    ProgramLog,
)
"""In the order in which a line is offered: the first that makes something of it has it."""
_PREFIXED: Final = len(READERS)


class TextFile(msgspec.Struct):
    """What the readers made of one file."""

    file: str
    notes: list[Note]
    hosts: set[str] = set()
    """Those that NCCL names before its lines, also before lines that told nothing."""
    oldest_ns: int = 0
    """The earliest time of the wall before a line, noted or not; 0 where no line has one."""
    newest_ns: int = 0
    cut: bool = False
    """There was more to say than is kept."""
    skimmed: bool = False
    """The file is so long that of its later part only telling lines were read."""


def is_text(path: Path) -> bool:
    """Whether the file begins like text.

    Raises:
        OSError, EOFError: it cannot be read, or its compression is broken.
    """
    with opened(path) as stream:
        head = stream.read(_BINARY_BYTES)
    return bool(head) and head.count(0) * 50 < len(head)


def read_text_file(
    path: Path,
    file: str,
    without: Collection[int] = (),
    beside_kernel: bool = False,
    on_read: Callable[[int], None] = lambda read_bytes: None,
) -> TextFile | None:
    """What a file holds for one of the readers, or None where no line means anything to any.

    `without`: numbers of lines that are a kernel's. Of a file that holds any, lines that no reader
    knows are left to the rules for a kernel's log, which read them all.

    Raises:
        OSError, EOFError: it cannot be read, or its compression is broken.
    """
    found = TextFile(file, [])
    readers = [make() for make in READERS]
    if beside_kernel:
        readers[-1] = ProgramLog(unknown_max=0)
    offer = _Offer(readers)
    with opened(path) as stream:
        for number, raw in numbered_lines(
            stream, whole_count=WHOLE_LINES_MAX, then=_TELLING, on_read=on_read
        ):
            found.skimmed = number > WHOLE_LINES_MAX
            if number in without or not raw or raw.isspace():
                continue
            if len(found.notes) >= NOTES_MAX:
                found.cut = True
                break
            line, notes = offer.take(number, raw)
            if host := nccl_host(line.text):
                found.hosts.add(host)
            if line.clock == "wall" and line.time_ns > 0:
                found.oldest_ns = min(found.oldest_ns or line.time_ns, line.time_ns)
                found.newest_ns = max(found.newest_ns, line.time_ns)
            found.notes.extend(notes)
    for reader in readers:
        found.notes.extend(reader.end())
    return found if found.notes or any(each.known for each in readers) else None


class _Offer:
    """Offers lines to readers in turn: to those that are busy, and those that the gate names."""

    def __init__(self, readers: Sequence[Reader]) -> None:
        self._readers: Final = readers
        self._gate: Final = _gate()
        self._busy = self._busy_now()

    def take(self, number: int, raw: str) -> tuple[TextLine, Sequence[Note]]:
        """The line, and what the first reader that makes something of it makes."""
        wanted = self._gate.readers_of(raw) if _is_plain(raw) else [_PREFIXED]
        if wanted and wanted[-1] == _PREFIXED:
            line = text_line(number, raw)
            wanted = [each for each in self._gate.readers_of(line.text) if each != _PREFIXED]
        else:
            line = TextLine(number, raw, raw[:TEXT_CHARS_MAX])
        if self._busy:
            wanted = sorted({*wanted, *self._busy})
        for place in wanted:
            reader = self._readers[place]
            notes = list(reader.take(line))
            if reader.busy != (place in self._busy):
                self._busy = self._busy_now()
            if notes:
                return line, notes
        return line, ()

    def _busy_now(self) -> list[int]:
        return [place for place, reader in enumerate(self._readers) if reader.busy]


@cache
def _gate() -> LineGate:
    """The readers' patterns, and after them those of prefixes."""
    wants = [(each.starts, each.holds) for each in READERS]
    return LineGate([*wants, ((*PREFIXES, *RANK_PREFIXES), ())])


def _is_plain(raw: str) -> bool:
    """Whether a line has nothing to be taken off besides prefixes, and begins as most without."""
    return raw[0].isalpha() and raw.isascii() and "\x1b" not in raw and "\0" not in raw
