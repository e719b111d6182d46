"""What ranks wrote of their steps, and what a fault cost by it. Reads files, decides nothing."""

from pathlib import Path
from typing import Final

import msgspec

RANKS: Final = 4


class Started(msgspec.Struct):
    """A process of a rank began to train."""

    pid: int
    life: int


class Done(msgspec.Struct):
    """A rank has applied a step."""

    step: int
    loss: float
    """Nats a byte, of its own samples."""
    members: tuple[int, ...]
    life: int
    at_ns: int


class Cost(msgspec.Struct, kw_only=True, frozen=True):
    """What a fault cost a run."""

    pause_ms: float
    """From the fault until every rank that is left has applied a step that nobody had before."""
    steps_redone: int
    ranks_before: int
    ranks_after: int
    processes_restarted: int
    loss_before: float
    loss_after: float
    """Mean over ranks, at the last step."""


class Steps:
    """The files of a run's ranks, read as they grow."""

    def __init__(self, folder: Path) -> None:
        self.started: Final[dict[int, list[Started]]] = {rank: [] for rank in range(RANKS)}
        self.done: Final[dict[int, list[Done]]] = {rank: [] for rank in range(RANKS)}
        self._folder: Final = folder
        self._read: Final = dict.fromkeys(range(RANKS), 0)

    def read(self) -> bool:
        """Take what is new; whether there was anything."""
        anything = False
        for rank in range(RANKS):
            path = self._folder / f"rank_{rank}.jsonl"
            if not path.exists():
                continue
            with path.open("rb") as file:
                file.seek(self._read[rank])
                whole, ended, _ = file.read().rpartition(b"\n")
            self._read[rank] += len(whole) + len(ended)
            for line in whole.splitlines():
                anything = True
                if b'"pid"' in line:
                    self.started[rank].append(msgspec.json.decode(line, type=Started))
                else:
                    self.done[rank].append(msgspec.json.decode(line, type=Done))
        return anything

    @property
    def last(self) -> int:
        """The newest step of all."""
        return max((each[-1].step for each in self.done.values() if each), default=0)

    def losses(self) -> list[float]:
        """Mean loss of each step so far, by the ranks' newest word on it."""
        found: dict[int, dict[int, float]] = {}
        for rank, lines in self.done.items():
            for line in lines:
                found.setdefault(line.step, {})[rank] = line.loss
        return [sum(each.values()) / len(each) for _, each in sorted(found.items())]

    def cost(self, victim: int, fault_ns: int) -> Cost | None:
        """What the fault of a rank has cost; None as long as it is not over."""
        before = max(
            (e.step for d in self.done.values() for e in d if e.at_ns < fault_ns), default=0
        )
        again: dict[int, Done] = {}
        for rank, lines in self.done.items():
            for line in lines:
                anew = line.life > 0 or victim not in line.members
                if line.at_ns > fault_ns and anew and line.step > before:
                    again.setdefault(rank, line)
        if not again:
            return None
        members = next(iter(again.values())).members
        if set(again) != set(members):
            return None
        losses = self.losses()
        first = min(members)
        redone = [e for e in self.done[first] if e.life > 0 and e.step <= before]
        return Cost(
            pause_ms=(max(each.at_ns for each in again.values()) - fault_ns) / 1e6,
            steps_redone=len(redone),
            ranks_before=RANKS,
            ranks_after=len(members),
            processes_restarted=sum(max(0, len(each) - 1) for each in self.started.values()),
            loss_before=losses[before - 1],
            loss_after=losses[-1],
        )
