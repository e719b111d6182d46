"""Lines about what a host refuses or ends: memory, file systems, releases, schedulers, signals."""

import re
from typing import Final

from nemesis.processors.attribution.log_message import UNSAID, LogMessage, rank_of

_STUCK_IN_HOST: Final = re.compile(r"watchdog got stuck for (\d+) seconds|GIL induced hang")
_WORKER_KILLED: Final = re.compile(
    r"DataLoader worker \(pid(?:\(s\))? ([\d, ]+)\) (?:is|was) killed by signal: (\w+)"
    r"|DataLoader worker \(pid(?:\(s\))? ([\d, ]+)\) exited unexpectedly"
)
# of a page that /dev/shm has no room for (torch/csrc/DataLoader.cpp)
_BUS_ERROR: Final = "Bus"
_NO_SPACE: Final = re.compile(
    r"No space left on device|Stale file handle|Input/output error"
    r"|Transport endpoint is not connected|Disk quota exceeded|Read-only file system"
    r"|Cannot send after transport endpoint shutdown"
)
_SHM: Final = re.compile(
    r"/dev/shm/\S+.*(?:No space|fail)|(?:No space|fail).*/dev/shm"  # noqa: S108
    r"|insufficient shared memory \(shm\)|posix_fallocate\b.*No space"
    r"|\bshm_open failed|out of shared memory"
    r"|creating shared memory segment(?=.*(?:No space|[Pp]ermission|memory\b.*\Z))"
)
# older releases of NCCL print no reason here; what they called before may
_SHM_UNSAID: Final = "creating shared memory segment"
_FILES: Final = re.compile(r"Too many open files|\[Errno 24\]")
# kubernetes/kubernetes pkg/kubelet/eviction: what a node ran short of, or a pod took too much of
_EVICTED_FOR_DISK: Final = re.compile(
    r"low on resource: (?:ephemeral-storage|inodes|nodefs|imagefs)|\bDiskPressure\b"
    r"|[Ee]phemeral (?:local )?storage usage exceeds|usage of EmptyDir volume .* exceeds"
)
_EVICTED_FOR_MEMORY: Final = re.compile(r"low on resource: memory|condition: \[MemoryPressure\]")
_VERSIONS: Final = re.compile(
    r"(Driver/library version mismatch)|fabric ?manager.*(don't match|version mismatch)"
    r"|CUDA driver version is (insufficient) for CUDA runtime"
    r"|driver on your system is (?P<old>too old)"
    # cudaErrorSystemDriverMismatch (803), CompatNotSupportedOnDevice (804), UnsupportedPtxVersion
    r"|(?P<pair>unsupported display driver / cuda driver combination"
    r"|forward compatibility was attempted on non supported HW"
    r"|PTX was compiled with an unsupported toolchain)"
    r"|(?:NCCL|nccl).*(version mismatch|different NCCL versions)"
    r"|(?:undefined symbol|version `\S+' not found)[: ]+\(?(?:required by )?(\S*nccl\S*)",
    re.IGNORECASE,
)
# NVML_ERROR_UNKNOWN: the devices are there, and may not be opened any more
_WITHDRAWN: Final = re.compile(r"Failed to initialize NVML: Unknown Error")
# src/core/dbus-manager.c and src/core/main.c of systemd, and who asks for it
_RELOADED: Final = re.compile(
    r"\AReloading(?:\.(?:\.\.)?\s*\Z| requested from client PID| finished in)"
    r"|\bsystemctl (?:\S+ )?daemon-reload\b"
)
# rccl/src/init.cc
_BOOT_OPTION: Final = re.compile(r"Missing \"([\w.=]{1,40})\" from kernel command line")
# ipmitool lib/ipmi_sel.c: the sensor, what happened, and the module where the board names it
_MEMORY_EVENT: Final = re.compile(
    r"^Memory\b[^|]*\|.*?\b(?:(Uncorrectable ECC)|(Correctable ECC)( logging limit reached)?)"
    r"(?:[^(|@]*[(@]+([A-Za-z0-9][\w#-]{0,40}))?"
)
# libnvidia-container, printed by the runtime's hook
_HOOK: Final = re.compile(
    r"nvidia-container-cli: (\w[\w ]*error: [\w :.-]+)"
    # enroot's hook; moby, containerd and CDI where the runtime or its devices were not set up
    r"|(Command not found: nvidia-container-cli|could not select device driver"
    r"|unknown or invalid runtime name: \"?nvidia|no runtime for \"?nvidia"
    r"|unresolvable CDI devices|could not load NVML library"
    r"|libnvidia-ml\.so\.1: cannot open shared object)"
)
# nccl/src/init.cc: a rank that compares what all tell of themselves; it is seldom the odd one
_RELEASE_MISMATCH: Final = "Mismatched NCCL version detected"
_NODE_FAILED: Final = re.compile(
    r"[Nn]ode failure on ([\w.-]+)|Nodes? ([\w.-]+) not responding|"
    r"[Nn]ode[/ ]([\w.-]+) .*(?:NodeNotReady|status is now: NodeNotReady)"
)
_TIME_OVER: Final = re.compile(r"DUE TO TIME LIMIT|DeadlineExceeded")
_DIED: Final = re.compile(
    r"exitcode\s*: (-\d+) +\(pid: \d+\)|[Ss]ignal (\d+) \((?:SIG\w+)\) received by PID"
    r"|local_rank: \d+\) exitcode: (-\d+)|task (\d+): (Segmentation fault|Bus error|Killed)"
    r"|Exit Code:\s+(1[2-9]\d)\b"  # kubectl describe pod: 128 and the signal
)
_KILLED: Final = re.compile(
    r"\bOOMKilled\b|oom[-_ ]kill|OUT_OF_MEMORY|Out Of Memory(?! issue)"
    # ray-project/ray src/ray/raylet/node_manager.cc
    r"|killed due to (?:memory pressure|the node running low on memory)",
    re.IGNORECASE,
)
_ON_GPU: Final = re.compile(r"cuda|\bhip\b|\bgpu\b|OutOfMemoryError", re.IGNORECASE)


