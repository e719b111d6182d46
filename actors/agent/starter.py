"""Starts the processes of a node's ranks, each with what it has to know in its environment."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from nemesis.actors.agent.launch import Launch, environment_of
from nemesis.actors.agent.ranks import Rank, started
from nemesis.actors.agent.roster import Life, Roster
from nemesis.schemas.plans import Plan, StateSource
from nemesis.training.wire import Told


class Starter:
    """Of one agent."""

    def __init__(
        self,
        launch: Launch,
        folder: Path,
        roster: Roster,
        ranks: dict[int, Rank],
        on_end: Callable[[Rank], None],
    ) -> None:
        """`folder`: of the agent; `ranks`: their latest lives; `on_end`: hears of ends."""
        self._launch: Final = launch
        self._folder: Final = folder
        self._roster: Final = roster
        self._ranks: Final = ranks
        self._on_end: Final = on_end

    def tap_path(self, number: int) -> Path:
        """Where a rank serves its flight recorder."""
        return self._folder / f"rank_{number}.tap"

    def start(
        self,
        number: int,
        epoch: int,
        told: Told | None,
        *,
        store: str,
        state_from: StateSource = "memory",
        plan: Plan | None = None,
    ) -> None:
        """Start a rank's next process; `store`: where torch's own groups meet.

        `told`: of the membership that it is started for, `plan`: that asks for it; without the
        first it waits beside the job.

        Raises:
            OSError: it cannot be started.
        """
        environment = {
            **environment_of(self._launch, number, store),
            "NEMESIS_AGENT": str(self._folder / "agent.sock"),
            "NEMESIS_RANK": str(number),
            "NEMESIS_JOB": self._launch.job,
            "NEMESIS_HOST": self._launch.host,
            "NEMESIS_STATE_FROM": state_from,
            "NEMESIS_TAP": str(self.tap_path(number)),
            "TORCH_FR_BUFFER_SIZE": "2000",
            **({} if plan is None else _reasons(plan)),
        }
        self.tap_path(number).unlink(missing_ok=True)
        log = (self._launch.logs or self._folder) / f"rank_{number}.log"
        child = started(self._launch.command, environment, log)
        rank = Rank(number, child.pid, epoch, self._on_end, child)
        if told is not None:
            rank.tell(told)
        self._ranks[number] = rank
        self._roster.begin(Life(rank=number, pid=child.pid, epoch=epoch, is_beside=told is None))


def _reasons(plan: Plan) -> dict[str, str]:
    """Why a rank is started anew, and from what, as far as the job told of it."""
    told = {"NEMESIS_WHY": plan.why}
    if plan.state_from == "checkpoint" and plan.step >= 0:
        told |= {"NEMESIS_CHECKPOINT": plan.checkpoint, "NEMESIS_CHECKPOINT_STEP": str(plan.step)}
    return told
