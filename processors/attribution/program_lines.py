"""Lines of a program about itself: exceptions, CUDA errors, what it is busy with.

Shapes: CUDA's error strings (docs.nvidia.com/cuda, cudaError_t), Python's tracebacks.
"""

import re
from typing import Final

from nemesis.processors.attribution.log_message import LogMessage

_CUDA: Final = re.compile(
    r"(?:CUDA error: |\[CUDA_ERROR_\w+\] |CUDA_ERROR_\w+: "
    r"|CUDA failure \S+ '|Cuda failure (?:\d+ )?'"
    r"|cuda runtime error \(\d+\) : |(?:CUDA|cuda).*\bError \d{1,3}: )"
    r"([A-Za-z][^'\n]*?)(?:['.]|\s+at |\s+\(Triggered|\Z)"
)
# src/include/checks.h of NCCL; its tests and PyTorch write CUDA
_CALLED_BY_NCCL: Final = re.compile(r"\bCuda failure\b")
_GPU_FULL: Final = re.compile(r"\b(?:CUDA|HIP) out of memory\b")
_EXCEPTION: Final = re.compile(
    r"\s*((?:[\w]+\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit))(?:: (.*))?\Z"
)
_FOLLOWER: Final = re.compile(
    r"Dist(?:Store|Backend|Network)?Error|wait timeout after|CalledProcessError|Process\w+Exception"
    r"|WorkerCrashedError|RayTaskError|ActorDiedError|BrokenPipe|ConnectionReset|EOFError"
    r"|setting up NCCL communicator|NCCL (?:communicator|error|operation)"
    r"|ChildFailedError"
    r"|[Cc]onnection (?:reset|closed|refused)|Broken pipe|TCPStore|SignalException|SIGTERM"
    r"|KeyboardInterrupt|SystemExit|was aborted|remote process|gloo/transport|[Ww]atchdog"
    r"|Timed out waiting|unhandled (?:system|cuda) error|To avoid data inconsistency"
)
_FIRST_FAILURE: Final = re.compile(
    r"local_rank: \d+\) exitcode: (-?\d+)|exitcode\s*: (-?\d+) +\(pid: (\d+)\)"
)
_ACTIVITY: Final = re.compile(
    r"(check-?point\w*|sav(?:e|ing|ed)\b|writ(?:e|ing|ten)\b|load(?:ing|ed)?\b|eval\w*|metadata"
    r"|compil\w+|tokeniz\w+|preprocess\w*|download\w*|upload\w*|dataset\w*|validat\w+|index\w*)",
    re.IGNORECASE,
)
_TROUBLE: Final = re.compile(
    r"[Ss]egmentation fault|Segfault|Bus error|core dumped|Traceback \(most recent|terminate called"
    r"|fallen off the bus|GPU is lost|NCCL (?:WARN|ERROR)|\.(?:cu|cc|h):\d+ WARN "
    r"|Illegal instruction|Unknown Error"
    r"|nvidia-smi has failed|loss.*\b(?:nan|inf)\b|\bnot responding\b|NODE_FAIL|CrashLoopBackOff"
    r"|Unexpected result (?:nan|inf)\b|\bfound NaN\b|\b(?:FATAL|CRITICAL)\b"
    r"|STEPD TERMINATED|CANCELLED AT\b|\bWTERMSIG [1-9]|slurm\w+: error"
    r"|Evicted|exitcode\s*: [1-9]|srun: error|\bXid[ =]\d|Cannot allocate memory|\bKilled\b"
    r"|Did not get (?:initial|subsequent) heartbeat|Workload section \S+ timed out"
    r"|[Oo]ut of memory|[Aa]ssertion\b.*\bfailed|is killed by signal|CUDA initialization"
)
FINISHED: Final = re.compile(
    r"\b(?:finished|completed|succeeded|done|passed)\b.{0,20}\bsuccessfully\b|\bsuccessfully"
    r" (?:finished|completed|done|passed)\b"
    r"|\b(?:training|job|run|test|tests|benchmark|script|program|workload|steps?|epochs?)\b.{0,24}"
    r"\b(?:finished|completed?|done|succeeded|successful|passed)\b[\s.!\"'}]*(?:\Z|in\b|after\b|at\b)"
    r"|\b[Ee]xit(?:ed)?(?: with)?[ _]?(?:[Cc]ode|status)?[ :=]+0(?::0)?(?![\d.:])"
    r"|\b(?:JobState|State)=COMPLETED\b|\bOut of bounds values : 0 OK|\bSUCCEEDED\b|\d+ passed\b"
)
_TOOK: Final = re.compile(r"\b(\d{1,6}(?:\.\d+)?) ?(s|secs?|seconds|min|minutes)\b", re.IGNORECASE)
_BAR_TOOK: Final = re.compile(r"\[(?:(\d{1,4}):)?(\d{1,2}):(\d{2})<")  # tqdm: elapsed<remaining
_GPU_LOST: Final = re.compile(
    r"GPU ?(?:at )?(?:PCI:)?([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-7])?).*"
    r"(?:GPU is lost|fallen off the bus|Unknown Error)",
)
_PCI: Final = r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-7])?"
# NVIDIA/k8s-device-plugin internal/rm/health.go, and other agents that name a GPU by its UUID
_XID_TOLD: Final = re.compile(
    rf"\b(?i:Xid)[= ](\d{{1,4}})\b.*?\b(?:Device=|on (?:GPU |device )?)(GPU-[0-9a-f-]{{36}}|{_PCI})"
)
_WRONG: Final = re.compile(r"Out of bounds values ?: ?(\d+)")


