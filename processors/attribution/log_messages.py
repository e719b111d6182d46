"""What one line of a program's log says, as far as it bears on faults of a training job.

Why: a line is evidence only once it is known who prints it and when. How: one pattern a message,
tried in order; what none knows says nothing. Not here: whose line it is and whether it is worth a
fact (the producers), what lines prove together (watchdog_findings.py and its neighbours).

Shapes: pytorch/pytorch torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp and its tests' logs;
NVIDIA/nccl src/transport/net_ib*, src/misc, src/ras/client_support.cc; CUDA's error strings
(docs.nvidia.com/cuda, cudaError_t); leptonai/gpud components/accelerator/nvidia/infiniband.
"""

import re
from typing import Final, Literal

import msgspec

from nemesis.schemas.codes import LogSource

LogKind = Literal[
    "timeout",
    "group_state",
    "call_differs",
    "stuck_in_host",
    "communicator",
    "launched",
    "missing_rank",
    "culprit_rank",
    "never_created",
    "activity",
    "cuda_error",
    "exception",
    "follower",
    "worker_killed",
    "killed",
    "no_space",
    "shm_full",
    "port_error",
    "device_error",
    "completion",
    "registration_failed",
    "peer_closed",
    "no_interface",
    "connect_failed",
    "queue_failed",
    "versions_differ",
    "node_failed",
    "time_over",
    "died",
    "trouble",
    "plugin_found",
    "plugin_missing",
    "interface",
    "port_down",
    "ports_ok",
    "gpu_lost",
    "first_failure",
    "wrong_values",
]


class LogMessage(msgspec.Struct, frozen=True, array_like=True):
    """One message."""

    kind: LogKind
    rank: int = -1
    """That the line itself names."""
    seq: int = -1
    op: str = ""
    size: str = ""
    """What it was called with, as far as the line says."""
    value_ns: int = 0
    """A limit, or how long something took."""
    number: int = -1
    """A code, a status, a signal."""
    device: str = ""
    what: str = ""
    """The error's name, an activity, a library."""


