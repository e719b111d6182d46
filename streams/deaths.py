"""Inputs on which a processor died, remembered across deaths of its process.

Why: a step may take the whole process with it (out of memory, a crash in native code), and then
nobody is left to count. How: a few words in a mapped file say which input is being stepped; pages
of a mapped file outlive the process that wrote them. Who opens the file next finds the input in
which the last one died. Each copy holds a file of its own, the first free one, while it lives.
"""

import fcntl
import mmap
import os
import struct
from pathlib import Path
from typing import Final

from nemesis.schemas.errors import NemesisError
from nemesis.schemas.tokens import token_of

DEATHS_MAX: Final = 3
SLOTS_MAX: Final = 64
ERROR_BYTES_MAX: Final = 400
_SEQ: Final = struct.Struct("<Q")
_TALLY: Final = struct.Struct("<QI")
_TALLY_AT: Final = 8
_SAID: Final = struct.Struct("<QI")
_SAID_AT: Final = 20
_ERROR_AT: Final = 32
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
        died_seq = _SEQ.unpack_from(self._map)[0]
        if died_seq:
            self._count(died_seq)
        self.seq = int(_TALLY.unpack_from(self._map, _TALLY_AT)[0])
        """The input of the last deaths, 0 for none."""

    @property
    def hopeless(self) -> bool:
        """Whether that input is to be skipped."""
        return int(_TALLY.unpack_from(self._map, _TALLY_AT)[1]) >= DEATHS_MAX

    @property
    def error(self) -> str:
        """What the last death said."""
        said_seq, length = _SAID.unpack_from(self._map, _SAID_AT)
        if said_seq != self.seq:
            return "the process died in this step"
        return self._map[_ERROR_AT : _ERROR_AT + length].decode(errors="replace")

    def enter(self, seq: int) -> None:
        """A step begins."""
        _SEQ.pack_into(self._map, 0, seq)

    def leave(self) -> None:
        """The step ended well."""
        _SEQ.pack_into(self._map, 0, 0)

    def crashed(self, error: str) -> None:
        """The step raised: remember what; the process is going to end."""
        said = error.encode(errors="replace")[:ERROR_BYTES_MAX]
        self._map[_ERROR_AT : _ERROR_AT + len(said)] = said
        _SAID.pack_into(self._map, _SAID_AT, _SEQ.unpack_from(self._map)[0], len(said))

    def forget(self) -> None:
        """The input that killed before went through."""
        self.seq = 0
        _TALLY.pack_into(self._map, _TALLY_AT, 0, 0)

    def close(self) -> None:
        """Give the file back."""
        self._map.close()
        os.close(self._file)

    def _count(self, died_seq: int) -> None:
        seq, count = _TALLY.unpack_from(self._map, _TALLY_AT)
        _TALLY.pack_into(self._map, _TALLY_AT, died_seq, count + 1 if seq == died_seq else 1)
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
