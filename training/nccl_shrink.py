"""From the communicators of one epoch to those of the next, by NCCL's own shrink.

Every survivor goes through the same steps, and after each of the two that may fail all say how it
went; where one failed, none goes on, and the groups are made anew instead (`RebuildError`):

1. The version can (nccl_versions.py), and every survivor's GPU answers.
2. What is under way is stopped: `revoke` where there is one; else shrinking itself stops it.
3. Each group with a lost member is shrunk, in one order, by a thread with a deadline: where a GPU
   is gone the call does not return.
4. Its parent is aborted, never destroyed.

Groups without a lost member are not shrunk: where something may be under way in them they are
aborted and made anew, at a boundary they stay. The excluded ranks are fenced before a plan comes.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol, Self, TypeVar

from nemesis.training.nccl_versions import Version, way_of

DEADLINE_S: Final = 5.0
"""Of a shrink or an abort. A guess: no GPU has been measured; a group made anew takes seconds."""

T = TypeVar("T")
Name = TypeVar("Name", bound=str)
Made = TypeVar("Made", bound="Communicator")
Made_co = TypeVar("Made_co", bound="Communicator", covariant=True)


class RebuildError(Exception):
    """NCCL does not change its members here; says why."""


class Communicator(Protocol):
    """One NCCL communicator of this rank."""

    def revoke(self, deadline_s: float) -> None:
        """Stop what is under way."""
        ...

    def shrink(self, excluded: Sequence[int]) -> Self:
        """Stop what is under way, and make one without some ranks of it."""
        ...

    def abort(self) -> None:
        """Free it."""
        ...


class Part(Protocol[Made_co]):
    """One group of the old epoch."""

    @property
    def members(self) -> tuple[int, ...]:
        """Named by their rank at submission."""
        ...

    @property
    def communicator(self) -> Made_co:
        """Its communicator."""
        ...


def shrunk(
    parts: Mapping[Name, Part[Made]],
    lost: frozenset[int],
    *,
    version: Version,
    symbols: frozenset[str],
    is_well: Callable[[], bool],
    all_say: Callable[[str, bool], bool],
    deadline_s: float = DEADLINE_S,
) -> dict[Name, Made | None]:
    """The groups' communicators without the lost; None for a group that is to be made anew.

    `is_well`: whether this rank's GPU answers; `all_say`: tells the other survivors of a step and
    hears whether all said yes.

    Raises:
        RebuildError: all groups are to be made anew; the old ones are aborted.
    """
    way = way_of(version, "shrink", symbols)
    can = way.by == "nccl" and _within(deadline_s, is_well) is True
    if not all_say("can shrink", can):
        _abort_all(parts, deadline_s)
        raise RebuildError(way.why or "a GPU does not answer")
    if "ncclCommRevoke" in symbols:
        for name in sorted(parts):
            _within(deadline_s, partial(parts[name].communicator.revoke, deadline_s))
    made: dict[Name, Made | None] = {}
    for name in sorted(parts):
        excluded = [at for at, rank in enumerate(parts[name].members) if rank in lost]
        if not excluded:
            made[name] = None
            continue
        made[name] = _within(deadline_s, partial(parts[name].communicator.shrink, excluded))
        if made[name] is None:
            break
    done = all(made.get(name) for name in parts if lost.intersection(parts[name].members))
    _abort_all(parts, deadline_s)
    is_over = False
    try:
        is_over = all_say("have shrunk", done)
    finally:
        for child in made.values() if not is_over else ():
            if child is not None:
                _within(deadline_s, child.abort)
    if not is_over:
        raise RebuildError("a shrink failed, or has not ended in time")
    return made


def _abort_all(parts: Mapping[Name, Part[Made]], deadline_s: float) -> None:
    for name in sorted(parts):
        _within(deadline_s, parts[name].communicator.abort)


def _within(deadline_s: float, act: Callable[[], T]) -> T | None:
    """What it returns; None if it failed, or has not ended in time: its thread is left behind."""
    ended: list[T] = []

    def run() -> None:
        try:
            ended.append(act())
        except Exception:
            return

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(deadline_s)
    return ended[0] if ended else None