_TIMEOUT: Final = re.compile(
    r"(?:Rank (\d+)\] )?Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=(\d+), "
    r"OpType=(\w+)(?:, NumelIn=(\d+), NumelOut=(\d+))?, Timeout\(ms\)=(\d+)\)"
)
_GROUP_STATE: Final = re.compile(
    r"PG (?:ID )?(\w+)[^\]]*\bRank (\d+)\].*?last enqueued (?:NCCL )?work: (\d+), "
    r"last completed (?:NCCL )?work: (\d+)"
)
_CALL_DIFFERS: Final = re.compile(r"Detected mismatch between collectives on ranks")
_FINGERPRINT: Final = re.compile(
    r"Rank (\d+) is running (?:collective: )?CollectiveFingerPrint\((?:SequenceNumber=(\d+), ?)?"
    r"OpType=(\w+)(?:, TensorShape=\[([\d, ]*)\])?"
)
_STUCK_IN_HOST: Final = re.compile(r"watchdog got stuck for (\d+) seconds|GIL induced hang")
_COMMUNICATOR: Final = re.compile(
    r"(?:Communicator |#\d+-\d+ \()([0-9a-f]{8,})\)?:? *(?:.*\b(MISMATCH)\b)?"
)
_LAUNCHED: Final = re.compile(r"Rank (\d+) has launched up to operation (\d+)")
_MISSING: Final = re.compile(
    r"\bmissing ranks?:? \{([\d, ]+)\}|[Rr]anks? \[?([\d, ]+?)\]? (?:is|are) the lagging rank"
    r"|\[([\d, ]+)\] finished collective #\d+, but didn't join collective #"
    r"|[Rr]anks? ([\d, ]+?) failed to pass monitoredBarrier"
)
_CULPRIT: Final = re.compile(r"Culprit rank (\d+); Error type: (\w+)")
_NEVER: Final = re.compile(r"rank (\d+): .*?(\d+) never (?:created|enqueued)")
_CUDA: Final = re.compile(
    r"(?:CUDA error: |CUDA_ERROR_\w+: |CUDA failure \S+ '|Cuda failure (?:\d+ )?'"
    r"|cuda runtime error \(\d+\) : )([A-Za-z][^'\n]*?)(?:['.]|\s+at |\Z)"
)
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
_WORKER_KILLED: Final = re.compile(
    r"DataLoader worker \(pid(?:\(s\))? ([\d, ]+)\) (?:is|was) killed by signal: (\w+)"
    r"|DataLoader worker \(pid(?:\(s\))? ([\d, ]+)\) exited unexpectedly"
)
_NO_SPACE: Final = re.compile(
    r"No space left on device|Stale file handle|Input/output error"
    r"|Transport endpoint is not connected"
)
_SHM: Final = re.compile(
    r"/dev/shm/\S+.*(?:No space|fail)|(?:No space|fail).*/dev/shm"  # noqa: S108
    r"|insufficient shared memory \(shm\)"
)
_PORT_ERROR: Final = re.compile(
    r"NET/IB ?: (?:(\w+):(\d+) )?Got (?:non-fatal )?async event ?: ?port error"
)
_DEVICE_ERROR: Final = re.compile(
    r"NET/IB ?: (?:(\w+):(\d+) )?(?:Got )?async fatal event[^:]*: ?(.*)"
)
_COMPLETION: Final = re.compile(
    r"Got completion (?:from peer (\S+?)(?:<\d+>)? )?with "
    r"(?:error |status=)(?:\w+\()?(\d+)\)?(?:.*\bhca (\w+))?"
)
_REGISTRATION: Final = re.compile(
    r"Call to (ibv_(?:reg_mr\w*|reg_dmabuf_mr|create_cq|create_qp)) failed with error "
    r"(?:\d+ )?Cannot allocate memory|(ibv_reg_mr\w*) failed.*(?:ENOMEM|Cannot allocate memory)"
)
_PEER_CLOSED: Final = re.compile(r"Connection closed by remote peer ([\w.-]+)")
_NO_INTERFACE: Final = re.compile(r"no socket interface found|No interface found", re.IGNORECASE)
_CONNECT_FAILED: Final = re.compile(
    r"[Cc]onnect(?:ion)? to (\S+?)(?:<\d+>)? (?:failed|returned)[ :]*"
    r"(Connection refused|No route to host|Connection timed out|Network is unreachable|\w[\w ]*)"
)
_QUEUE_FAILED: Final = re.compile(
    r"Call to (ibv_modify_qp) failed with (?:error )?(?:\d+ ?)?([A-Z][\w ]*)"
)
_VERSIONS: Final = re.compile(
    r"(Driver/library version mismatch)|fabric ?manager.*(don't match|version mismatch)"
    r"|CUDA driver version is (insufficient) for CUDA runtime"
    r"|(?:NCCL|nccl).*(version mismatch|different NCCL versions)"
    r"|(?:undefined symbol|version `\S+' not found)[: ]+\(?(?:required by )?(\S*nccl\S*)",
    re.IGNORECASE,
)
_NODE_FAILED: Final = re.compile(
    r"[Nn]ode failure on ([\w.-]+)|Nodes? ([\w.-]+) not responding|"
    r"[Nn]ode[/ ]([\w.-]+) .*(?:NodeNotReady|status is now: NodeNotReady)"
)
_TIME_OVER: Final = re.compile(r"DUE TO TIME LIMIT|DeadlineExceeded")
_DIED: Final = re.compile(
    r"exitcode\s*: (-\d+) +\(pid: \d+\)|[Ss]ignal (\d+) \((?:SIG\w+)\) received by PID"
    r"|local_rank: \d+\) exitcode: (-\d+)|task (\d+): (Segmentation fault|Bus error|Killed)"
)
_PLUGIN_MISSING: Final = re.compile(
    r"(?:Could not find: ?|No plugin found \(|cannot find )(libnccl-net[\w.-]*)"
)
_PLUGIN: Final = re.compile(r"Plugin Path ?: \S*/(libnccl-net[\w.-]*)|Loaded net plugin (\w+)")
_INTERFACE: Final = re.compile(r"(?:Bootstrap|NET/Socket) ?: Using (?:\[\d+\])?([\w.-]+):([\d.]+)<")
_PORT_DOWN: Final = re.compile(
    r"\b((?:mlx|bnxt_re|irdma|efa|rdmap|ib)\w*\d\w*) port (\d+) (?:is )?(?:still )?down\b"
    r"|device\(s\) down(?: too long)?: ?([\w, ]+)"
)
_PORTS_OK: Final = re.compile(
    r"\bno infiniband port issue|all (?:ib|infiniband)? ?ports? (?:are )?up"
)
_GPU_LOST: Final = re.compile(
    r"GPU ?(?:at )?(?:PCI:)?([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-7])?).*"
    r"(?:GPU is lost|fallen off the bus|Unknown Error)",
)
_FIRST_FAILURE: Final = re.compile(
    r"local_rank: \d+\) exitcode: (-?\d+)|exitcode\s*: (-?\d+) +\(pid: (\d+)\)"
)
_KILLED: Final = re.compile(
    r"\bOOMKilled\b|oom[-_ ]kill|OUT_OF_MEMORY|Out Of Memory", re.IGNORECASE
)
_ON_GPU: Final = re.compile(r"cuda|\bhip\b|\bgpu\b|OutOfMemoryError", re.IGNORECASE)
_WRONG: Final = re.compile(r"Out of bounds values ?: ?(\d+)")
_ACTIVITY: Final = re.compile(
    r"(check-?point\w*|sav(?:e|ing|ed)\b|writ(?:e|ing|ten)\b|load(?:ing|ed)?\b|eval\w*|metadata"
    r"|compil\w+|tokeniz\w+|preprocess\w*|download\w*|upload\w*|dataset\w*|validat\w+|index\w*)",
    re.IGNORECASE,
)
_TROUBLE: Final = re.compile(
    r"[Ss]egmentation fault|Segfault|Bus error|core dumped|Traceback \(most recent|terminate called"
    r"|fallen off the bus|GPU is lost|NCCL WARN|NCCL ERROR|Illegal instruction|Unknown Error"
    r"|nvidia-smi has failed|loss.*\b(?:nan|inf)\b|\bnot responding\b|NODE_FAIL|CrashLoopBackOff"
    r"|Evicted|exitcode\s*: [1-9]|srun: error"
)
_TOOK: Final = re.compile(r"\b(\d{1,6}(?:\.\d+)?) ?(s|secs?|seconds|min|minutes)\b", re.IGNORECASE)
_ABSURD: Final = 2**31  # older releases print counters that nobody set


