"""The kernel's log of this node as facts, each line once over all lives of the producer.

It is read from /dev/kmsg, and where that is shut as journald has it. How far it was read is kept in
a file, with the boot that it is true of, the facts of the last look and what was only counted:
whoever takes the facts calls `keep` before he hands them on, and the next life hands those last
ones on once more, under the numbers that they had, so that readers drop what they know.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from nemesis.producers.kernel import WINDOW_NS, KernelLines
from nemesis.producers.node.coverage import Seen
from nemesis.producers.node.journal import SOURCE as JOURNAL
from nemesis.producers.node.journal import Journal
from nemesis.producers.node.kmsg import Kmsg
from nemesis.producers.node.probe import NotReadError
from nemesis.producers.origin import Origin
from nemesis.schemas.errors import MalformedFactError
from nemesis.schemas.facts import decode_observation, encode_observation
from nemesis.schemas.observed import KernelLineLogged, Observation
from nemesis.streams.replacing import replace_file

SOURCE: Final = "kmsg"
KIND: Final = "kernel"
MACHINE: Final = Path("/dev/kmsg")


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """How far a boot's log was read."""

    boot_id: str
    next_seq: int = -1
    cursor: str = ""
    """journald's name for the last line that was taken, "" where it is not read from there."""
    untold_count: int = 0
    """Lines read that no fact had told of."""
    last: tuple[bytes, ...] = ()
    """The facts of the last look, which may not have been handed on."""


class KernelTail:
    """Reads on where the last life stopped."""

    def __init__(
        self,
        origin: Origin,
        path: Path,
        kept: Path | None,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        journal: Path | None = None,
    ) -> None:
        """`kept`: the file that remembers; None: nothing is remembered. `journal`: folder of a
        journal that is read where `path` cannot be, if not the machine's own."""
        self._origin: Final = origin
        self._kept: Final = kept
        self._monotonic_ns: Final = monotonic_ns
        self._flushed_ns = 0
        self._log: Kmsg | Journal | None = None
        self._read = Seen(f"node/{origin.node}", SOURCE, "read")
        self._shut = self._read
        """Why /dev/kmsg is not read, where it is not."""
        position = self._position()
        self._lines: Final = KernelLines(origin, untold_count=position.untold_count)
        self.last: Final = _decoded(position.last)
        """What the life before may not have handed on, as it was."""
        try:
            self._log = Kmsg(path, next_seq=position.next_seq, began_ns=monotonic_ns())
        except NotReadError as error:
            self._shut = self._read._replace(state=error.state, says=error.message)
            if path == MACHINE or journal is not None:
                self._open_journal(position.cursor, journal)
        self._seen = self._read if self._log else self._shut

    @property
    def seen(self) -> Seen:
        """How the log can be read."""
        return self._seen

    @property
    def missed_count(self) -> int:
        """Records that nobody read and nobody can any more."""
        return self._log.missed_count if self._log else 0

    def read(self, now_ns: int) -> list[KernelLineLogged]:
        """The facts of what is new; called once a second or oftener, it tells a flood's end."""
        facts: list[KernelLineLogged] = []
        if self._log is None:
            return facts
        booted_ns = now_ns - self._monotonic_ns()
        try:
            for record in self._log.read(self._monotonic_ns()):
                at_ns = max(0, booted_ns + record.since_boot_ns)
                facts += self._lines.take(record.text, at_ns, priority=record.priority)
            self._seen = self._read
        except NotReadError as error:
            self._seen = self._shut._replace(says=f"{self._shut.says}; {error.message}")
        except OSError as error:
            says = f"the log cannot be read any more: {error.strerror}"
            self._seen = self._seen._replace(state="broken", says=says)
            self._log.close()
            self._log = None
        if now_ns - self._flushed_ns >= WINDOW_NS or now_ns < self._flushed_ns:
            self._flushed_ns = now_ns
            facts += self._lines.flush(now_ns)
        return facts

    def close(self) -> None:
        """Read no more."""
        if self._log is not None:
            self._log.close()

    def keep(self, facts: Sequence[KernelLineLogged] = ()) -> None:
        """The next life goes on behind what was read, and hands on these facts once more."""
        log = self._log
        if self._kept is None or log is None or (log.next_seq < 0 and not log.cursor):
            return
        position = Position(
            boot_id=self._origin.boot_id,
            next_seq=log.next_seq,
            cursor=log.cursor,
            untold_count=self._lines.untold_count,
            last=tuple(encode_observation(fact) for fact in facts),
        )
        try:
            replace_file(self._kept, msgspec.json.encode(position))
        except OSError:
            return  # a full disk: after a restart these lines come twice

    def _open_journal(self, cursor: str, folder: Path | None) -> None:
        try:
            self._log = Journal(cursor=cursor, began_ns=self._monotonic_ns(), folder=folder)
        except NotReadError as error:
            self._shut = self._shut._replace(says=f"{self._shut.says}; {error.message}")
            return
        self._read = self._read._replace(source=JOURNAL)

    def _position(self) -> Position:
        try:
            raw = self._kept.read_bytes() if self._kept else b""
            position = msgspec.json.decode(raw, type=Position)
        except (OSError, msgspec.DecodeError):
            return Position(boot_id="")
        return position if position.boot_id == self._origin.boot_id else Position(boot_id="")


def _decoded(kept: Sequence[bytes]) -> list[Observation]:
    found: list[Observation] = []
    for raw in kept:
        with suppress(MalformedFactError):  # somebody wrote into the file
            found.append(decode_observation(KIND, raw))
    return found
