"""One message of a program's log: its kind and what it names.

The readers of single lines are collective_lines.py, network_lines.py, host_lines.py and
program_lines.py; log_messages.py asks them in order.
"""

from typing import Final, Literal

import msgspec

LogKind = Literal[
    "timeout",
    "group_state",
    "call_differs",
    "stuck_in_host",
    "store_wait",
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
    "files_spent",
    "shm_full",
    "port_error",
    "device_error",
    "completion",
    "registration_failed",
    "registration_refused",
    "device_refused",
    "release",
    "xid_told",
    "p2p_disabled",
    "peer_closed",
    "no_interface",
    "connect_failed",
    "unresolved",
    "misused",
    "queue_failed",
    "versions_differ",
    "devices_withdrawn",
    "units_reloaded",
    "release_mismatch",
    "boot_option",
    "memory_event",
    "hook_failed",
    "network_used",
    "node_failed",
    "time_over",
    "died",
    "trouble",
    "severe",
    "finished",
    "plugin_found",
    "plugin_missing",
    "interface",
    "port_down",
    "ports_ok",
    "gpu_lost",
    "first_failure",
    "wrong_values",
]
UNSAID: Final = "unsaid"
"""In place of a reason that a library keeps to itself."""
_ABSURD: Final = 2**31  # older releases print counters that nobody set


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


def rank_of(digits: str | None) -> int:
    """A rank from its digits, -1 without."""
    return int(digits[:9]) if digits else -1


def small(digits: str) -> int:
    """A count from its digits, -1 for one that nobody set."""
    number = int(digits[:19])
    return number if number < _ABSURD else -1
