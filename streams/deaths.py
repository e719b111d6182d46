"""Inputs on which a processor died, remembered across deaths of its process.

Why: a step may take the whole process with it (out of memory, a crash in native code), and then
nobody is left to count. How: a few words in a mapped file say which input is being stepped; pages
of a mapped file outlive the process that wrote them. Who opens the file next finds the input in
which the last one died. Each copy holds a file of its own, the first free one, while it lives.
An input is known by its sequence and its storage time: a log that was rolled back holds another
input at the same sequence, and nobody died of that one.
"""

import fcntl
import mmap
import os
import struct
from pathlib import Path
from typing import Final

from nemesis.schemas.errors import NemesisError
from nemesis.schemas.facts import Record
from nemesis.schemas.tokens import token_of

DEATHS_MAX: Final = 3
SLOTS_MAX: Final = 64
ERROR_BYTES_MAX: Final = 400
_STEP: Final = struct.Struct("<QQ")  # (sequence, storage time) of an input
_TALLY: Final = struct.Struct("<QQI")
_TALLY_AT: Final = 16
_SAID: Final = struct.Struct("<QQI")
_SAID_AT: Final = 36
_ERROR_AT: Final = 56
_SIZE_BYTES: Final = _ERROR_AT + ERROR_BYTES_MAX


class NoSlotError(NemesisError):
    """More copies of one processor on one machine than make sense."""


class Deaths:
    """The tally of one copy of one processor."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.slot, self._file = _free_slot(folder, name)
        os.ftruncate(self._file, _SIZE_BYTES)
        self._map: Final = mmap.mmap(self._file, _SIZE_BYTES)
        died = _STEP.unpack_from(self._map)
        if died[0]:
            self._count(*died)
        self.seq, self._stored_ns, _ = _TALLY.unpack_from(self._map, _TALLY_AT)
        """The input of the last deaths, 0 for none."""

    @property
    def hopeless(self) -> bool:
        """Whether that input is to be skipped."""
        return int(_TALLY.unpack_from(self._map, _TALLY_AT)[2]) >= DEATHS_MAX

    @property
    def error(self) -> str:
        """What the last death said."""
        *said, length = _SAID.unpack_from(self._map, _SAID_AT)
        if said != [self.seq, self._stored_ns]:
            return "the process died in this step"
        return self._map[_ERROR_AT : _ERROR_AT + length].decode(errors="replace")

    def of(self, record: Record) -> bool:
        """Whether this is the input of the last deaths."""
        return (record.seq, record.stored_ns) == (self.seq, self._stored_ns)

    def enter(self, record: Record) -> None:
        """A step begins."""
        _STEP.pack_into(self._map, 0, record.seq, record.stored_ns)

    def leave(self) -> None:
        """The step ended well."""
        _STEP.pack_into(self._map, 0, 0, 0)

    def crashed(self, error: str) -> None:
        """The step raised: remember what; the process is going to end."""
        said = error.encode(errors="replace")[:ERROR_BYTES_MAX]
        self._map[_ERROR_AT : _ERROR_AT + len(said)] = said
        _SAID.pack_into(self._map, _SAID_AT, *_STEP.unpack_from(self._map), len(said))

    def forget(self) -> None:
        """The input that killed before went through."""
        self.seq = self._stored_ns = 0
        _TALLY.pack_into(self._map, _TALLY_AT, 0, 0, 0)

    def close(self) -> None:
        """Give the file back."""
        self._map.close()
        os.close(self._file)

    def _count(self, died_seq: int, stored_ns: int) -> None:
        *last, count = _TALLY.unpack_from(self._map, _TALLY_AT)
        count = count + 1 if last == [died_seq, stored_ns] else 1
        _TALLY.pack_into(self._map, _TALLY_AT, died_seq, stored_ns, count)
        self.leave()


def _free_slot(folder: Path, name: str) -> tuple[int, int]:
    for slot in range(SLOTS_MAX):
        path = folder / f"{token_of(name)}.{slot}"
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            continue
        return slot, file
    raise NoSlotError(f"{SLOTS_MAX} copies of {name} run already, state in {folder}")
