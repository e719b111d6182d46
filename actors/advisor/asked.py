"""One advice on a job of the log that a person asks for, and what the scheduler makes of it."""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from nemesis.actors.advisor.desk import Desk
from nemesis.actors.advisor.settings import Settings
from nemesis.actors.advisor.worklist import Case, Worklist
from nemesis.processors.fold import Input
from nemesis.schemas.advised import AdviceGiven, AdviceJudged, AdvisedAct
from nemesis.schemas.facts import EVENTS_SUBJECT
from nemesis.schemas.scheduled import JobPlaced
from nemesis.streams.log import Log
from nemesis.views.scheduler import moment_at_end

if TYPE_CHECKING:  # they need the client library, and without a key nobody is asked
    from nemesis.actors.advisor.advice import Advice
    from nemesis.actors.advisor.asking import Model

ANSWER_S: Final = 5.0
"""A scheduler that runs answers within one."""
PLACED_S: Final = 1.0
"""A place that follows from advice is written with the answer to it, or comes much later."""


class Came(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to tell."""

    words: tuple[str, ...]
    """Of the rules, or the scheduler."""
    advice: "Advice | None" = None
    """None: no model was asked."""
    judged: tuple[AdvisedAct, ...] = ()
    """As the scheduler judged them."""
    placed_on: tuple[str, ...] = ()
    """In node_ranges form, where the job got its place then."""


async def about(
    log: Log, model: "Model", settings: Settings, worklist: Worklist, case: Case
) -> Came:
    """Ask, write it down, and wait for what the scheduler says to it."""
    from nemesis.actors.advisor.advice import advise
    from nemesis.actors.advisor.giving import fact_of, give

    moment = await moment_at_end(log)
    _, day_cost = worklist.day()
    desk = Desk(moment, case.job, case.why)
    advice = await advise(model, settings, desk, day_cost_microusd=day_cost)
    data = fact_of(advice, case, model=settings.model, at_ns=moment.now_ns)
    came = Came(words=(case.words,), advice=advice)
    seq = await give(log, data, case)
    return await _answered(log, seq, data, came) if seq else came


async def _answered(log: Log, seq: int, data: AdviceGiven, came: Came) -> Came:
    awaited = [act for act in data.acts if not act.rule and act.kind not in ("offer", "release")]
    wait_s = ANSWER_S if awaited else PLACED_S
    with suppress(TimeoutError):
        async with asyncio.timeout(wait_s) as limit:
            async for record in log.follow(seq + 1, subject=EVENTS_SUBJECT):
                said = Input(record).decoded()
                match said:
                    case AdviceJudged() if said.advice == data.advice:
                        came = msgspec.structs.replace(came, judged=said.acts)
                        limit.reschedule(asyncio.get_running_loop().time() + PLACED_S)
                    case JobPlaced() if said.job == data.job:
                        return msgspec.structs.replace(came, placed_on=said.nodes)
                    case _:
                        pass
    return came
