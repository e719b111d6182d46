"""State that is read again instead of kept: what only the last minutes of the log determine.

Why: the failure model holds 12 KB of each GPU that say nothing but what the last half hour of
samples says; in snapshots they would be 200 MB every ten seconds. How: a processor with a
`lookback_ns` leaves its window out of its snapshots. Now and then its Fold keeps a *root*, the
state from which a window may grow; the snapshot carries the youngest root that is older than
the lookback. Who restores begins at the root, reads again what lies between it and the state with
nothing concluded, then takes up the state: the window is the one that was kept, byte for byte.
"""

from collections import deque
from typing import Final, Protocol, runtime_checkable

import msgspec

from nemesis.processors.lives import Lives
from nemesis.processors.processor import Processor

ROOTS_A_LOOKBACK: Final = 8
"""At most an eighth more than the lookback is read again."""


@runtime_checkable
class Windowed(Processor, Protocol):
    """A processor that is read again in part.

    Its `restore` leaves the window as it is. A processor that was configured has an empty one.
    """

    @property
    def lookback_ns(self) -> int:
        """Log time after which an input has left the window, by its present settings; 0: none."""
        ...

    def root(self) -> bytes:
        """Everything that the window grows from; b"" where none can begin at this input."""
        ...

    def reroot(self, root: bytes) -> None:
        """Begin a window, at this root or, with b"", where it stands."""
        ...


class Root(msgspec.Struct, array_like=True, frozen=True):
    """The state of a fold at which a window may begin."""

    seq: int
    log_time_ns: int
    lives: Lives
    processor: bytes


class Roots:
    """Those that a later window may need, the oldest first."""

    def __init__(self) -> None:
        self._kept: Final[deque[Root]] = deque()

    @property
    def first(self) -> Root | None:
        """Where a window of now begins."""
        return self._kept[0] if self._kept else None

    def clear(self) -> None:
        """No window reaches back beyond this input."""
        self._kept.clear()

    def is_due(self, now_ns: int, lookback_ns: int) -> bool:
        """Whether it is time for another one."""
        apart_ns = lookback_ns // ROOTS_A_LOOKBACK
        return not self._kept or now_ns // apart_ns > self._kept[-1].log_time_ns // apart_ns

    def keep(self, root: Root, lookback_ns: int) -> None:
        """One more; those that every window has outgrown go."""
        self._kept.append(root)
        while len(self._kept) > 1 and self._kept[1].log_time_ns <= root.log_time_ns - lookback_ns:
            self._kept.popleft()
