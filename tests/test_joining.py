"""A rank that waits to join: its agent is never in doubt about it, whichever of the rank's threads
speaks first, and however many lives the agent has meanwhile; and a number has one process."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nemesis.actors.agent.agent import Agent
from nemesis.actors.agent.launch import Launch
from nemesis.actors.agent.ranks import Rank, started, states_of
from nemesis.actors.planning import progress_of
from nemesis.schemas.plans import Plan
from nemesis.training.membership import Order
from nemesis.training.seat import AGENT, RANK, STATE_FROM
from nemesis.training.wire import Standing, Told, line_of, standing_of

JOINS = Told(order=Order(2, "membership", (0, 1, 2)), store="here:1")
OVER_S = 20.0
WAITING = """
import os, threading, time
from pathlib import Path
from nemesis.training.seat import AGENT, Seat
from nemesis.training.wire import Line

class Slow(Line):
    def say(self, standing):
        if threading.current_thread() is not threading.main_thread():
            time.sleep({slow_s})
        super().say(standing)

member = Seat(Slow(Path(os.environ[AGENT])), lambda: None).awaited()
print(member.stage, member.epoch)
"""
"""A rank whose loop is at its first step; the thread that listens is slow to introduce it."""


@contextmanager
def _waiting(path: Path, slow_s: float) -> Iterator[tuple[socket.socket, subprocess.Popen[str]]]:
    """Where rank 2 connects, which was started anew beside its job, and its process."""
    environment = os.environ | {AGENT: str(path), RANK: "2", STATE_FROM: "peer"}
    command = [sys.executable, "-c", WAITING.format(slow_s=slow_s)]
    with socket.socket(socket.AF_UNIX) as listening:
        listening.settimeout(OVER_S)
        listening.bind(str(path))
        listening.listen()
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as rank:
            try:
                yield listening, rank
            finally:
                rank.kill()


def _says(life: socket.socket, count: int) -> list[Standing]:
    """What a rank says to this life of its agent at first."""
    life.settimeout(OVER_S)
    with life.makefile("rb") as lines:
        return [standing_of(lines.readline()) for _ in range(count)]


def test_who_waits_says_so_last_however_slowly_it_introduces_itself(tmp_path: Path) -> None:
    with _waiting(tmp_path / "agent.sock", slow_s=0.3) as (listening, _):
        life, _ = listening.accept()
        with life:
            said = _says(life, 2)
    assert (said[-1].stage, said[-1].state.steps_count) == ("held", -1)


def test_who_waits_says_so_to_the_next_life_of_its_agent_and_hears_from_it(tmp_path: Path) -> None:
    with _waiting(tmp_path / "agent.sock", slow_s=0.0) as (listening, rank):
        life, _ = listening.accept()
        with life:
            _says(life, 2)
        life, _ = listening.accept()
        with life:
            [said] = _says(life, 1)
            assert said.stage == "held"
            life.sendall(line_of(JOINS))
            assert rank.communicate(timeout=OVER_S)[0] == "forming 2\n"


def _plan(epoch: int, *, started: str = "") -> Plan:
    return Plan(job="llama", epoch=epoch, kind="membership", members="0-2", started=started)


def test_who_ends_on_its_way_to_join_is_lost_to_the_plan_that_named_it(tmp_path: Path) -> None:
    async def lost() -> str:
        ended = asyncio.Event()
        child = started(["sleep", "60"], os.environ, tmp_path / "log")
        rank = Rank(2, child.pid, 1, lambda _: ended.set(), child)
        rank.tell(JOINS)
        rank.fence()
        await ended.wait()
        states = {("n0", each.rank): each for each in states_of([rank], ())}
        return progress_of(_plan(2), dict.fromkeys(range(3), "n0"), states).lost

    assert asyncio.run(lost()) == "2"


def test_a_rank_that_is_started_anew_takes_the_place_of_the_process_that_it_had(
    tmp_path: Path,
) -> None:
    launch = Launch(node="n0", job="llama", ranks=(0, 1, 2), world=3, command=("sleep", "60"))

    async def lives() -> None:
        agent = Agent(launch, tmp_path, boot_id="b")
        try:
            agent.follow(_plan(1, started="0-2"), 0)
            first = list(agent.ranks.values())
            agent.follow(_plan(2, started="0-2"), 0)
            while any(each.is_alive for each in first):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert all(each.is_alive for each in agent.ranks.values())
            assert agent.carried(0) == []  # who was replaced is not missed
        finally:
            agent.end()

    asyncio.run(asyncio.wait_for(lives(), OVER_S))
