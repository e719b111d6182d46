"""Lines of programs' logs that may tell of a fault: libraries' warnings, tracebacks, health agents.

What a line means is a processor's business (processors/attribution/log_messages.py); here is only
whose line it is and whether it is of a kind that ever matters. Equal lines of one process count
once. A job's log is mostly progress and chatter, so what nobody knows is left out, unless the line
itself says that something failed or ended as it should: that much of any log is worth a fact.
"""

import re
from collections.abc import Iterable
from typing import Final

from nemesis.processors.attribution.program_lines import FINISHED, finished
from nemesis.processors.attribution.severity import SIGNS, STARTS, is_severe
from nemesis.producers.readers.notes import Note, Reader, TextLine, note
from nemesis.producers.readers.unplaced import unplaced
from nemesis.schemas.codes import LogSource
from nemesis.schemas.observed import LogLineWritten

TEXT_CHARS_MAX: Final = 2000
SEEN_MAX: Final = 100_000
UNKNOWN_MAX: Final = 1000
"""Lines of one file that are taken for their severity alone."""
_NCCL_PREFIX: Final = re.compile(r"([A-Za-z0-9][\w.-]{0,62}):(\d{1,9}):\d{1,9} \[\d+\] ")
_HOST_PREFIX: Final = re.compile(r"(?:\.\. )?([A-Za-z][\w.-]{0,62}?)(?: pid (\d{1,9}))?: (?=Test )")
_HEALTH_PREFIX: Final = re.compile(r"([A-Za-z0-9][\w.-]{0,62}) ([a-z][\w-]*): ")
_SOURCES: Final[tuple[tuple[LogSource, re.Pattern[str]], ...]] = (
    (
        "ras",
        re.compile(
            r"has launched up to operation|Communicator [0-9a-f]{8,}|NCCL DIAG \["
            r"|RAS .*(?:dead|missing)"
        ),
    ),
    (
        "recorder",
        re.compile(
            r"(?:scheduled on|missing) ranks? \{|never (?:created|enqueued)|\blast completed \d+"
            r"|missing ranks?: \{|Culprit rank|missed FR dumps from"
        ),
    ),
    (
        "nccl",
        re.compile(
            r"NCCL WARN|NCCL ERROR|\[\d+\] \S+\.(?:cu|cc|h):\d+ WARN "
            r"|ncclUnhandled|ncclSystemError|ncclRemoteError"
            r"|version mismatch|don't match with driver version"
            r"|NCCL INFO (?:NET/|Plugin|P2P plugin|Bootstrap|Using (?:network|internal|non-device)"
            r"|NCCL version|NCCL_\w+ set|comm 0x)|NCCL version \d|Test (?:CUDA|NCCL) failure"
            r"|Out of bounds values"
        ),
    ),
    (
        "torch",
        re.compile(
            r"ProcessGroup(?:NCCL|Gloo)|WorkNCCL\(|CollectiveFingerPrint|[Ww]atchdog|gloo/transport"
            r"|[Hh]eartbeat [Mm]onitor|TCPStore|monitoredBarrier"
            r"|lagging ranks?|didn't join collective|\bgai error\b|Unable to find address for"
        ),
    ),
    (
        "launcher",
        re.compile(
            # NVIDIA/nvidia-resiliency-ext src/.../fault_tolerance/rank_monitor_server.py
            r"Did not get (?:initial|subsequent) heartbeat|RankMonitorServer"
            r"|ChildFailedError|Root Cause|\bexitcode\b|srun: error|mpirun|[Ss]ignal \d+ \(SIG\w+\)"
            r"|\blocal_rank: \d+\)|SignalException|elastic.*(?:failed|closed)"
        ),
    ),
    (
        "scheduler",
        re.compile(
            r"slurm(?:d|ctld|stepd)\b|JobState=|OOMKilled|OUT_OF_MEMORY|NODE_FAIL|CANCELLED|PREEMPTED"
            r"|WTERMSIG [1-9]|STEPD TERMINATED|[Nn]ode failure on|not responding|DeadlineExceeded"
            r"|DUE TO TIME LIMIT|\bEvicted\b|low on resource|FailedScheduling|BackOff"
            r"|NodeNotReady|Preempt|Exit Code:\s+[1-9]"
        ),
    ),
    (
        "health",
        re.compile(
            r"\bport \d+ (?:is )?down\b|device\(s\) down|no infiniband port issue"
            r"|port\(s\) are active"
            r"|link (?:down|up)\b|NVLink .*(?:inactive|down)|health (?:check|status)"
        ),
    ),
    (
        "service",
        re.compile(
            r"nvidia-container-cli: \w|Command not found: nvidia-|could not select device driver"
            r"|invalid runtime name|no runtime for \W{0,2}nvidia|CDI devices|libnvidia-ml"
            r"|NVML library"
            r"|\AReloading(?:\.|\s(?:requested|finished))|systemctl (?:\S+ )?daemon-reload"
            r"|fabric ?manager.*(?:[Ff]ail|[Ee]rror|abort)|nv-hostengine|imex.*(?:fail|error)",
            re.IGNORECASE,
        ),
    ),
    (
        "program",
        re.compile(
            r"Traceback \(most recent|^\s*(?:[\w.]+\.)?\w*(?:Error|Exception|Interrupt)\b ?:?"
            r"|CUDA error|CUDA_ERROR_|cuda runtime error|terminate called after|what\(\): "
            r"|[Oo]ut of memory|[Kk]illed\b|Segmentation fault|Bus error|Illegal instruction"
            r"|No space left|Stale file handle|Input/output error|GPU is lost|fallen off the bus"
            r"|DataLoader worker|[Ee]phemeral (?:local )?storage|CUDA initialization|\bXid[= ]\d"
            r"|Name or service not known|name resolution|[Cc]ould not resolve host"
            r"|max locked memory|\b(?:FATAL|CRITICAL)\b|\bERROR[]:]"
            r"|Unexpected result (?:nan|inf)|found NaN"
            r"|shared memory|Too many open files|Cannot allocate memory"
            r"|core dumped|\bloss\b\W{0,3}(?:is )?(?:nan|inf)\b|restart \d+ from|Unknown Error"
            r"|Driver/library version mismatch|driver version is insufficient"
            r"|Transport endpoint is not connected|undefined symbol"
            r"|assert(?:ion)? .*failed|nvidia-smi has failed|Unable to determine the device handle"
        ),
    ),
)
_ACTIVITY: Final = re.compile(
    r"\b(?:check-?point\w*|sav(?:e|ing|ed)|writ(?:e|ing|ten)|load(?:ing|ed)?|eval\w*|metadata"
    r"|compil\w+|tokeniz\w+|preprocess\w*|download\w*|upload\w*|dataset|validat\w+|index)\b.*"
    r"(?:\.\.\.|\b\d+(?:\.\d+)? ?(?:s|sec|secs|seconds|min|minutes)\b)",
    re.IGNORECASE,
)
"""A stage of a program that the others may have to wait for."""
_BAR: Final = re.compile(
    r"\b(?:tokeniz|preprocess|dataset|load|download|index|sav|eval|validat|compil)\w*\b.*\d%\|",
    re.IGNORECASE,
)
"""tqdm's bar of such a stage. A bar is drawn again and again: the last one of a row counts."""
_ERROR_FOLLOWS: Final = re.compile(r"Last error:\s*\Z")
_TOLD: Final = (
    *(pattern for _, pattern in _SOURCES),
    _ACTIVITY,
    _BAR,
    *SIGNS,
    FINISHED,
    _ERROR_FOLLOWS,
)


