"""What could not be delivered yet, in a file, in order, up to a limit.

A frame is two lengths, the subject and the payload. A frame that was cut off by a crash ends the
spool. What was delivered and not yet removed is delivered again: readers drop repetitions.
"""

import errno
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from nemesis.schemas.errors import NemesisError
from nemesis.streams.batch import Message

_LENGTHS: Final = struct.Struct("<II")
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class SpoolError(NemesisError):
    """The spool cannot be written."""


class Spool:
    """A queue in a file. Messages that were in it before are still there."""

    def __init__(self, path: Path, limit_bytes: int) -> None:
        """Raises SpoolError where the file cannot be opened."""
        self.limit_bytes: Final = limit_bytes
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise SpoolError(f"cannot open the spool {path}: {error.strerror}") from error
        self._path: Final = path
        self._file: Final = os.fdopen(descriptor, "r+b", buffering=0)
        self._read_at = 0
        self._end = self._whole_bytes()
        self.count = sum(1 for _ in self._frames(0))
        """Messages that wait."""

    def __len__(self) -> int:
        return self.count

    def append(self, message: Message) -> bool:
        """Keep a message behind the others; False where neither it nor the disk has room for it.

        Raises:
            SpoolError: the disk is broken.
        """
        subject = message.subject.encode()
        frame = _LENGTHS.pack(len(subject), len(message.payload)) + subject + message.payload
        if self._end + len(frame) > self.limit_bytes:
            return False
        try:
            if os.pwrite(self._file.fileno(), frame, self._end) < len(frame):
                return False  # what was written of it is overwritten by the next
        except OSError as error:
            if error.errno in _NO_ROOM:
                return False
            raise SpoolError(f"cannot write the spool {self._path}: {error.strerror}") from error
        self._end += len(frame)
        self.count += 1
        return True

    def head(self, count: int) -> list[Message]:
        """The first messages, at most `count`; they stay until `drop`."""
        messages: list[Message] = []
        for _, message in self._frames(self._read_at):
            messages.append(message)
            if len(messages) == count:
                break
        return messages

    def drop(self, count: int) -> None:
        """Remove the first `count` messages."""
        for end, _ in self._frames(self._read_at):
            if count == 0:
                break
            self._read_at = end
            count -= 1
            self.count -= 1
        if self.count == 0:
            self._file.truncate(0)
            self._read_at = self._end = 0

    def put_first(self, messages: Sequence[Message]) -> None:
        """Keep messages before all others."""
        rest = self.head(self.count)
        self.drop(self.count)
        for message in (*messages, *rest):
            self.append(message)

    def close(self) -> None:
        """Leave the file to the next life of this producer."""
        self._file.close()

    def _whole_bytes(self) -> int:
        self._end = self._file.seek(0, os.SEEK_END)
        end = max((end for end, _ in self._frames(0)), default=0)
        self._file.truncate(end)
        return end

    def _frames(self, at: int) -> Iterator[tuple[int, Message]]:
        """(end of the frame, message) from a place in the file on."""
        descriptor = self._file.fileno()
        while at + _LENGTHS.size <= self._end:
            header = os.pread(descriptor, _LENGTHS.size, at)
            subject_bytes, payload_bytes = _LENGTHS.unpack(header)
            body_at = at + _LENGTHS.size
            end = body_at + subject_bytes + payload_bytes
            if end > self._end:
                return
            body = os.pread(descriptor, end - body_at, body_at)
            at = end
            yield (
                end,
                Message(
                    subject=body[:subject_bytes].decode(errors="replace"),
                    payload=body[subject_bytes:],
                ),
            )
