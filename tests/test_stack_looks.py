"""Promises of an agent's looks at the stacks of real processes that stand: two, once a stall."""

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from time import monotonic_ns
from typing import Any

import pytest

from nemesis.actors.agent import stack_looks
from nemesis.actors.agent.ranks import Rank
from nemesis.producers.origin import Origin
from nemesis.schemas.observed import StackSeen
from nemesis.streams.side_by_side import background
from nemesis.training.membership import State
from nemesis.training.wire import Standing

# serves its stacks as torch's worker server does; `stopped` answers nobody
PROGRAM = """
import faulthandler, http.server, socket, sys, tempfile, threading, time

class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        with tempfile.TemporaryFile() as file:
            faulthandler.dump_traceback(file)
            file.seek(0)
            said = file.read()
        self.send_response(200 if self.path == "/handler/dump_traceback" else 404)
        self.end_headers()
        self.wfile.write(said)

    def address_string(self):
        return "a Unix socket"

    def log_message(self, *said):
        pass

class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_UNIX

    def server_bind(self):
        self.socket.bind(self.server_address)

def stuck():
    time.sleep(60)

def at_work():
    while True:
        sum(range(1_000))

if sys.argv[2] != "deaf":
    threading.Thread(target=Server(sys.argv[1], Handler).serve_forever, daemon=True).start()
print("go", flush=True)
{"asleep": stuck, "busy": at_work, "deaf": stuck}[sys.argv[2]]()
"""


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_looks, "FIRST_NS", 0)
    monkeypatch.setattr(stack_looks, "APART_S", 0.3)
    monkeypatch.setattr(stack_looks, "LOOK_S", 0.02)


def stand(rank: Rank, step: int, at_ns: int) -> None:
    """The rank says that it has made a step."""
    writer: Any = None
    said = Standing(rank=rank.number, pid=rank.pid, stage="training", epoch=0, state=State(0, step))
    rank.heard(said, writer, at_ns)


async def seen_of(
    folder: Path, *does: str, and_then: Any = lambda ranks: None
) -> list[list[StackSeen]]:
    """What is told of ranks that made their last step two seconds ago and do this since."""
    told: list[list[StackSeen]] = []

    def on_seen(facts: Sequence[StackSeen]) -> None:
        told.append(list(facts))
        and_then(ranks)

    ranks: dict[int, Rank] = {}
    running = []
    for number, what in enumerate(does):
        words = [sys.executable, "-c", PROGRAM, str(folder / f"{number}.tap"), what]
        running.append(subprocess.Popen(words, stdout=subprocess.PIPE))  # noqa: ASYNC220
    try:
        for number, process in enumerate(running):
            assert process.stdout is not None
            await asyncio.to_thread(process.stdout.readline)
            ranks[number] = Rank(number, process.pid, 0, lambda rank: None)
            for step in (4, 5):
                stand(ranks[number], step, monotonic_ns() - 2_000_000_000 + step)
        looks = stack_looks.StackLooks(
            Origin("n1", start_ns=1),
            "llama",
            ranks,
            tap=lambda number: folder / f"{number}.tap",
            on_seen=on_seen,
        )
        async with background(looks.run()):
            await asyncio.sleep(1.2)
    finally:
        for process in running:
            process.kill()
            process.communicate()
    return told


def test_ranks_that_stand_are_looked_at_once_a_stall_wherever_they_are(tmp_path: Path) -> None:
    (facts,) = asyncio.run(seen_of(tmp_path, "asleep", "busy", "deaf"))
    asleep, busy, deaf = facts
    assert [each.rank for each in facts] == [0, 1, 2]
    assert asleep.frames[0].startswith("stuck (<string>:")
    assert (asleep.state, asleep.ran_ns) == ("still", 0)
    assert asleep.looked_ns >= 300_000_000
    assert busy.frames[0].startswith("at_work (<string>:")
    assert busy.ran_ns > 0
    assert (deaf.state, deaf.frames) == ("silent", ())


def test_the_next_stall_is_looked_at_anew_and_a_step_in_between_is_no_stall(tmp_path: Path) -> None:
    def step_on(ranks: dict[int, Rank]) -> None:
        step = ranks[0].state.steps_count + 1
        if step == 6:
            stand(ranks[0], step, monotonic_ns() - 2_000_000_000)

    told = asyncio.run(seen_of(tmp_path, "asleep", and_then=step_on))
    assert [len(facts) for facts in told] == [1, 1]