def errors(text: str) -> LogMessage | None:
    """An error of the program."""
    if _GPU_FULL.search(text):
        return LogMessage("cuda_error", what="out of memory")
    if match := _CUDA.search(text):
        by = "nccl" if _CALLED_BY_NCCL.search(text) else ""
        return LogMessage("cuda_error", device=by, what=match[1].strip().lower()[:120])
    if match := _FIRST_FAILURE.search(text):
        return LogMessage("first_failure", number=int((match[1] or match[2])[:6]))
    if _FOLLOWER.search(text):
        return LogMessage("follower")
    if match := _EXCEPTION.match(text):
        return LogMessage(
            "exception", device=match[1].rpartition(".")[2], what=(match[2] or "")[:200]
        )
    return None


def activity(text: str) -> LogMessage | None:
    """A stage that the others may have to wait for."""
    match = _ACTIVITY.search(text)
    if match is None:
        return None
    took = _TOOK.search(text)
    scale = 60 if took and took[2].lower().startswith("min") else 1
    took_ns = int(float(took[1]) * scale * 1e9) if took else 0
    if bar := _BAR_TOOK.search(text):
        took_ns = (int(bar[1] or 0) * 3600 + int(bar[2]) * 60 + int(bar[3])) * 1_000_000_000
    return LogMessage("activity", value_ns=took_ns, what=text[:120])


def health(text: str) -> LogMessage | None:
    """A GPU that a tool cannot reach, or wrong results of a test."""
    if match := _GPU_LOST.search(text):
        return LogMessage("gpu_lost", device=match[1].lower())
    if match := _XID_TOLD.search(text):
        return LogMessage("xid_told", number=int(match[1]), device=match[2])
    if (match := _WRONG.search(text)) and int(match[1][:9]):
        return LogMessage("wrong_values", number=int(match[1][:9]))
    return None


def finished(text: str) -> LogMessage | None:
    """That something ended as it should."""
    return LogMessage("finished", what=text[:80]) if FINISHED.search(text) else None


def trouble(text: str) -> LogMessage | None:
    """That something failed, whatever it was."""
    return LogMessage("trouble", what=text[:80]) if _TROUBLE.search(text) else None
