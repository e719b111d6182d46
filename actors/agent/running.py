"""One node's part of a job from its first process to its last: what `nemesis run` waits for.

With a control plane, a rank that is lost is decided on in the log, and the rest goes on. Where no
decision comes, and where there is no control plane at all, the job ends, as it would have under
torchrun.
"""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from nemesis.actors.agent.agent import Agent
from nemesis.actors.agent.ranks import Rank
from nemesis.actors.node_link import Link
from nemesis.schemas.plans import order_of
from nemesis.schemas.rank_ranges import format_ranks
from nemesis.schemas.watched import CoverageReported
from nemesis.streams.connection import Login
from nemesis.streams.side_by_side import background

LOOK_S: Final = 0.05
ALONE_PATIENCE_S: Final = 0.5
"""Nobody will decide; a rank's end may be seen a moment after what its peers say of it."""
END_S: Final = 30.0
"""torchrun's own grace between SIGTERM and SIGKILL (`--shutdown-timeout`)."""


class Wire(msgspec.Struct, frozen=True):
    """Where an agent speaks to NEMESIS, and as whom."""

    url: str
    login: Login


class Wanting(msgspec.Struct, frozen=True):
    """What somebody has to decide on."""

    lost: tuple[int, ...]
    """Members that have ended, and not by themselves at the end of their work."""
    held: tuple[int, ...]
    """Members that wait for a plan."""
    place: int
    """Of the last plan."""

    def __bool__(self) -> bool:
        return bool(self.lost or self.held)

    def __str__(self) -> str:
        if self.lost:
            return f"rank {format_ranks(self.lost)} is lost"
        return f"rank {format_ranks(self.held)} waits: its group broke"


@asynccontextmanager
async def attended(agent: Agent, wire: Wire | None, folder: Path) -> AsyncIterator[None]:
    """The agent at work, and its link; ranks run on afterwards. `wire` None: it speaks to nobody.

    Raises:
        AgentRunningError: another agent has the folder.
        NoStoreError: its store does not start.
    """
    work = [agent.run()]
    if wire is not None:
        link = Link(
            lambda: agent,
            url=wire.url,
            login=wire.login,
            spool_path=folder / "spool",
            now_ns=time.time_ns,
            # or the node's silence is taken for its loss
            farewell=lambda: CoverageReported(**agent.stamp("coverage", time.time_ns()), ends=True),
        )
        agent.on_news, agent.is_connected = link.wake, lambda: link.connected
        work.append(link.run())
    async with background(*work):
        yield


def wanting(agent: Agent) -> Wanting:
    """Which of its ranks are missed, and which wait."""
    plan, members = agent.plan, frozenset(agent.members)
    ranks = sorted(agent.ranks.items())
    return Wanting(
        lost=tuple(n for n, rank in ranks if n in members and rank.stage in ("failed", "fenced")),
        held=tuple(n for n, rank in ranks if n in members and rank.stage == "held"),
        place=order_of(plan.epoch, plan.kind) if plan is not None else 0,
    )


def code_of_stillborn(ranks: Sequence[Rank]) -> int:
    """The exit code of the first, where all ended with an error before any made a step; else 0.

    No decision mends a script that is not there. Who was killed is another matter.
    """
    codes = [0 if rank.state.steps_count > 0 else rank.returncode or 0 for rank in ranks]
    return codes[0] if codes and min(codes) > 0 else 0


async def until_over(agent: Agent, patience_s: float, say: Callable[[str], None]) -> bool:
    """Wait until no rank runs here any more; False: one was missed and nobody decided anything.

    `patience_s`: how long a rank may be missed without any news before the job is given up.
    """
    seen, since_s = Wanting((), (), 0), time.monotonic()
    members = agent.members
    while agent.is_busy or seen:
        await asyncio.sleep(LOOK_S)
        now = wanting(agent)
        code = code_of_stillborn([agent.ranks[n] for n in agent.members if n in agent.ranks])
        if code and set(agent.members) <= set(agent.ranks):
            say(f"all ranks ended with an error, exit {code}, before their first step")
            return False
        if agent.members != members:
            members = agent.members
            say(f"it goes on with rank {format_ranks(members)}")
        if now == seen:
            if seen and time.monotonic() - since_s > patience_s:
                decided = f", and no decision came within {patience_s:g} s"
                say(f"{seen}{decided if patience_s > ALONE_PATIENCE_S else ''}: the job ends")
                return False
            continue
        if now and not seen and patience_s > ALONE_PATIENCE_S:
            say(f"{now}, a decision is awaited")
        seen, since_s = now, time.monotonic()
    crashed = [
        number
        for number, rank in sorted(agent.ranks.items())
        if number in agent.members and rank.stage == "left" and rank.returncode
    ]
    if crashed:
        say(f"rank {format_ranks(crashed)} was done, and then ended with an error")
    return not (wanting(agent) or crashed)


async def ask_to_end(agent: Agent) -> None:
    """SIGTERM to all ranks, and time to follow it; what is left then is the caller's to kill."""
    for rank in agent.ranks.values():
        if rank.is_alive:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(rank.pid, signal.SIGTERM)
    until_s = time.monotonic() + END_S
    while agent.is_busy and time.monotonic() < until_s:  # noqa: ASYNC110
        await asyncio.sleep(LOOK_S)
