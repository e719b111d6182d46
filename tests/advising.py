"""One advice for a test: a situation, a model that says what it is told to, and what came of it."""

import asyncio
from typing import Any

from msgspec.structs import replace

from nemesis.actors.advisor.advice import Advice, advise, model_of
from nemesis.actors.advisor.desk import Desk
from nemesis.actors.advisor.key import Key
from nemesis.actors.advisor.settings import Settings, settings_of
from nemesis.processors.advice.situation import Situation, Standing
from nemesis.processors.topology.pool import Pool
from tests.messages_server import MessagesServer, Script, messages_server
from tests.pools import pool

SECRET = "sk-ant-a-secret-of-the-test"


def settings(url: str, *, budget: dict[str, Any] | None = None, tries: int = 3) -> Settings:
    """The settings of the release against a stand-in, hardly waiting between tries."""
    told = settings_of()
    retries = replace(told.retries, tries_max=tries, first_wait_seconds=0.01, silence_seconds=5.0)
    limits = replace(told.budget, **(budget or {}))
    return replace(told, base_url=url, retries=retries, budget=limits)


def waiting(job: str, spec: str = "TP8_NVL18+DP2", **more: Any) -> Standing:
    """A job in the queue."""
    return Standing(job=job, spec=spec, stage="waiting", **more)


def situation(
    *jobs: Standing, on: Pool | None = None, held: dict[str, str] | None = None
) -> Situation:
    """A small cluster, and its nodes less those of jobs."""
    cluster = on or pool()
    taken = [name for job in jobs for name in job.nodes]
    return Situation(pool=cluster.without(taken), jobs=jobs, held=held or {})


def advice_of(
    now: Situation,
    *turns: Script,
    about: str = "llama",
    budget: dict[str, Any] | None = None,
    tries: int = 3,
    day_cost_microusd: int = 0,
) -> tuple[Advice, MessagesServer]:
    """What the advisor makes of a model that answers in these turns."""
    with messages_server(*turns) as server:
        told = settings(server.url, budget=budget, tries=tries)

        async def run() -> Advice:
            async with model_of(told, Key(SECRET)) as model:
                return await advise(
                    model, told, Desk(now, about), day_cost_microusd=day_cost_microusd
                )

        return asyncio.run(run()), server
