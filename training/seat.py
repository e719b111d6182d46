"""A rank's place in its job: the state machine, what the agent tells, and what the agent is told.

A thread listens to the agent; the training thread looks at a flag. Where the agent is started anew
the rank connects again, and is told its last orders.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from nemesis.training.membership import FIRST_STATE, NO_STATE, Deed, Member, Stage, State
from nemesis.training.wire import End, Line, Standing, Told

AGENT: Final = "NEMESIS_AGENT"
"""Path of the agent's socket."""
RANK: Final = "NEMESIS_RANK"
"""As submitted; a membership may place it elsewhere among its members."""
JOB: Final = "NEMESIS_JOB"
STATE_FROM: Final = "NEMESIS_STATE_FROM"
"""`peer`: this process is started into a running job, and its first state is none."""
END_S: Final = 30.0
AGAIN_S: Final = 0.2


class Seat:
    """One rank, as long as its process lives."""

    def __init__(self, line: Line, on_interruption: Callable[[], None]) -> None:
        """`on_interruption`: called by the thread that listens when a wait is to end."""
        self.rank: Final = int(os.environ[RANK])
        self.job: Final = os.environ.get(JOB, "job")
        self.is_interrupted = False
        """Whether whatever is waited for is given up."""
        self._line = line
        self._on_interruption: Final = on_interruption
        self._changed: Final = threading.Condition()
        self._saying: Final = threading.Lock()
        """Two threads say how the rank stands: what is said later must be what is true later."""
        self._waits = False
        """Whether the loop is at its first step, and waits to be a member."""
        self._member: Member | None = None
        self._first = NO_STATE if os.environ.get(STATE_FROM) == "peer" else FIRST_STATE
        self._stores: Final[dict[int, str]] = {}
        self._may_end: Final = threading.Event()
        self._why = ""
        self.checked: tuple[int, int] = (0, 0)
        """(step, checksum of the parameters after it), the latest."""
        self.saved: tuple[int, str] = (-1, "")
        """(step, path) of the latest checkpoint."""
        threading.Thread(target=self._listen, daemon=True, name="nemesis").start()

    @property
    def member(self) -> Member:
        """Its part in the membership; one that was told nothing yet is a member of nothing."""
        stage: Stage = "held" if self._waits else "forming"
        return self._member or Member(self.rank, (), epoch=-1, stage=stage, state=self._first)

    def awaited(self) -> Member:
        """Its part, once it was told of one; what was interrupted is over."""
        with self._changed:
            if self._member is None:
                self._waits = True
                self.say()
            while self._member is None:
                self._changed.wait()
            self.is_interrupted = False
            return self._member

    def hold(self, member: Member) -> None:
        """Wait until it is told something else than this."""
        self.say()
        with self._changed:
            while self._member == member:
                self._changed.wait()

    def store_of(self, epoch: int) -> str:
        """Where the members of an epoch meet."""
        return self._stores[epoch]

    def concluded(self, epoch: int, waiting: int) -> bool:
        """All gradients of a step are there, with the sum of all numbers: whether it counts."""
        with self._changed:
            self._member, deed = self.member.reduced(epoch, waiting)
        return deed != "none"

    def broken(self, epoch: int, why: str) -> None:
        """The groups of an epoch do not work, or are given up before they stand."""
        with self._changed:
            self._member, _ = self.member.broken(epoch)
            self._why = why

    def source(self, epoch: int, states: Mapping[int, State]) -> int:
        """From whom to take the state; its own rank for nobody."""
        with self._changed:
            return self.member.source(epoch, states)

    def has(self, state: State) -> None:
        """Its state is this one: taken from a peer, or the step that it held prepared."""
        with self._changed:
            self._member = self.member.has(state)

    def resumes(self, steps_count: int) -> None:
        """What it has was loaded from a checkpoint; who joins others takes theirs all the same."""
        with self._changed:
            if self._first == NO_STATE:
                return
            self._first = State(0, steps_count)
            if self._member is not None:
                self._member = msgspec.structs.replace(self._member, state=self._first)

    def formed(self, epoch: int, state: State) -> None:
        """The groups of an epoch stand, and it has this state."""
        with self._changed:
            self._member, _ = self.member.formed(epoch, state)
            self._why = ""

    def finished(self, epoch: int) -> bool:
        """All members of an epoch are at the end; False: a plan came first."""
        with self._changed:
            self._member = self.member.finished(epoch)
            return self._member.stage == "left"

    def leave(self) -> None:
        """End the process, once nobody needs its connections.

        Raises:
            SystemExit: always.
        """
        self.say()
        self._may_end.wait(END_S)
        sys.stderr.write(f"nemesis: rank {self.rank} is no member of {self.job} any more\n")
        raise SystemExit(0)

    def say(self) -> None:
        """Tell the agent how it stands."""
        with self._saying:
            member = self.member
            self._line.say(
                Standing(
                    rank=member.rank,
                    pid=os.getpid(),
                    stage=member.stage,
                    epoch=max(0, member.epoch),
                    state=member.state,
                    why=self._why,
                    checksum=self.checked[1],
                    checked_step=self.checked[0],
                    saved_step=self.saved[0],
                    saved_path=self.saved[1],
                )
            )

    def _listen(self) -> None:
        while True:
            line = self._line
            self.say()
            for heard in line.heard():
                match heard:
                    case Told():
                        self._told(heard)
                    case End():
                        self._may_end.set()
            line.close()
            while True:
                time.sleep(AGAIN_S)
                try:
                    self._line = Line(Path(os.environ[AGENT]))
                    break
                except OSError:
                    continue

    def _told(self, told: Told) -> None:
        deed: Deed
        with self._changed:
            order = told.order
            if order.kind == "membership":
                self._stores[order.epoch] = told.store
            if self._member is None:  # nothing is going on that could be finished first
                order = msgspec.structs.replace(order, at_boundary=False)
            self._member, deed = self.member.heard(order)
            if deed != "none":
                self.is_interrupted = True
            self._changed.notify_all()
        if deed != "none":
            self._on_interruption()
