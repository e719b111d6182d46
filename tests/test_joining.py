"""A rank that waits to join: its agent is never in doubt about it, whichever of the rank's threads
speaks first, and however many lives the agent has meanwhile."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
