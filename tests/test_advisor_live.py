"""Advice on a real server: a person asks, the advisor at work answers, the scheduler decides."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nemesis.processors.fold import Input
from nemesis.schemas.advised import AdviceGiven
from nemesis.schemas.facts import EVENTS_SUBJECT
from tests.advising import FOLLOWING, SECRET
from tests.commands import nemesis
from tests.messages_server import calls, explains, messages_server
from tests.scheduler_cell import Cell
from tests.test_scheduler_live import Room, room_with

pytestmark = pytest.mark.server


def asked(room: Room, *arguments: str, **more: str) -> str:
    ran = nemesis("advise", *arguments, **room.state, ANTHROPIC_API_KEY=SECRET, **more)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@contextmanager
def at_work(room: Room, settings: Path) -> Iterator[None]:
    """The advisor as its supervisor starts it: no list of processes shows its key."""
    command = ("act", "advisor", "--quiet", "--settings", str(settings))
    advisor = subprocess.Popen(
        (sys.executable, "-m", "nemesis.cli", *command),
        env=os.environ | room.state | {"ANTHROPIC_API_KEY": SECRET},
    )
    try:
        yield
        assert SECRET.encode() not in Path(f"/proc/{advisor.pid}/cmdline").read_bytes()
    finally:
        advisor.terminate()
        assert advisor.wait(20) == 0


async def until_advised(room: Room, job: str) -> AdviceGiven:
    """What the advisor writes of a job."""
    async with await room.server.connect("reader") as reader, asyncio.timeout(60):
        async for record in reader.follow(1, subject=EVENTS_SUBJECT):
            said = Input(record).decoded()
            if isinstance(said, AdviceGiven) and said.job == job:
                return said
    raise AssertionError("the log has no end")


async def all_of_it(room: Room) -> bytes:
    async with await room.server.connect("reader") as log:
        return b"".join([record.payload async for record in log.read_range(1, 10**9)])


def test_what_is_advised_is_written_judged_and_followed(tmp_path: Path) -> None:
    file = tmp_path / "advisor.toml"
    with room_with(tmp_path, Cell((2, 2), settings=FOLLOWING)) as room:
        waits = room.document("submit", "llama", "TP8_NVL18+DP2")
        assert (waits["fact"], waits["data"]["code"]) == ("job_queued", "advice")
        nobody = nemesis("advise", "nobody", **room.state)
        assert (nobody.returncode, nobody.stderr.count("\n")) == (3, 1)
        alone = nemesis("advise", "llama", **room.state, ANTHROPIC_API_KEY="")
        assert alone.stdout.splitlines()[0].startswith("llama: waiting, it has a place")
        assert alone.stdout.count("no key") == 1

        with messages_server(
            calls("schedule", job="llama", nodes=["n003", "n004"], why="Leaf 1 is for gpt."),
            explains("It goes to the second leaf."),
        ) as server:
            file.write_text(f'base_url = "{server.url}"\n')
            said = asked(room, "llama", "--settings", str(file))
        assert "  It goes to the second leaf." in said
        assert "scheduler: place n003 n004: passes the rules" in said
        assert "scheduler: placed on n003 n004" in said

        assert room("submit", "wide", "TP16_NVL18", "--gpus", "16").returncode == 1
        with messages_server(
            calls("schedule", job="wide", spec="TP8_NVL18+DP2", why="Eight share a domain."),
            explains("TP8 with two replicas would run."),
        ) as server:
            file.write_text(f'base_url = "{server.url}"\n')
            with at_work(room, file):
                given = asyncio.run(until_advised(room, "wide"))
        assert [(act.kind, act.spec, act.rule) for act in given.acts] == [
            ("offer", "TP8_NVL18+DP2", "")
        ]
        assert SECRET.encode() not in asyncio.run(all_of_it(room))
