"""The kernel's log of this node as facts, each line once over all lives of the producer.

How far it was read is kept in a file, with the boot that it is true of. Whoever takes the facts
calls `keep` once they lie where a crash does not reach them.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from nemesis.producers.kernel import WINDOW_NS, KernelLines
from nemesis.producers.node.coverage import Seen
from nemesis.producers.node.kmsg import Kmsg
from nemesis.producers.node.probe import NotReadError
from nemesis.producers.origin import Origin
from nemesis.schemas.observed import KernelLineLogged
from nemesis.streams.replacing import replace_file

SOURCE: Final = "kmsg"


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """How far a boot's log was read."""

    boot_id: str
    next_seq: int


class KernelTail:
    """Reads on where the last life stopped."""

    def __init__(
        self,
        origin: Origin,
        path: Path,
        kept: Path | None,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """`kept`: the file that remembers; None: nothing is remembered."""
        self._origin: Final = origin
        self._kept: Final = kept
        self._monotonic_ns: Final = monotonic_ns
        self._lines: Final = KernelLines(origin)
        self._flushed_ns = 0
        self._log: Kmsg | None = None
        self._seen = Seen(f"node/{origin.node}", SOURCE, "read")
        try:
            self._log = Kmsg(path, next_seq=self._next_seq(), began_ns=monotonic_ns())
        except NotReadError as error:
            self._seen = self._seen._replace(state=error.state, says=error.message)

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
            for record in self._log.read():
                at_ns = max(0, booted_ns + record.since_boot_ns)
                facts += self._lines.take(record.text, at_ns, priority=record.priority)
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

    def keep(self) -> None:
        """What was read lies safe: the next life goes on behind it."""
        if self._kept is None or self._log is None or self._log.next_seq < 0:
            return
        position = Position(boot_id=self._origin.boot_id, next_seq=self._log.next_seq)
        try:
            replace_file(self._kept, msgspec.json.encode(position))
        except OSError:
            return  # a full disk: after a restart these lines come twice

    def _next_seq(self) -> int:
        try:
            raw = self._kept.read_bytes() if self._kept else b""
            position = msgspec.json.decode(raw, type=Position)
        except (OSError, msgspec.DecodeError):
            return -1
        return position.next_seq if position.boot_id == self._origin.boot_id else -1