def nccl_host(text: str) -> str:
    """The host that NCCL puts before each of its lines; empty where this is none of them."""
    match = _NCCL_PREFIX.search(text) if " NCCL " in text else None
    return match[1] if match else ""


class ProgramLog(Reader):
    """Reads what a job, its libraries and the agents around it print."""

    starts = STARTS
    holds = _TOLD

    def __init__(self, unknown_max: int = UNKNOWN_MAX) -> None:
        self._seen: dict[tuple[str, int, str], None] = {}
        self._unknown_left = unknown_max
        self._bar: TextLine | None = None
        self._error_follows = False

    @property
    def busy(self) -> bool:
        """Before the line that NCCL's last error is."""
        return self._error_follows

    def take(self, line: TextLine) -> Iterable[Note]:
        """A line of a kind that may matter."""
        if self._error_follows:  # ncclGetLastError, which prints its own line
            line.text = f"Last error: {line.text.strip()}"
        self._error_follows = _ERROR_FOLLOWS.search(line.text) is not None
        source = "nccl" if line.text.startswith("Last error: ") else _source(line.text)
        if source is None and _BAR.search(line.text):
            self.known, self._bar = True, line
            return ()
        if source is None:
            if self._unknown_left <= 0 or not _tells_its_end(line.text):
                return ()
            self._unknown_left -= 1
            source = "program"
        self.known = True
        self._take_host(line)
        key = (line.host, line.rank, line.text)
        if key in self._seen:
            return ()
        if len(self._seen) < SEEN_MAX:
            self._seen[key] = None
        return [*self.end(), self._note(line, source)]

    def end(self) -> Iterable[Note]:
        """The bar that was drawn last."""
        bar, self._bar = self._bar, None
        return () if bar is None else [self._note(bar, "program")]

    def _note(self, line: TextLine, source: LogSource) -> Note:
        written = LogLineWritten(
            **unplaced(line.host),
            source=source,
            text=line.text.strip()[:TEXT_CHARS_MAX],
            rank=line.rank,
            pid=line.pid,
        )
        return note(line, written)

    def _take_host(self, line: TextLine) -> None:
        if match := _NCCL_PREFIX.search(line.text):
            line.host, line.pid = match[1], int(match[2])
        elif (match := _HOST_PREFIX.match(line.text)) or (
            line.clock == "wall"
            and (match := _HEALTH_PREFIX.match(line.text))
            and _is_host(match[1])
        ):
            line.host = match[1]


def _is_host(word: str) -> bool:
    """Whether a word before a program's name is a host's: it has a digit or several parts."""
    return any(each.isdigit() for each in word) or "-" in word or "." in word


def _source(text: str) -> LogSource | None:
    for source, pattern in _SOURCES:
        if pattern.search(text):
            return source
    return "program" if _ACTIVITY.search(text) else None


def _tells_its_end(text: str) -> bool:
    return is_severe(text) or finished(text) is not None
