"""How far this node's clock is from the time server's, as the kernel has it.

Why: between nodes a fact's own time is an interval, and a clock that nobody sets makes the order of
two nodes' facts worthless. How: adjtimex(2), read only, tells whether somebody keeps the clock, by
how much it may be off at most, and, where the kernel itself steers it (ntpd, systemd-timesyncd),
what is left to be mended. chronyd and phc2sys steer by frequency and keep the offset to themselves:
then it is absent, and only the bound is told. Python has no call for it, and no library that lives.
"""

import ctypes
import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from nemesis.producers.node.probe import Answer, NotReadError
from nemesis.producers.node.root import Root
from nemesis.schemas.channels import ABSENT
from nemesis.schemas.watched import ProbeState

SOURCE: Final = "clock"
COPIED: Final = "clock/adjtimex"
ORIGINS: Final[Mapping[str, str]] = {
    "clock_offset_ns": "adjtimex(2), offset, where the kernel steers the clock by it"
}
"""Channel to where it comes from."""
# sys/timex.h
_PLL: Final = 0x0001
_UNSYNC: Final = 0x0040
_NANO: Final = 0x2000
_FIELDS: Final = ("offset", "maxerror", "status")


class _Timex(ctypes.Structure):
    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_long * 32),  # more than the kernel writes: 208 bytes in all
    )


class ClockRead(NamedTuple):
    """The clock at one moment."""

    offset_ns: int
    """ABSENT where the kernel does not know."""
    error_ns: int
    """How far it may be off, either way."""


class Clock:
    """Asks the kernel about its clock."""

    def __init__(self, root: Root) -> None:
        self._root: Final = root
        self._is_machine: Final = root.path == Path("/")

    def read(self) -> Answer:
        """A ClockRead.

        Raises:
            NotReadError: nobody keeps this clock, or the kernel may not be asked.
        """
        rows = _asked() if self._is_machine else self._root.rows(COPIED)
        if not all(name in rows for name in _FIELDS):
            raise NotReadError("absent", f"no {COPIED} in this copy")
        self._root.keep_rows(COPIED, rows)
        status = rows["status"]
        if status & _UNSYNC:
            says = "nobody keeps this node's clock: run chronyd, ptp4l with phc2sys or their like"
            raise NotReadError("absent", says)
        offset = rows["offset"] * (1 if status & _NANO else 1000) if status & _PLL else ABSENT
        return Answer(ClockRead(offset, max(0, rows["maxerror"]) * 1000))


def _asked() -> dict[str, int]:
    timex = _Timex()
    if ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex)) < 0:
        number = ctypes.get_errno()
        state: ProbeState = "denied" if number == errno.EPERM else "unsupported"
        raise NotReadError(state, f"adjtimex: {os.strerror(number)}")
    return {name: int(getattr(timex, name)) for name in _FIELDS}