def parse_line(source: LogSource, text: str) -> LogMessage | None:
    """The message in a line, None where it says nothing that a rule knows."""
    for read in _READ:
        message = read(text)
        if message is not None:
            return message
    activity = _activity(text) if source == "program" else None
    if activity is None and _TROUBLE.search(text):
        return LogMessage("trouble", what=text[:80])
    return activity


def _timeout(text: str) -> LogMessage | None:
    if (match := _TIMEOUT.search(text)) is None:
        return None
    rank, seq, op, numel_in, numel_out, limit_ms = match.groups()
    size = f"{numel_in}/{numel_out}" if numel_in else ""
    limit_ns = int(limit_ms[:12]) * 1_000_000
    return LogMessage("timeout", _rank(rank), _small(seq), op.lower(), size, limit_ns)


def _group_state(text: str) -> LogMessage | None:
    if (match := _GROUP_STATE.search(text)) is None:
        return None
    group, rank, enqueued, completed = match.groups()
    done = _small(completed)
    return LogMessage("group_state", _rank(rank), _small(enqueued), number=done, device=group)


def _call_differs(text: str) -> LogMessage | None:
    if not _CALL_DIFFERS.search(text):
        return None
    calls = [f"{m[1]} {m[3].lower()} [{m[4] or ''}]" for m in _FINGERPRINT.finditer(text)]
    return LogMessage("call_differs", what="; ".join(calls)[:400])


def _launched(text: str) -> LogMessage | None:
    if match := _LAUNCHED.search(text):
        return LogMessage("launched", _rank(match[1]), _small(match[2]))
    if match := _COMMUNICATOR.match(text):
        return LogMessage("communicator", device=match[1], what=match[2] or "")
    if match := _NEVER.search(text):
        return LogMessage("never_created", _rank(match[1]), _small(match[2]))
    if match := _MISSING.search(text):
        ranks = next(group for group in match.groups() if group)
        return LogMessage("missing_rank", what=ranks.replace(" ", ""))
    if match := _CULPRIT.search(text):
        return LogMessage("culprit_rank", _rank(match[1]), what=match[2].lower())
    return None


def _host(text: str) -> LogMessage | None:
    if match := _STUCK_IN_HOST.search(text):
        return LogMessage("stuck_in_host", value_ns=int(match[1] or 0) * 1_000_000_000)
    if match := _WORKER_KILLED.search(text):
        return LogMessage(
            "worker_killed", device=(match[1] or match[3]).strip(), what=match[2] or "exited"
        )
    if _SHM.search(text):
        return LogMessage("shm_full")
    if match := _NO_SPACE.search(text):
        return LogMessage("no_space", what=match[0])
    if _KILLED.search(text) and not _ON_GPU.search(text):
        return LogMessage("killed")
    return None


