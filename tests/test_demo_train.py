"""Promises of `nemesis demo train`: a real rank is broken, the loss goes on, nothing is left."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemesis.actors.agent.store import NoStoreError, open_store
from nemesis.sim.train.run import BadFaultError, Fault, fault_of
from nemesis.sim.train.show import chart
from nemesis.sim.train.steps import Steps
from nemesis.sim.train.text import BYTES_MIN, find_text
from tests.commands import nemesis, processes_of
from tests.training.cell import has_torch, torch_python

pytestmark = pytest.mark.torch
LIMIT_S = 200.0


def test_a_fault_is_read_as_it_is_typed() -> None:
    assert fault_of("kill:2@step40") == Fault("kill", 2, 40)
    assert fault_of("stop:0@7") == Fault("stop", 0, 7)
    for wrong in ("", "kill:4@step1", "kill:1@step0", "hang:1@step4", "kill:1", "kill:11@4"):
        with pytest.raises(BadFaultError):
            fault_of(wrong)


def test_the_text_is_real_long_enough_and_the_same_at_every_call() -> None:
    text = find_text()
    assert text == find_text()
    assert text.bytes_count == len(text.path.read_bytes()) >= BYTES_MIN


@given(values=st.lists(st.floats(0, 1e6), max_size=300), width=st.integers(1, 80))
def test_a_chart_has_its_size_whatever_it_shows(values: list[float], width: int) -> None:
    rows = chart(values, width=width, height=5)
    assert [len(row) for row in rows] == [width] * 5


@pytest.mark.parametrize("mode", ["demo", "store"])
def test_without_torch_a_line_says_so_before_anything_is_announced(
    tmp_path: Path, mode: str
) -> None:
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    if mode == "store":
        opening = open_store(tmp_path, host="127.0.0.1", python=str(bare), environment=os.environ)
        with pytest.raises(NoStoreError, match="has no torch"):
            asyncio.run(opening)
        return
    ran = nemesis("demo", "train", PYTHON_EXEC=str(bare))
    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (1, "", 1)
    assert "has no torch" in ran.stderr
    assert "'nemesis-gpu[train]'" in ran.stderr


def write(folder: Path, rank: int, *steps: tuple[int, str, int, int]) -> None:
    """Lines of a rank: step, members, life, at_ns; a life begins with the process."""
    lives: set[int] = set()
    with (folder / f"rank_{rank}.jsonl").open("a") as told:
        for step, members, life, at_ns in steps:
            if life not in lives:
                told.write(json.dumps({"pid": 10 * rank + life, "life": life}) + "\n")
                lives.add(life)
            line = {"step": step, "loss": 2.0, "life": life, "at_ns": at_ns}
            told.write(json.dumps(line | {"members": [int(each) for each in members]}) + "\n")


def test_a_pause_lasts_until_the_last_of_those_who_are_left_has_a_new_step(tmp_path: Path) -> None:
    for rank in (0, 1, 3):
        write(tmp_path, rank, (1, "0123", 0, 100), (2, "0123", 0, 200))
    write(tmp_path, 2, (1, "0123", 0, 100), (2, "0123", 0, 200))
    steps = Steps(tmp_path)
    assert steps.read()
    assert steps.cost(2, 250) is None
    # a step of all four that was under way when the fault came is no recovery
    for rank, at_ns in ((0, 2_000_300), (1, 5_000_250), (3, 1_000_000)):
        write(tmp_path, rank, (3, "0123", 0, 260), (4, "013", 0, at_ns))
    steps.read()
    assert not steps.read()
    cost = steps.cost(2, 250)
    assert cost is not None
    assert (cost.pause_ms, cost.steps_redone, cost.ranks_after) == (5.0, 0, 3)


def test_a_restart_is_over_at_the_first_step_that_nobody_had_before(tmp_path: Path) -> None:
    for rank in range(4):
        before = [(step, "0123", 0, step) for step in (1, 2, 3)]
        again = [(step, "0123", 1, step * 1_000_000) for step in (2, 3, 4)]
        write(tmp_path, rank, *before, *again)
    steps = Steps(tmp_path)
    steps.read()
    cost = steps.cost(1, 4)
    assert cost is not None
    assert (round(cost.pause_ms), cost.steps_redone, cost.processes_restarted) == (4, 2, 4)
    assert steps.losses() == [2.0] * 4


@pytest.mark.server
@pytest.mark.timeout(300)
@pytest.mark.skipif(not has_torch(), reason="no torch: pip install 'nemesis-gpu[train]'")
def test_a_killed_rank_is_named_decided_on_and_left_out_and_nothing_stays(tmp_path: Path) -> None:
    options = ["--fault", "kill:2@step12", "--alone", "--json"]
    ran = subprocess.run(
        [sys.executable, "-m", "nemesis.cli", "demo", "train", *options],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        env=os.environ
        | {
            "NEMESIS_STATE_DIR": str(tmp_path / "s"),
            "PYTHON_EXEC": torch_python(),
            "PYTHONPATH": "src",
            "TMPDIR": str(tmp_path),
        },
    )
    assert ran.returncode == 0, ran.stderr
    told: dict[str, Any] = json.loads(ran.stdout)["runs"][0]
    kinds = [each["kind"] for each in told["happenings"] if each["at_ms"] >= 0]
    assert kinds[0] == "FAULT"
    assert {"VERDICT", "DECISION", "DONE"} <= set(kinds)
    cost = told["cost"]
    assert (cost["ranks_after"], cost["steps_redone"], cost["processes_restarted"]) == (3, 0, 0)
    assert len(told["losses"]) == 72
    assert told["losses"][-1] < told["losses"][0]
    assert processes_of(tmp_path) == []
    assert list(tmp_path.glob("nemesis-*")) == []
