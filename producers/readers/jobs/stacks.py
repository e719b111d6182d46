"""Stacks of processes: `py-spy dump` and gdb's `thread apply all bt`, one fact a thread."""

import re
from collections.abc import Iterable
from typing import Final

from nemesis.producers.readers.notes import Note, Reader, TextLine, note
from nemesis.producers.readers.unplaced import unplaced
from nemesis.schemas.observed import StackSeen

FRAMES_MAX: Final = 64
_PROCESS: Final = re.compile(r"Process (\d{1,9}): |\[?(?:Attaching to|New) process (\d{1,9})")
_PY_THREAD: Final = re.compile(r'Thread \S+ \((\w[\w+]*)\)(?:: "([^"]*)")?\s*\Z')
_PY_FRAME: Final = re.compile(r"\s+([\w.<>]+ \([^()]*:\d+\))\s*\Z")
_GDB_THREAD: Final = re.compile(r'Thread (\d+) \(.*?(?:LWP (\d{1,9}))?\)?(?: "[^"]*")?\)?:\s*\Z')
_GDB_FRAME: Final = re.compile(r"#\d+\s+(?:0x[0-9a-f]+ in )?([\w:~<>,.@ ]{1,200}?) \(.*\)(.*)\Z")
FUNCTION_CHARS_MAX: Final = 200


class Stacks(Reader):
    """Reads threads one after another."""

    starts = (_PROCESS, _PY_THREAD, _PY_FRAME, _GDB_THREAD, _GDB_FRAME)

    def __init__(self) -> None:
        self._pid = 0
        self._head: TextLine | None = None
        self._thread = self._state = ""
        self._frames: list[str] = []

    def take(self, line: TextLine) -> Iterable[Note]:
        """The thread before, where this line begins another one."""
        text = line.text
        if match := _PROCESS.match(text):
            done = self._done()
            self._pid = int(match[1] or match[2])
            return done
        match, gdb = _PY_THREAD.match(text), _GDB_THREAD.match(text)
        if match or gdb:
            done = self._done()
            self._head = line
            if match:
                self._thread, self._state = match[2] or "", match[1]
            elif gdb:
                self._thread, self._state = gdb[1], ""
                if gdb[1] == "1" and gdb[2]:
                    self._pid = int(gdb[2])  # the first thread has the number of its process
            return done
        if self._head is not None and len(self._frames) < FRAMES_MAX:
            if match := _PY_FRAME.match(text):
                self._frames.append(match[1][:FUNCTION_CHARS_MAX])
            elif match := _GDB_FRAME.match(text):
                self._frames.append(f"{match[1]} ({match[2].strip()})"[:FUNCTION_CHARS_MAX])
        return ()

    def end(self) -> Iterable[Note]:
        """The last thread."""
        return self._done()

    def _done(self) -> list[Note]:
        head, frames = self._head, self._frames
        self._head, self._frames = None, []
        if head is None or not frames:
            return []
        self.known = True
        seen = StackSeen(
            **unplaced(head.host),
            rank=head.rank,
            pid=self._pid,
            thread=self._thread[:64],
            state=self._state[:16],
            frames=tuple(frames),
        )
        return [note(head, seen)]
