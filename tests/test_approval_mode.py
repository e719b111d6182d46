"""Promises of approval mode with a real cell: nothing before a word, and what follows from it."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nemesis.sim.agent import Done, read_journal
from nemesis.sim.topology.cluster_file import load_cluster
from tests.commands import nemesis

pytestmark = pytest.mark.server
CLUSTER = load_cluster()
LIMIT_S = 120.0


class Running:
    """A demo in approval mode, and a terminal beside it."""

    def __init__(self, state: Path, process: subprocess.Popen[str]) -> None:
        self.state = state
        self.process = process

    def ask(self, *arguments: str) -> Any:
        variables = {"NEMESIS_STATE_DIR": str(self.state), "NEMESIS_CELL": "demo"}
        ran = nemesis(*arguments, "--json", **variables)
        return json.loads(ran.stdout) if ran.stdout else {}

    def say(self, *arguments: str) -> Any:
        return self.ask(*arguments, "--by", "ann", "--reason", "tried")

    def waits(self, holds: Callable[[Any], bool]) -> Any:
        """What `nemesis decisions` says as soon as it holds."""
        pause = threading.Event()
        while self.process.poll() is None:
            told = self.ask("decisions", "--all")
            if told and holds(told):
                return told
            pause.wait(0.1)
        raise AssertionError(f"the demo ended: {self.process.communicate()}")

    def next_decision(self) -> Any:
        def waiting(told: Any) -> list[Any]:
            return [each for each in told["decisions"] if each["state"] == "waiting"]

        return waiting(self.waits(lambda told: bool(waiting(told))))[0]

    def effects(self) -> list[Done]:
        agents = self.state / "demo" / "agents"
        return [each for node in CLUSTER.node_names for each in read_journal(agents / node)]


@contextmanager
def demo(state: Path, *options: str) -> Iterator[Running]:
    command = [sys.executable, "-m", "nemesis.cli", "demo", "--json", "--mode", "approve"]
    process = subprocess.Popen(
        [*command, "--speed", "2", "--scenario", "rank-exit", *options],
        env={**os.environ, "NEMESIS_STATE_DIR": str(state)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    watchdog = threading.Timer(LIMIT_S, process.kill)
    watchdog.start()
    try:
        yield Running(state, process)
    finally:
        watchdog.cancel()
        process.terminate()
        process.communicate()


def test_nothing_is_done_before_a_person_says_so_and_a_veto_offers_the_next(tmp_path: Path) -> None:
    with demo(tmp_path) as running:
        first = running.next_decision()
        assert first["action"] == "restart_rank"
        running.say("pause", "llama")
        running.say("approve", first["decision"])
        told = running.waits(lambda told: told["log_time_ns"] > first["decided_ns"] + 6 * 10**9)
        assert [each["state"] for each in told["decisions"]] == ["recorded", "approved"]
        assert [each.doing for each in running.effects()] == ["fence"]  # its own dead rank, no more
        running.say("veto", first["decision"])
        running.waits(lambda told: any(each["limit"] == "paused" for each in told["withheld"]))
        running.say("resume", "llama")
        second = running.next_decision()
        assert (second["action"], second["world"]) == ("shrink", 111)
        assert [each.doing for each in running.effects()] == ["fence"]
        running.say("approve", second["decision"])
        output, errors = running.process.communicate(timeout=LIMIT_S)
    document = json.loads(output)
    assert (running.process.returncode, document["score"]["world"]) == (0, 111), errors
    by = [f["data"]["by"] for f in document["facts"] if f["fact"].startswith("decision_")]
    assert by == ["ann", "ann", "ann"]
    attempts = [f["data"] for f in document["facts"] if f["fact"] == "attempt_started"]
    assert [each["decision"] for each in attempts] == [second["decision"]]


def test_what_nobody_approves_expires_in_the_log_and_nothing_was_done(tmp_path: Path) -> None:
    with demo(tmp_path) as running:
        first = running.next_decision()
        policy = tmp_path / "policy.json"
        policy.write_text('{"mode":"approve","approval_timeout_ns":2000000000}')
        running.say("policy", "apply", str(policy))
        running.say("veto", first["decision"])  # the next is decided under the new policy
        told = running.waits(lambda told: bool(told["withheld"]))
        (withheld,) = told["withheld"]
        assert withheld["limit"] == "expired"
        assert withheld["decision"] in withheld["reason"]
        state = {each["decision"]: each["state"] for each in told["decisions"]}
        assert state[withheld["decision"]] == "expired"
        assert [each.doing for each in running.effects()] == ["fence"]
