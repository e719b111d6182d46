"""The kernel's log as journald keeps it, for a producer that may not open /dev/kmsg.

Why: where the kernel's log is shut to all but root, whoever is in the group systemd-journal may
still read what journald took from it. How: one journalctl follows for as long as the producer
lives; it is started anew only if it ended, a minute later, and behind the last line that was taken.
The binding of libsystemd has no wheels and would need a compiler on every node. Lines and their
priorities are the kernel's own (systemd.journal-fields(7)); what programs wrote is passed over.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from nemesis.producers.node.kmsg import RECORDS_MAX, WARNING, Record
from nemesis.producers.node.probe import NotReadError
from nemesis.producers.node.root import number_of
from nemesis.schemas.watched import ProbeState
from nemesis.streams.children import die_with_parent

SOURCE: Final = "journal"
PROGRAM: Final = "journalctl"
AGAIN_NS: Final = 60_000_000_000
CHUNK_BYTES: Final = 1 << 18
ENDS_S: Final = 1.0
_COMMAND: Final = (
    "--dmesg",
    "--follow",
    "--no-tail",
    "--all",
    "--no-pager",
    "--output=json",
    "--output-fields=MESSAGE,PRIORITY,SYSLOG_FACILITY,_SOURCE_MONOTONIC_TIMESTAMP",
)
_LEVELS: Final = tuple("01234567")
_KERNEL: Final = "0"  # the facility of what the kernel printed itself, syslog(3)
_GROUP: Final = "let the service be in the group systemd-journal"


class Journal:
    """Follows the kernel's lines in the journal."""

    def __init__(self, *, cursor: str, began_ns: int, folder: Path | None = None) -> None:
        """`cursor`: of the last line that was taken in this boot, "" for none; `began_ns`: since
        the boot, when the producer started; `folder`: of the journal, where not the machine's own.

        Raises:
            NotReadError: there is no journalctl.
        """
        program = shutil.which(PROGRAM)
        if program is None:
            raise NotReadError("absent", f"no {PROGRAM}")
        place = [f"--directory={folder}"] if folder else []
        self._command: Final = [program, *_COMMAND, *place]
        self.cursor = cursor
        """Of the last line that was taken."""
        self.next_seq: Final = -1
        self.missed_count: Final = 0
        self._resumes: Final = bool(cursor)
        self._began_ns: Final = began_ns
        self._rest = b""
        self._complaint = b""
        self._ended_ns = 0
        self._child = self._started()

    def read(self, monotonic_ns: int) -> list[Record]:
        """What is new, at most RECORDS_MAX records.

        Raises:
            NotReadError: it cannot be read at present; ask again.
        """
        taken: list[Record] = []
        for _ in range(RECORDS_MAX):
            line = self._line()
            if line is None:
                break
            record = self._take(line)
            if record is not None:
                taken.append(record)
        if not taken:
            self._check(monotonic_ns)
        return taken

    def close(self) -> None:
        """Read no more."""
        self._child.terminate()
        try:
            self._child.wait(ENDS_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        for pipe in (self._child.stdout, self._child.stderr):
            if pipe is not None:
                pipe.close()

    def _started(self) -> subprocess.Popen[bytes]:
        after = [f"--after-cursor={self.cursor}"] if self.cursor else []
        child = subprocess.Popen(
            [*self._command, *after],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "LC_ALL": "C"},
            preexec_fn=die_with_parent(),  # noqa: PLW1509  # two system calls, no lock taken
        )
        for pipe in (child.stdout, child.stderr):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
        return child

    def _line(self) -> bytes | None:
        """The next whole line, None where none is there yet."""
        while b"\n" not in self._rest:
            piece = _piece(self._child.stdout)
            if not piece:
                return None
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _take(self, line: bytes) -> Record | None:
        entry = _entry(line)
        cursor = entry.get("__CURSOR")
        if not isinstance(cursor, str):
            return None
        self.cursor = cursor
        text, priority = _text(entry.get("MESSAGE")), entry.get("PRIORITY")
        since_boot_us = number_of(str(entry.get("_SOURCE_MONOTONIC_TIMESTAMP")))
        if entry.get("SYSLOG_FACILITY") != _KERNEL or not text:
            return None
        level = int(priority) if isinstance(priority, str) and priority in _LEVELS else WARNING
        at_ns = since_boot_us * 1000 if since_boot_us >= 0 else self._began_ns
        is_old = not self._resumes and at_ns < self._began_ns
        return None if is_old and level > WARNING else Record(0, level, at_ns, text)

    def _check(self, monotonic_ns: int) -> None:
        """Whether somebody still follows.

        Raises:
            NotReadError: nobody does, or what he sees is not the kernel's log.
        """
        self._complaint = (self._complaint + _piece(self._child.stderr))[-4096:]
        state, says = _meant(self._complaint.decode(errors="replace"))
        if self._child.poll() is None:
            if says:
                raise NotReadError(state, says)
            return
        if not self._ended_ns:
            self._ended_ns = monotonic_ns
        if monotonic_ns - self._ended_ns >= AGAIN_NS:
            self.close()
            self._rest, self._complaint, self._ended_ns = b"", b"", 0
            self._child = self._started()
        raise NotReadError(state, says or f"{PROGRAM} ended with {self._child.returncode}")


def _piece(pipe: Any) -> bytes:
    try:
        return os.read(pipe.fileno(), CHUNK_BYTES)
    except BlockingIOError:
        return b""


def _entry(line: bytes) -> Mapping[str, Any]:
    try:
        entry = msgspec.json.decode(line)
    except msgspec.DecodeError:
        return {}
    return entry if isinstance(entry, dict) else {}


def _text(message: object) -> str:
    """A line; what is no UTF-8 comes as an array of its bytes."""
    if isinstance(message, list):
        own = [each for each in message if isinstance(each, int) and 0 <= each < 256]
        return bytes(own).decode(errors="replace")
    return message if isinstance(message, str) else ""


def _meant(complaint: str) -> tuple[ProbeState, str]:
    """What journalctl's words mean."""
    if "insufficient permissions" in complaint or "not seeing messages" in complaint:
        return "denied", f"journald's files may not be read: {_GROUP}"
    if "No journal files" in complaint:
        return "absent", "journald keeps no files here"
    last = complaint.strip().rpartition("\n")[2]
    return "broken", last[:200]
