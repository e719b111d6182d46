"""A tree of files that looks like a machine's: `/`, or a copy of its /proc and /sys.

Nothing here is trusted: a file may be missing, forbidden, cut off, hold words where numbers are due
or a number that no counter reaches. What is no reading is ABSENT, never 0.
"""

import errno
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from nemesis.schemas.channels import ABSENT

BYTES_MAX: Final = 1 << 20
"""No file that is read here is larger on a healthy machine; /proc/stat of 512 CPUs has 60 KiB."""
INT64_MAX: Final = 2**63 - 1
_WHOLE: Final = re.compile(r"-?\d{1,20}\Z")


class Root:
    """Where a machine's files lie."""

    def __init__(self, path: Path = Path("/")) -> None:
        self.path: Final = path

    def at(self, name: str) -> Path:
        """The place of a file that is `/name` on the machine."""
        return self.path / name

    def text(self, name: str) -> str:
        """A file's text.

        Raises:
            OSError: it is not there, may not or cannot be read, or is no file: a pipe or a device
                may have no end, or never begin.
        """
        with open(self.at(name), "rb", opener=_opened) as file:
            return file.read(BYTES_MAX).decode(errors="replace")

    def words(self, name: str) -> list[str]:
        """A file's words; none where it cannot be read."""
        try:
            return self.text(name).split()
        except OSError:
            return []

    def line(self, name: str) -> str:
        """A file of one line, without its end; "" where it cannot be read."""
        try:
            return self.text(name).strip()
        except OSError:
            return ""

    def number(self, name: str) -> int:
        """A file that holds one number; ABSENT where it does not."""
        return number_of(self.line(name))

    def rows(self, name: str) -> dict[str, int]:
        """A file of lines `name value`, or `name: value`; without what is no number."""
        try:
            lines = self.text(name).splitlines()
        except OSError:
            return {}
        pairs = (line.replace(":", " ").split()[:2] for line in lines)
        read = {pair[0]: number_of(pair[1]) for pair in pairs if len(pair) == 2}
        return {name: value for name, value in read.items() if value != ABSENT}

    def names(self, folder: str) -> list[str]:
        """What lies in a folder, sorted; nothing where it cannot be read."""
        try:
            return sorted(each.name for each in self.at(folder).iterdir())
        except OSError:
            return []

    def keep_rows(self, name: str, rows: Mapping[str, int]) -> None:
        """What was read by another way than a file: a recording puts it where `rows` reads it."""

    def pci_path(self, device: str) -> list[str]:
        """The PCI addresses from the root port down to a device that /sys links to, `device`."""
        try:
            parts = self.at(device).resolve(strict=True).parts
        except (OSError, RuntimeError):
            return []
        return [part for part in parts if re.fullmatch(r"[0-9a-f]{4,8}(:[0-9a-f]{2}){2}\.\d", part)]


def _opened(path: str, flags: int) -> int:
    """A regular file, and nothing else: to open a pipe would wait for somebody who writes."""
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "no regular file", path)
    return descriptor


def number_of(text: str) -> int:
    """A whole number as a counter has it; ABSENT for anything else, also for what overflows."""
    if _WHOLE.match(text) is None:
        return ABSENT
    value = int(text)
    return value if abs(value) <= INT64_MAX else ABSENT


def present(values: dict[str, int]) -> Iterator[tuple[str, int]]:
    """What was read of these."""
    return ((name, value) for name, value in values.items() if value != ABSENT)
