"""The ranks of a node as processes: started in groups of their own, watched to their end, fenced.

A rank is its process and every child of it: all are in one process group, and fencing kills that
group. A rank outlives its agent; the next agent finds it by the socket that it connects to, and is
told of its end by the kernel all the same (pidfd).
"""

import asyncio
import os
import select
import signal
import subprocess
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from nemesis.schemas.plans import RankStage, RankState
from nemesis.training.membership import NO_STATE, Stage, State
from nemesis.training.wire import End, Standing, Told, line_of

_STAGES: Final[Mapping[Stage, RankStage]] = {
    "training": "running",
    "held": "held",
    "forming": "starting",
    "left": "left",
}
STEADY_STEPS: Final = 2
"""The first ones are longer: libraries are loaded, memory is taken."""
STALL_TIMES: Final = 3
STALL_NS_MIN: Final = 500_000_000
END_S: Final = 5.0
"""A process that is killed ends in milliseconds, unless it waits in the kernel."""
UNKNOWN_CODE: Final = 255
"""Of a process that was not our child: only that it ended is known."""


class Rank:
    """One rank of this node, one life of it."""

    def __init__(
        self,
        number: int,
        pid: int,
        epoch: int,
        on_end: Callable[["Rank"], None],
        child: subprocess.Popen[bytes] | None = None,
    ) -> None:
        """`epoch`: of the membership that it was started for; `child`: where we started it.

        Raises:
            ProcessLookupError: there is no such process.
        """
        self.number: Final = number
        self.pid: Final = pid
        self.epoch = epoch
        self.state: State = NO_STATE
        self.stage: RankStage = "starting"
        self.why = ""
        self.returncode: int | None = None
        self.said_ns = 0
        """When it was last heard, by a clock that nobody sets."""
        self.is_stopped = False
        """Whether its process was seen to be stopped by a signal, for a while."""
        self.saved: tuple[int, str] = (-1, "")
        """(step, path) of the latest checkpoint that it told of."""
        self._sums: dict[int, int] = {}
        """Step to checksum of the parameters, since `checked` was last asked for."""
        self._checked: tuple[int, int] = (0, 0)
        self._longest_ns = 0
        """Between two steps, so far."""
        self._on_end: Final = on_end
        self._child: Final = child
        self._writer: asyncio.StreamWriter | None = None
        self._told: list[Told | End] = []
        self._waits = False
        self._descriptor: Final = os.pidfd_open(pid)
        asyncio.get_running_loop().add_reader(self._descriptor, self._ended)

    @property
    def is_alive(self) -> bool:
        """Whether its process has not ended yet."""
        return self.returncode is None

    @property
    def is_ready(self) -> bool:
        """Whether it has loaded, and waits for a membership of which it is told."""
        return self._waits and self.is_alive and not self.is_told

    @property
    def is_told(self) -> bool:
        """Whether it is, or was, to be a member of anything."""
        return bool(self._told)

    @property
    def is_standing(self) -> bool:
        """Whether it should be making steps."""
        return self.is_alive and self.stage == "running"

    def is_stalled(self, now_ns: int) -> bool:
        """Whether it has been silent for longer than any step took."""
        if not self._longest_ns:
            return False
        return now_ns - self.said_ns > max(STALL_NS_MIN, STALL_TIMES * self._longest_ns)

    def checked(self) -> tuple[int, int]:
        """(step, checksum of its parameters after it) to be told now; checksum 0: it has none.

        Of those since it was last asked the step that most powers of two divide: nodes are read at
        different moments, and so tell of one same step every few times.
        """
        if self._sums:
            step = max(self._sums, key=lambda each: (each & -each, each))
            self._checked = step, self._sums[step]
            self._sums = {}
        return self._checked

    def heard(self, standing: Standing, writer: asyncio.StreamWriter, at_ns: int) -> None:
        """It says how it stands; one that connects is told what it may have missed."""
        if not self.is_alive:
            return
        if standing.state.steps_count == self.state.steps_count + 1 > STEADY_STEPS:
            self._longest_ns = max(self._longest_ns, at_ns - self.said_ns)
        self.said_ns = at_ns
        self.saved = max(self.saved, (standing.saved_step, standing.saved_path))
        if standing.checksum:
            self._sums[standing.checked_step] = standing.checksum
        self.stage, self.why = _STAGES[standing.stage], standing.why
        self._waits = standing.stage == "held"
        self.epoch, self.state = max(self.epoch, standing.epoch), standing.state
        if writer is not self._writer:
            self._writer = writer
            for each in self._told:
                writer.write(line_of(each))

    def tell(self, message: Told | End) -> None:
        """Say this now, and again to whoever connects later as this rank."""
        self._told = [*self._told[-3:], message]
        if self._writer is not None and self.is_alive:
            self._writer.write(line_of(message))

    def fence(self) -> None:
        """Let nothing of it run on, also if it is stopped."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        with suppress(ProcessLookupError, PermissionError):
            os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> None:
        """Until a process that was fenced has ended."""
        if self._child is not None:
            with suppress(subprocess.TimeoutExpired):
                self._child.wait(END_S)
        elif self.is_alive:
            select.select([self._descriptor], [], [], END_S)

    def _ended(self) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)
        self.returncode = self._child.wait() if self._child is not None else _code_of(self.pid)
        if self.state == NO_STATE:  # in no group before: it was lost on the way into this one
            epochs = (each.order.epoch for each in self._told if isinstance(each, Told))
            self.epoch = max([self.epoch, *epochs])
        if self.stage not in ("left", "fenced"):
            waited_for = self.said_ns > 0 and self.stage in ("starting", "held")
            self.stage = "left" if self.returncode == 0 and not waited_for else "failed"
        self._on_end(self)


def _code_of(pid: int) -> int:
    """How somebody else's child ended, as long as its parent has not asked (proc(5), exit_code)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return os.waitstatus_to_exitcode(int(fields[-1]))
    except (OSError, ValueError, IndexError):
        return UNKNOWN_CODE


def end_all(ranks: Iterable[Rank]) -> None:
    """Let nothing of these run on, and wait until nothing does."""
    ranks = tuple(ranks)
    for rank in ranks:
        rank.fence()
    for rank in ranks:
        rank.wait()


def let_leavers_end(ranks: Iterable[Rank]) -> None:
    """Once the next group stands nobody needs the connections of who left."""
    for rank in ranks:
        if rank.stage == "left" and rank.is_alive:
            rank.tell(End())


def states_of(ranks: Iterable[Rank], attached: Collection[int]) -> tuple[RankState, ...]:
    """The ranks of a node as its agent tells of them, by number; `attached`: who called the hook,
    in whatever life."""
    return tuple(
        RankState(
            rank=rank.number,
            stage=rank.stage,
            epoch=rank.epoch,
            step=max(0, rank.state.steps_count),
            pid=rank.pid,
            attached=rank.number in attached,
            stopped=rank.is_stopped and rank.is_alive,
        )
        for rank in sorted(ranks, key=lambda each: each.number)
    )


def started(
    command: Sequence[str], environment: Mapping[str, str], log: Path
) -> subprocess.Popen[bytes]:
    """A rank's process, in a group of its own; what it prints is appended to a file.

    Raises:
        OSError: it cannot be started.
    """
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
