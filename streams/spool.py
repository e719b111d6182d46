"""What could not be delivered yet, in a file, in order, up to a limit.

A frame is two lengths, the subject and the payload. A frame that was cut off by a crash ends the
spool. What was delivered and not yet removed is delivered again: readers drop repetitions. Where
there is no room left the oldest telemetry makes some; a kind of fact that is kept for ever, a line
of the kernel or the end of a rank, never gives way.
"""

import errno
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from nemesis.schemas.errors import NemesisError
from nemesis.schemas.registry import TELEMETRY
from nemesis.streams.batch import Message

_LENGTHS: Final = struct.Struct("<II")
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
# at least so much of the limit at once: the file is written anew for it
_ROOM_SHARE: Final = 8
_KEPT: Final = frozenset(token for token, kind in TELEMETRY.items() if kind.kept_for_ever)


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
        self._file = os.fdopen(descriptor, "r+b", buffering=0)
        self._read_at = 0
        self._end = self._whole_bytes()
        self._on_way_count = 0
        """How many of the first were handed out by `head`."""
        self.evicted_count = 0
        """Messages that made room for later ones."""
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
        try:
            if self._end + len(frame) > self.limit_bytes:
                self._make_room(len(frame))
            if self._end + len(frame) > self.limit_bytes:
                return False
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
        self._on_way_count = len(messages)
        return messages

    def drop(self, count: int) -> None:
        """Remove the first `count` messages."""
        self._on_way_count = 0
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

    def _make_room(self, size_bytes: int) -> None:
        """Write the file anew without what was delivered and the oldest of what may give way.

        Raises:
            OSError: the disk takes no second file; this one is as it was.
        """
        wanted = max(size_bytes, self.limit_bytes // _ROOM_SHARE)
        freed, evicted, at, end = self._read_at, 0, self._read_at, 0
        fresh = self._path.with_name(f".{self._path.name}.new")
        try:
            with fresh.open("wb") as file:
                for number, (frame_end, message) in enumerate(self._frames(self._read_at)):
                    size = frame_end - at
                    kept = message.subject.rpartition(".")[2] in _KEPT
                    if freed < wanted and not kept and number >= self._on_way_count:
                        freed += size
                        evicted += 1
                    else:
                        file.write(os.pread(self._file.fileno(), size, at))
                        end += size
                    at = frame_end
        except OSError:
            fresh.unlink(missing_ok=True)  # or half a file would fill the disk that is full
            raise
        fresh.replace(self._path)
        self._file.close()
        self._file = self._path.open("r+b", buffering=0)
        self._read_at, self._end = 0, end
        self.count -= evicted
        self.evicted_count += evicted

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
