"""The kernel's log, record by record, as /dev/kmsg hands it out.

Why: an Xid is in it within milliseconds, with words that no counter has. How: the file is read
without waiting, from where the last life of the producer stopped; of what was printed before that
nobody read, only warnings are taken. A reader that is too slow is told by the kernel that records
were overwritten (EPIPE), and their numbers tell how many. Format: Linux
Documentation/ABI/testing/dev-kmsg. Not here: limits of a flood (producers/kernel.py).
"""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from nemesis.producers.node.probe import NotReadError

RECORD_BYTES: Final = 8192  # the kernel refuses a buffer that the record does not fit into
RECORDS_MAX: Final = 2000  # at one look; more wait for the next
COPY_BYTES: Final = 16 << 20
WARNING: Final = 4
PROGRAMS: Final = 8  # from here on the number says that a program wrote it, not the kernel


class Record(NamedTuple):
    """One line that the kernel printed."""

    seq: int
    priority: int
    since_boot_ns: int
    text: str


class Kmsg:
    """Follows the kernel's log."""

    def __init__(self, path: Path, *, next_seq: int, began_ns: int) -> None:
        """`next_seq`: the first record to take, -1: nobody read it in this boot; `began_ns`: since
        the boot, when the producer started.

        Raises:
            NotReadError: it may not be read, or there is none.
        """
        try:
            self._fd: Final = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except PermissionError as error:
            hint = "let the service have CAP_SYSLOG, or set kernel.dmesg_restrict=0"
            raise NotReadError("denied", f"{path} may not be read: {hint}") from error
        except OSError as error:
            raise NotReadError("absent", f"{path}: {error.strerror}") from error
        self.next_seq = next_seq
        """The record that comes next, -1: any."""
        self.cursor: Final = ""
        self.missed_count = 0
        """Records that were overwritten before they were read."""
        # a capture of a node is a plain file, all records in one
        self._is_copy: Final = stat.S_ISREG(os.fstat(self._fd).st_mode)
        self._resumes: Final = next_seq >= 0
        self._began_ns: Final = began_ns

    def read(self, _monotonic_ns: int) -> list[Record]:
        """What is new, at most RECORDS_MAX records.

        Raises:
            OSError: the log cannot be read any more.
        """
        taken: list[Record] = []
        for raw in self._raw_records():
            record = parsed(raw)
            if record is None or record.seq < self.next_seq:
                continue
            if self.next_seq >= 0:
                self.missed_count += record.seq - self.next_seq
            self.next_seq = record.seq + 1
            is_old = not self._resumes and record.since_boot_ns < self._began_ns
            if record.priority < PROGRAMS and not (is_old and record.priority > WARNING):
                taken.append(record)
        return taken

    def _raw_records(self) -> Iterator[bytes]:
        if self._is_copy:
            raw = os.read(self._fd, COPY_BYTES)
            whole = raw[: raw.rfind(b"\n") + 1]  # what is being written is read when it is whole
            os.lseek(self._fd, len(whole) - len(raw), os.SEEK_CUR)
            yield from whole.splitlines()
            return
        for _ in range(RECORDS_MAX):
            try:
                raw = os.read(self._fd, RECORD_BYTES)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno == errno.EPIPE:
                    continue  # the next record tells by its number how many are lost
                raise
            if not raw:
                return
            yield raw

    def close(self) -> None:
        """Read no more."""
        os.close(self._fd)


def parsed(raw: bytes) -> Record | None:
    """A record; its priority is 8 or more where a program wrote it; None for what is none."""
    head, semicolon, body = raw.decode(errors="replace").partition(";")
    fields = head.split(",")
    if not semicolon or len(fields) < 3 or not all(each.isdecimal() for each in fields[:3]):
        return None
    number, seq, since_boot_us = (int(each) for each in fields[:3])
    text = body.partition("\n")[0]  # what follows is a dictionary of devices
    return Record(seq, number, since_boot_us * 1000, text)