def host(text: str) -> LogMessage | None:
    """What the host refused a process."""
    if match := _STUCK_IN_HOST.search(text):
        return LogMessage("stuck_in_host", value_ns=int(match[1] or 0) * 1_000_000_000)
    if (match := _WORKER_KILLED.search(text)) and match[2] != _BUS_ERROR:
        # the advice about shared memory beside it is torch's guess; the signal is what happened
        return LogMessage(
            "worker_killed", device=(match[1] or match[3]).strip(), what=match[2] or "exited"
        )
    if _SHM.search(text):
        return LogMessage("shm_full")
    if _SHM_UNSAID in text:
        return LogMessage("shm_full", what=UNSAID)
    if match:
        return LogMessage("worker_killed", device=match[1].strip(), what=match[2])
    if _FILES.search(text):
        return LogMessage("files_spent")
    if match := _NO_SPACE.search(text):
        return LogMessage("no_space", what=match[0])
    if _EVICTED_FOR_DISK.search(text):
        return LogMessage("no_space", what="the pod's or node's own disk is full")
    if _EVICTED_FOR_MEMORY.search(text) or (_KILLED.search(text) and not _ON_GPU.search(text)):
        return LogMessage("killed")
    return None


def versions(text: str) -> LogMessage | None:
    """Two parts of different releases."""
    if match := _VERSIONS.search(text):
        driver = match[1] or match[3] or match["old"] or match["pair"]
        what = "nvidia-driver" if driver else "nvidia-fabricmanager" if match[2] else "nccl"
        return LogMessage("versions_differ", what=what)
    if match := _BOOT_OPTION.search(text):
        return LogMessage("boot_option", what=match[1])
    if _RELEASE_MISMATCH in text:
        return LogMessage("release_mismatch", what="nccl")
    return None


def board(text: str) -> LogMessage | None:
    """An event of memory in a board's own log."""
    if (match := _MEMORY_EVENT.search(text)) is None:
        return None
    what = "uncorrectable" if match[1] else "limit" if match[3] else "correctable"
    return LogMessage("memory_event", device=match[4] or "", what=what)


def containers(text: str) -> LogMessage | None:
    """A container that lost its devices, and what takes them from it."""
    if _WITHDRAWN.search(text):
        return LogMessage("devices_withdrawn")
    if match := _HOOK.search(text):
        return LogMessage("hook_failed", what=(match[1] or match[2])[:80])
    return LogMessage("units_reloaded") if _RELOADED.search(text) else None


def scheduler(text: str) -> LogMessage | None:
    """A node or job that a scheduler gave up, a process that was ended."""
    if match := _NODE_FAILED.search(text):
        return LogMessage("node_failed", device=match[1] or match[2] or match[3])
    if _TIME_OVER.search(text):
        return LogMessage("time_over")
    if match := _DIED.search(text):
        code = match[1] or match[3] or (match[6] and str(128 - int(match[6])))
        signals = {"Segmentation fault": 11, "Bus error": 7, "Killed": 9}
        signal = -int(code) if code else int(match[2]) if match[2] else signals[match[5]]
        return LogMessage("died", rank_of(match[4]), number=signal)
    return None