def _network(text: str) -> LogMessage | None:
    if match := _PORT_ERROR.search(text):
        return LogMessage("port_error", device=match[1] or "", number=int(match[2] or -1))
    if match := _DEVICE_ERROR.search(text):
        return LogMessage("device_error", device=match[1] or "", what=match[3][:80])
    if match := _COMPLETION.search(text):
        return LogMessage(
            "completion", number=int(match[2][:6]), device=match[3] or "", what=match[1] or ""
        )
    if match := _REGISTRATION.search(text):
        return LogMessage("registration_failed", what=match[1] or match[2])
    if match := _PEER_CLOSED.search(text):
        return LogMessage("peer_closed", device=match[1])
    if _NO_INTERFACE.search(text):
        return LogMessage("no_interface")
    if match := _QUEUE_FAILED.search(text):
        return LogMessage("queue_failed", what=match[2][:60])
    if match := _CONNECT_FAILED.search(text):
        return LogMessage("connect_failed", device=match[1], what=match[2][:60])
    return None


def _plugins(text: str) -> LogMessage | None:
    if match := _PLUGIN_MISSING.search(text):
        return LogMessage("plugin_missing", what=match[1])
    if match := _PLUGIN.search(text):
        return LogMessage("plugin_found", what=match[1] or match[2])
    if match := _INTERFACE.search(text):
        return LogMessage("interface", device=match[1], what=match[2])
    return None


def _health(text: str) -> LogMessage | None:
    if _PORTS_OK.search(text):
        return LogMessage("ports_ok")
    if match := _PORT_DOWN.search(text):
        return LogMessage("port_down", device=(match[1] or match[3]).strip())
    if match := _GPU_LOST.search(text):
        return LogMessage("gpu_lost", device=match[1].lower())
    if (match := _WRONG.search(text)) and int(match[1][:9]):
        return LogMessage("wrong_values", number=int(match[1][:9]))
    return None


def _versions(text: str) -> LogMessage | None:
    if match := _VERSIONS.search(text):
        driver = match[1] or match[3]
        what = "nvidia-driver" if driver else "nvidia-fabricmanager" if match[2] else "nccl"
        return LogMessage("versions_differ", what=what)
    return None


def _scheduler(text: str) -> LogMessage | None:
    if match := _NODE_FAILED.search(text):
        return LogMessage("node_failed", device=match[1] or match[2] or match[3])
    if _TIME_OVER.search(text):
        return LogMessage("time_over")
    if match := _DIED.search(text):
        code = match[1] or match[3]
        signals = {"Segmentation fault": 11, "Bus error": 7, "Killed": 9}
        signal = -int(code) if code else int(match[2]) if match[2] else signals[match[5]]
        return LogMessage("died", _rank(match[4]), number=signal)
    return None


def _errors(text: str) -> LogMessage | None:
    if match := _CUDA.search(text):
        return LogMessage("cuda_error", what=match[1].strip().lower()[:120])
    if match := _FIRST_FAILURE.search(text):
        return LogMessage("first_failure", number=int((match[1] or match[2])[:6]))
    if _FOLLOWER.search(text):
        return LogMessage("follower")
    if match := _EXCEPTION.match(text):
        return LogMessage(
            "exception", device=match[1].rpartition(".")[2], what=(match[2] or "")[:200]
        )
    return None


def _activity(text: str) -> LogMessage | None:
    match = _ACTIVITY.search(text)
    if match is None:
        return None
    took = _TOOK.search(text)
    scale = 60 if took and took[2].lower().startswith("min") else 1
    took_ns = int(float(took[1]) * scale * 1e9) if took else 0
    return LogMessage("activity", value_ns=took_ns, what=text[:120])


_READ: Final = (
    _timeout,
    _group_state,
    _call_differs,
    _launched,
    _network,
    _plugins,
    _versions,
    _scheduler,
    _host,
    _health,
    _errors,
)


def _rank(digits: str | None) -> int:
    return int(digits[:9]) if digits else -1


def _small(digits: str) -> int:
    number = int(digits[:19])
    return number if number < _ABSURD else -1
