"""Advice in a test: a log with a scheduler, and a model that says what it is told to."""

import asyncio
from typing import Any

from msgspec.structs import replace

from nemesis.actors.advisor.advice import Advice, advise, model_of
from nemesis.actors.advisor.desk import Desk
from nemesis.actors.advisor.giving import fact_of
from nemesis.actors.advisor.key import Key
from nemesis.actors.advisor.settings import Settings, settings_of
from nemesis.actors.advisor.worklist import Worklist
from nemesis.processors.fold import Input
from nemesis.processors.scheduler.advice_rules import Moment
from nemesis.processors.scheduler.scheduler import Scheduler
from nemesis.schemas.advised import AdviceGiven, AdviceJudged
from tests.messages_server import MessagesServer, Script, messages_server
from tests.scheduler_cell import Cell

SECRET = "sk-ant-a-secret-of-the-test"
FOLLOWING = b'{"follow_advice":true,"advice_wait_ns":60000000000}'


def settings(url: str, *, budget: dict[str, Any] | None = None, tries: int = 3) -> Settings:
    """The settings of the release against a stand-in, hardly waiting between tries."""
    told = settings_of()
    retries = replace(told.retries, tries_max=tries, first_wait_seconds=0.01, silence_seconds=5.0)
    limits = replace(told.budget, **(budget or {}))
    return replace(told, base_url=url, retries=retries, budget=limits)


def moment_of(cell: Cell) -> Moment:
    """What the cell's scheduler knows now."""
    scheduler = cell.fold.processor
    assert isinstance(scheduler, Scheduler)
    return scheduler.moment(cell.now_ns)


def worklist_of(cell: Cell) -> Worklist:
    """What the advisor makes of the cell's events."""
    found = Worklist()
    for record in cell.records:
        if record.subject.startswith("nemesis.events."):
            found.take(Input(record))
    return found


def advice_of(
    cell: Cell,
    *turns: Script,
    about: str = "llama",
    budget: dict[str, Any] | None = None,
    tries: int = 3,
    day_cost_microusd: int = 0,
) -> tuple[Advice, MessagesServer]:
    """What the advisor makes of a model that answers in these turns."""
    case = worklist_of(cell).cases[about]
    with messages_server(*turns) as server:
        told = settings(server.url, budget=budget, tries=tries)

        async def run() -> Advice:
            async with model_of(told, Key(SECRET)) as model:
                desk = Desk(moment_of(cell), case.job, case.why)
                return await advise(model, told, desk, day_cost_microusd=day_cost_microusd)

        return asyncio.run(run()), server


def advised(cell: Cell, *turns: Script, about: str = "llama") -> tuple[AdviceGiven, MessagesServer]:
    """The same, written into the log as the advisor would, for the scheduler to read."""
    advice, server = advice_of(cell, *turns, about=about)
    data = fact_of(advice, worklist_of(cell).cases[about], model="stand-in", at_ns=cell.now_ns)
    cell.event(data, about, about)
    return data, server


def judged(cell: Cell) -> list[tuple[str, str]]:
    """(kind, rule that refused it) of each act of the last advice, as the scheduler judged it."""
    told = cell.told(AdviceJudged)
    return [(act.kind, act.rule) for act in told[-1].acts] if told else []
