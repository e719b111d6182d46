"""Communicators that behave as NCCL documents it, and fail on whatever it does not allow.

A world of ranks in threads of one process. Sources: nccl.h and docs/userguide/source/api/comms.rst
(github.com/NVIDIA/nccl), and the reports that training/nccl_versions.py names. Made to test the
order of calls where no GPU is; what it says of time is nothing.
"""

import threading
from collections.abc import Iterable, Sequence
from typing import Final

from nemesis.training.nccl_versions import FIRST, Version, hazards_of


class WrongCallError(AssertionError):
    """NCCL would crash, hang or refuse here."""


class Ranks:
    """What the ranks of a test share."""

    def __init__(self, version: Version, *, fenced: Iterable[int]) -> None:
        self.version: Final = version
        self.fenced: Final = frozenset(fenced)
        """Of which nothing runs any more."""
        self.dead_gpus: set[int] = set()
        """Where a call that waits for the GPU never returns."""
        self.wrong: list[str] = []
        self.calls: list[tuple[int, str, str]] = []
        """(rank, group, call) in the order in which they began."""
        self.asked: Final[dict[str, dict[int, tuple[int, ...]]]] = {}
        """Who excludes whom, by group."""
        self.over: Final = threading.Event()
        self.changed: Final = threading.Condition()
        self.made: list[StandIn] = []

    def refuse(self, what: str) -> None:
        """Remember and raise: the caller may swallow it."""
        with self.changed:
            self.wrong.append(what)
        raise WrongCallError(what)


class StandIn:
    """One rank's communicator of one group."""

    def __init__(self, ranks: Ranks, name: str, members: tuple[int, ...], rank: int) -> None:
        self.name: Final = name
        self.members: Final = members
        self.rank: Final = rank
        self.is_aborted = False
        self._ranks: Final = ranks
        self._asked: Final[dict[int, tuple[int, ...]]] = ranks.asked.setdefault(name, {})
        with ranks.changed:
            ranks.made.append(self)

    @property
    def communicator(self) -> "StandIn":
        """Itself: a group of the old epoch is asked for it."""
        return self

    def revoke(self, deadline_s: float) -> None:
        self._begin("revoke")
        if self._ranks.version < FIRST["revoke"]:
            self._ranks.refuse("ncclCommRevoke: no such call")

    def shrink(self, excluded: Sequence[int]) -> "StandIn":
        self._begin("shrink")
        ranks, lost = self._ranks, {self.members[at] for at in excluded}
        if ranks.version < FIRST["shrink"]:
            ranks.refuse("ncclCommShrink: no such call")
        if any(each.answer == "rebuild" for each in hazards_of(ranks.version, "shrink")):
            ranks.refuse("ncclCommShrink: segmentation fault")
        if not lost or self.rank in lost:
            ranks.refuse("ncclCommShrink: invalid argument")
        if lost - ranks.fenced:
            ranks.refuse("an excluded rank still sends")
        if self.rank in ranks.dead_gpus:
            ranks.over.wait()
        rest = tuple(each for each in self.members if each not in lost)
        with ranks.changed:
            self._asked[self.rank] = tuple(excluded)
            ranks.changed.notify_all()
            came = ranks.changed.wait_for(
                lambda: ranks.over.is_set() or len(self._asked) == len(rest), timeout=30
            )
        if not came or ranks.over.is_set():
            raise TimeoutError  # somebody never came: it would have hung
        if set(self._asked.values()) != {tuple(excluded)}:
            ranks.refuse("ranks exclude different ones")
        return StandIn(ranks, f"{self.name}'", rest, self.rank)

    def abort(self) -> None:
        self._begin("abort")
        self.is_aborted = True

    def _begin(self, call: str) -> None:
        with self._ranks.changed:
            self._ranks.calls.append((self.rank, self.name, call))
        if self.is_aborted:
            self._ranks.refuse(f"{call} after abort")
