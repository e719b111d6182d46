"""Lines of NCCL, its plugins and health agents about adapters, ports and connections.

Shapes: NVIDIA/nccl src/transport/net_ib*, src/misc; leptonai/gpud
components/accelerator/nvidia/infiniband.
"""

import re
from typing import Final

from nemesis.processors.attribution.log_message import UNSAID, LogMessage

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
# calls that answer with a pointer: before 2.4 NCCL printed no reason
_REGISTRATION_FAILED: Final = re.compile(
    r"Call to (ibv_(?:reg_mr|create_cq|create_qp)) failed\s*\Z"
)
# openucx/ucx src/uct/ib/base names the limit that it met
_LOCK_LIMIT: Final = re.compile(r"max locked memory.*\(current: (\d{1,12}) kbytes\)")
_REGISTRATION_REFUSED: Final = re.compile(
    r"Call to (ibv_reg_(?:mr|dmabuf_mr)\w*) failed with error (?:\d+ )?"
    r"(Bad address|Operation not supported|Invalid argument|Function not implemented)"
)
_DEVICE_REFUSED: Final = re.compile(r"NET/IB ?: Unable to open device (\w+)")
_P2P_DISABLED: Final = "P2P is disabled between"  # nccl/src/graph/paths.cc
_PEER_CLOSED: Final = re.compile(r"Connection closed by remote peer ([\w.-]+)")
# src/misc/socket.cc: an address that no interface was found for has no family
_NO_INTERFACE: Final = re.compile(
    r"no socket interface found|No interface found|is neither AF_INET\b", re.IGNORECASE
)
_CONNECT_FAILED: Final = re.compile(
    r"[Cc]onnect(?:ion)? to (\S+?)(?:<\d+>)? (?:failed|returned)[ :]*"
    r"(Connection refused|No route to host|Connection timed out|Network is unreachable|\w[\w ]*)"
)
# gai_strerror(3), and what c10d and gloo say of it
_UNRESOLVED: Final = re.compile(
    r"Name or service not known|[Tt]emporary failure in name resolution|\bgai error\b"
    r"|No address associated with hostname|[Cc]ould not resolve host|nodename nor servname"
    r"|Unable to find address for"
)
# src/init.cc and src/misc/argcheck.cc of NCCL: what a caller may not ask for
_MISUSED: Final = re.compile(
    r"(Duplicate GPU detected)|argcheck\.cc:\d+ NCCL WARN (\w[^\n]{0,80})"
    r"|NCCL WARN (\w+ : invalid (?:root|type|reduction operation)\b.{0,60})"
)
_QUEUE_FAILED: Final = re.compile(
    r"Call to (ibv_modify_qp) failed with (?:error )?(?:\d+ ?)?([A-Z][\w ]*)"
)
_PLUGIN_MISSING: Final = re.compile(
    r"(?:Could not find: ?|No plugin found \(|cannot find )(libnccl-net[\w.-]*)"
)
_PLUGIN: Final = re.compile(r"Plugin Path ?: \S*/(libnccl-net[\w.-]*)|Loaded net plugin (\w+)")
_NETWORK_USED: Final = re.compile(r"NCCL INFO Using network (\w[\w ]{0,30}?)\s*\Z")
_RELEASE: Final = re.compile(r"\bNCCL version (\d+\.\d+(?:\.\d+)?)")
_INTERFACE: Final = re.compile(r"(?:Bootstrap|NET/Socket) ?: Using (?:\[\d+\])?([\w.-]+):([\d.]+)<")
_PORT_DOWN: Final = re.compile(
    r"\b((?:mlx|bnxt_re|irdma|efa|rdmap|ib)\w*\d\w*) port (\d+) (?:is )?(?:still )?down\b"
    r"|device\(s\) down(?: too long)?: ?([\w, ]+)"
)
_PORTS_OK: Final = re.compile(
    r"\bno infiniband port issue|all (?:ib|infiniband)? ?ports? (?:are )?up"
)


def network(text: str) -> LogMessage | None:
    """An adapter, a path or a connection that failed."""
    if match := _PORT_ERROR.search(text):
        return LogMessage("port_error", device=match[1] or "", number=int(match[2] or -1))
    if match := _DEVICE_ERROR.search(text):
        return LogMessage("device_error", device=match[1] or "", what=match[3][:80])
    if match := _COMPLETION.search(text):
        return LogMessage(
            "completion", number=int(match[2][:6]), device=match[3] or "", what=match[1] or ""
        )
    if _P2P_DISABLED in text:
        return LogMessage("p2p_disabled")
    if match := _PEER_CLOSED.search(text):
        return LogMessage("peer_closed", device=match[1])
    if _NO_INTERFACE.search(text):
        return LogMessage("no_interface")
    if match := _UNRESOLVED.search(text):
        return LogMessage("unresolved", what=match[0].lower())
    if match := _MISUSED.search(text):
        return LogMessage("misused", what=match[1] or match[2] or match[3])
    if match := _CONNECT_FAILED.search(text):
        return LogMessage("connect_failed", device=match[1], what=match[2][:60])
    return None


def adapters(text: str) -> LogMessage | None:
    """An adapter or the kernel that refused what a library asked of it."""
    if match := _LOCK_LIMIT.search(text):
        return LogMessage("registration_failed", number=int(match[1]), what="ulimit -l")
    if match := _REGISTRATION_REFUSED.search(text):
        return LogMessage("registration_refused", device=match[1], what=match[2])
    if match := _DEVICE_REFUSED.search(text):
        return LogMessage("device_refused", device=match[1])
    if match := _REGISTRATION.search(text):
        return LogMessage("registration_failed", what=match[1] or match[2])
    if match := _REGISTRATION_FAILED.search(text):
        return LogMessage("registration_failed", device=UNSAID, what=match[1])
    if match := _QUEUE_FAILED.search(text):
        return LogMessage("queue_failed", what=match[2][:60])
    return None


def plugins(text: str) -> LogMessage | None:
    """Which plugin and interface NCCL took."""
    if match := _NETWORK_USED.search(text):
        return LogMessage("network_used", what=match[1])
    if match := _PLUGIN_MISSING.search(text):
        return LogMessage("plugin_missing", what=match[1])
    if match := _PLUGIN.search(text):
        return LogMessage("plugin_found", what=match[1] or match[2])
    if match := _RELEASE.search(text):
        return LogMessage("release", device="nccl", what=match[1])
    if match := _INTERFACE.search(text):
        return LogMessage("interface", device=match[1], what=match[2])
    return None


def ports(text: str) -> LogMessage | None:
    """A port that an agent found down, or all of them up."""
    if _PORTS_OK.search(text):
        return LogMessage("ports_ok")
    if match := _PORT_DOWN.search(text):
        return LogMessage("port_down", device=(match[1] or match[3]).strip())
    return None
