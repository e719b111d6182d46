"""A job on a real server: submitted, placed, its node turns bad, given back, placed elsewhere."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest

from nemesis.actors.agent.submission import life_of
from nemesis.actors.solver.actor import SolverActor
from nemesis.processors.fold import Input
from nemesis.schemas.facts import Record
from nemesis.schemas.scheduled import PlacementProposed
from nemesis.streams.server import Server
from tests.cells import in_cell
from tests.commands import Ran
from tests.commands import nemesis as run
from tests.scheduler_cell import Cell
from tests.test_scheduler import crowded

pytestmark = pytest.mark.server
NODES = [f"node/n{at:03}" for at in range(1, 5)]
SWITCHES = [f"collector/{name}" for name in ("leaf1", "leaf2", "spine1")]


class Room:
    """A server with a scheduler, two leaves of two nodes each, and a terminal."""

    def __init__(self, base: Path, server: Server) -> None:
        self.server = server
        self.scheduler: subprocess.Popen[bytes] | None = None
        self.state = {"NEMESIS_STATE_DIR": str(base), "NEMESIS_CELL": "room"}

    def __call__(self, *arguments: str) -> Ran:
        signed = (
            ()
            if arguments[0] in ("place", "queue", "job")
            else ("--by", "ann", "--reason", "tried")
        )
        return run(*arguments, *signed, **self.state)

    def begin(self, *arguments: str) -> "subprocess.Popen[bytes]":
        """The command as a process of its own."""
        command = (sys.executable, "-m", "nemesis.cli", *arguments)
        return subprocess.Popen(command, env=os.environ | self.state, stdout=subprocess.PIPE)

    def stop(self) -> None:
        """No scheduler runs any more."""
        if self.scheduler is not None:
            self.scheduler.terminate()
            self.scheduler.wait(10)

    def document(self, *arguments: str, status: int = 0) -> Any:
        ran = self(*arguments, "--json")
        assert ran.returncode == status, ran.stdout + ran.stderr
        return msgspec.json.decode(ran.stdout)

    def tell(self, records: Sequence[Record]) -> None:
        """What happened meanwhile, each fact by its writer."""

        async def write() -> None:
            for record in records:
                async with await self.server.connect(_role(record.subject)) as log:
                    await log.publish(record.subject, record.payload)

        asyncio.run(write())

    def life(self, job: str) -> int | None:
        """What the agent of a node hears of the life that a job is in."""

        async def ask() -> int | None:
            async with await self.server.connect("node/n001") as log:
                return await life_of(log, job)

        return asyncio.run(ask())


def _role(subject: str) -> str:
    _, space, name, last = subject.split(".")
    if space == "telemetry":
        known = {"tick": "ticker", "fabric_inventory": f"collector/{name}"}
        return known.get(last, f"node/{name}")
    return {"processor_activated": "operator", "fault_attributed": "processor/attribution"}[name]


@contextmanager
def room_with(tmp_path: Path, cell: Cell) -> Iterator[Room]:
    """Such a room, its log begun by what a cell holds."""
    server = Server("room", folder=tmp_path / "room", roles=[*NODES, *SWITCHES])
    asyncio.run(server.start())
    room = Room(tmp_path, server)
    room.tell(cell.records)
    command = (sys.executable, "-m", "nemesis.cli", "process", "--once", "--quiet", "scheduler")
    room.scheduler = subprocess.Popen(command, env=os.environ | room.state)
    try:
        yield room
    finally:
        room.stop()
        asyncio.run(server.stop())


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    with room_with(tmp_path, Cell((2, 2))) as room:
        yield room


def test_a_job_whose_node_turned_bad_is_placed_elsewhere(room: Room) -> None:
    assert room.life("llama") is None
    asked = room.document("place", "TP8_NVL18+DP2", "--dry-run")
    assert (asked["fact"], asked["data"]["nodes"]) == ("job_placed", ["n001", "n002"])
    assert "jobs are placed by the queue" in room("place", "TP8").stderr
    placed = room.document("submit", "llama", "TP8_NVL18+DP2")
    assert (placed["fact"], placed["data"]["nodes"]) == ("job_placed", ["n001", "n002"])
    refused = room("submit", "wide", "TP16_NVL18")
    assert (refused.returncode, "F1: " in refused.stdout) == (1, True)
    first_life = room.life("llama")
    waits = room("submit", "next", "TP8_NVL18+DP3", "--team", "vision")
    assert (waits.returncode, "would help: the end of llama" in waits.stdout) == (0, True)

    assert "if it were submitted" in room("place", "TP8_NVL18+DP4", "--dry-run").stdout
    asked = [
        room("place", spec, "--dry-run").returncode for spec in ("TP8_NVL18+DP4", "TP16_NVL18")
    ]
    assert asked == [3, 1]
    assert room("job", "nodes", "llama").stdout.split() == ["n001", "n002"]
    assert room("job", "nodes", "llama", "--as", "comma").stdout == "n001,n002\n"
    assert room("job", "nodes", "llama", "--as", "slots").stdout == "n001 slots=8\nn002 slots=8\n"
    ranks = room("job", "nodes", "llama", "--as", "ranks").stdout.split()
    assert ranks == ["n001"] * 8 + ["n002"] * 8
    waiting, nobody = room("job", "nodes", "next"), room("job", "nodes", "lama")
    assert (waiting.returncode, waiting.stderr.count("\n")) == (3, 1)
    assert "next has no nodes yet: C1: " in waiting.stderr
    assert (nobody.returncode, "do you mean llama?" in nobody.stderr) == (3, True)
    again = room("submit", "llama", "TP8_NVL18")
    assert (again.returncode, "NAME: a job of the name llama has nodes" in again.stdout) == (
        1,
        True,
    )
    story = Cell(())
    story.blame("gpu/n001/0000:00:00.0")
    room.tell(story.records[-1:])
    idle = room("release", "next", "--requeue")
    assert (idle.returncode, "next waits already" in idle.stderr) == (3, True)
    released = room("release", "next")
    assert (released.returncode, "its place in the queue" in released.stdout) == (0, True)
    large = room("submit", "large", "TP8", "--gpus", "9" * 20)
    assert (large.returncode, large.stderr.count("\n")) == (2, 1)
    assert "job_submitted.gpu_count" in large.stderr
    assert "waits again" in room("release", "llama", "--requeue").stdout
    (row,) = room.document("queue")["jobs"]
    assert (row["job"], row["state"], row["nodes"]) == ("llama", "runs", ["n003", "n004"])
    assert "n003,n004" in room("queue").stdout
    assert 0 < (first_life or 0) < (room.life("llama") or 0)

    assert room("submit", "later", "TP8_NVL18+DP3").returncode == 0
    waiter = room.begin("job", "nodes", "later", "--wait", "--json")
    assert room("release", "llama").returncode == 0
    out, _ = waiter.communicate(timeout=30)
    assert msgspec.json.decode(out)["nodes"] == ["n003", "n004", "n002"]  # as ranks lie
    assert room("release", "later").returncode == 0
    gone = room("release", "llama")
    assert (gone.returncode, gone.stderr.count("\n")) == (3, 1)
    assert room("queue").returncode == 3

    assert room("submit", "last", "TP8_NVL18").returncode == 0
    room.stop()
    with mock.patch("nemesis.cli.submit.ANSWER_S", 0.1):
        for command in (("submit", "late", "TP8_NVL18"), ("release", "last")):
            ran = room(*command)
            assert (ran.returncode, ran.stderr.count("\n")) == (3, 1)
            assert "no scheduler said within 0 s what becomes of it" in ran.stderr


def test_a_solver_answers_a_request_once_and_no_more(tmp_path: Path) -> None:
    asked = crowded(b'{"solver_wait_ns": 60000000000}').records[-1]
    subject = "nemesis.events.placement_proposed.placement-1"

    async def body(server: Server) -> None:
        async with (
            await server.connect("actor/solver") as one,
            await server.connect("actor/solver") as other,
            await server.connect("processor/scheduler") as scheduler,
        ):
            actors = [asyncio.create_task(SolverActor(log).run()) for log in (one, other)]
            await asyncio.sleep(0.2)  # both read from where the log ends when they begin
            await scheduler.publish(asked.subject, asked.payload)
            answer: object = None
            async for record in scheduler.follow(1, subject=subject):
                answer = Input(record).decoded()
                break
            await asyncio.sleep(0.5)
            for actor in actors:
                actor.cancel()
            assert isinstance(answer, PlacementProposed)
            assert [gang.job for gang in answer.gangs] == ["x", "y", "z"]
            assert (await scheduler.bounds()).messages_count == 2

    in_cell(tmp_path, body, roles=())
