"""The advisor at work: reads who was rejected or waits, asks the model, writes what it said.

It holds nothing that the log does not: killed anywhere, its next life reads again and advises on
whom nobody has. The scheduler waits for it as long as its settings say and no longer; a job that
got its place meanwhile is left alone. Any number of copies may run, the first answer counts.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from nemesis.actors.advisor.advice import advise
from nemesis.actors.advisor.asking import Model
from nemesis.actors.advisor.desk import Desk
from nemesis.actors.advisor.giving import fact_of, give
from nemesis.actors.advisor.settings import Settings
from nemesis.actors.advisor.worklist import Case, Worklist
from nemesis.processors.fold import Input
from nemesis.schemas.errors import NemesisError
from nemesis.schemas.facts import EVENTS_SUBJECT
from nemesis.streams.errors import LogUnavailableError
from nemesis.streams.log import Log
from nemesis.views.scheduler import moment_at_end

LOOK_S: Final = 0.2
RETRY_S: Final = 30.0


class Advisor:
    """One copy; `run` goes on until it is cancelled."""

    def __init__(
        self, log: Log, model: Model, settings: Settings, alarm: Callable[[str], None]
    ) -> None:
        """`alarm` gets one sentence where something is wrong."""
        self.worklist: Final = Worklist()
        self._log: Final = log
        self._model: Final = model
        self._settings: Final = settings
        self._alarm: Final = alarm
        self._caught_up = False
        self._given_seq = 0
        """Of our last advice: until it is read back, its job still looks unadvised."""
        self._said = ""

    async def run(self) -> None:
        """Read, ask, write."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._read())
            while True:
                wait_s = LOOK_S
                if self._caught_up and self.worklist.seq >= self._given_seq:
                    wait_s = await self._next()
                await asyncio.sleep(wait_s)

    async def _read(self) -> None:
        async with self._log.reader(1, subject=EVENTS_SUBJECT) as reader:
            await reader.start()
            self._caught_up = reader.pending_count == 0
            async for records in reader:
                for record in records:
                    self.worklist.take(Input(record))
                self._caught_up = self._caught_up or reader.pending_count == 0

    async def _next(self) -> float:
        """Advise on whoever is due first; seconds until the next look."""
        due = self.worklist.due()
        if not due:
            return LOOK_S
        advised_count, _ = self.worklist.day()
        if advised_count >= self._settings.budget.day_advices_max:
            self._tell("day_advices_max is reached: the rules decide alone")
            return RETRY_S
        try:
            await self._advise(due[0])
        except LogUnavailableError:
            return LOOK_S
        except NemesisError as error:
            self._tell(error.message)
            return RETRY_S
        self._said = ""
        return LOOK_S

    async def _advise(self, case: Case) -> None:
        moment = await moment_at_end(self._log)
        desk = Desk(moment, case.job, case.why)
        if desk.stage == "running":
            case.wants = False
            return
        _, day_cost = self.worklist.day()
        advice = await advise(self._model, self._settings, desk, day_cost_microusd=day_cost)
        data = fact_of(advice, case, model=self._settings.model, at_ns=moment.now_ns)
        while True:
            try:
                self._given_seq = await give(self._log, data, case)
            except LogUnavailableError:
                await asyncio.sleep(LOOK_S)
                continue
            break
        case.wants = False

    def _tell(self, words: str) -> None:
        """Once, until something goes well again."""
        if words != self._said:
            self._said = words
            self._alarm(words)
