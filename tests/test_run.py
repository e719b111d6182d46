"""Promises of `nemesis run` and `nemesis agent`: real ranks from torchrun's command line."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from nemesis.actors.agent.job import seat
from nemesis.streams.server import state_folder
from tests.commands import nemesis, processes_of
from tests.test_serve import serving
from tests.training.cell import has_torch, torch_python

pytestmark = [pytest.mark.server, pytest.mark.torch]
POLICY = {
    "mode": "act",
    "playbooks": {
        "unknown": ["shrink", "restart_job"],
        "app.program": ["shrink", "restart_job"],
    },
}
LIMIT_S = 100.0


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("NEMESIS_STATE_DIR", str(tmp_path / "s"))
    yield tmp_path / "s"
    assert processes_of(tmp_path) == []


@pytest.fixture
def torch_there() -> None:
    if not has_torch():
        pytest.skip("no torch: pip install 'nemesis-gpu[train]'")


def launched(folder: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "nemesis.cli", "run", *options],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        env=os.environ
        | {
            "PYTHON_EXEC": torch_python(),
            "PYTHONPATH": os.pathsep.join(["src", "."]),
            "OUT": str(folder),
            "STEPS": "30",
            **environment,
        },
    )


def members(folder: Path, rank: int) -> list[str]:
    """Who trained each step of a rank."""
    return [line.split()[1] for line in (folder / f"rank_{rank}.txt").read_text().splitlines()]


@pytest.mark.timeout(200)
@pytest.mark.usefixtures("torch_there")
def test_a_command_line_of_torchrun_trains_on_without_the_rank_that_was_killed(
    tmp_path: Path,
) -> None:
    policy = tmp_path / "policy.json"
    policy.write_bytes(msgspec.json.encode(POLICY))
    with serving("--nodes", "n1") as _:
        assert nemesis("policy", "apply", str(policy), "--reason", "test", "--yes").returncode == 0
        line = ["--nproc-per-node", "3", "-m", "tests.training.loop"]
        ran = launched(tmp_path, "--node", "n1", "--", *line, FATE="SIGKILL:1@12")
        assert ran.returncode == 0, ran.stderr
        listed = nemesis("goodput", "--json")
    assert members(tmp_path, 0) == ["0,1,2"] * 12 + ["0,2"] * 18 == members(tmp_path, 2)
    assert "it goes on with rank 0,2\n" in ran.stderr
    assert "loop-" in listed.stdout


@pytest.mark.timeout(200)
@pytest.mark.usefixtures("torch_there")
def test_without_a_cell_a_job_trains_alone_and_ends_or_restarts_as_under_torchrun(
    tmp_path: Path,
) -> None:
    line = ["--nproc-per-node", "2", "--max-restarts", "1", "-m", "tests.training.loop"]
    ran = launched(tmp_path, *line, FATE="SIGKILL:1@12")
    said = ran.stderr.splitlines()
    assert [each for each in said if "alone" in each] == [
        "nemesis: no cell local runs here, the job trains alone"
    ]
    assert sum("rank 1 is lost: the job ends" in each for each in said) == 2
    assert sum("started again, 1 of 1" in each for each in said) == 1
    assert ran.returncode == 1
    assert members(tmp_path, 0) == ["0,1"] * 24  # each start anew, no checkpoint is its own


@contextmanager
def waiting(*options: str) -> Iterator[subprocess.Popen[str]]:
    """A second node, once it has come to the first, which is this test and does not answer."""
    with socket.create_server(("127.0.0.1", 0)) as first:
        there = ["--nnodes", "2", "--node-rank", "1"]
        there += ["--rdzv-endpoint", f"127.0.0.1:{first.getsockname()[1]}"]
        words = [each for option in options for each in (there if option == "THERE" else [option])]
        command = [sys.executable, "-m", "nemesis.cli", *words]
        first.settimeout(LIMIT_S)
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            try:
                with first.accept()[0]:
                    yield process
            finally:
                process.kill()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_run_that_was_told_to_end_has_not_come_to_its_end(
    number: signal.Signals, code: int
) -> None:
    with waiting("run", "--", "THERE", "t.py") as process:
        process.send_signal(number)
        assert process.wait(LIMIT_S) == code


def test_what_cannot_be_started_is_said_before_anybody_waits() -> None:
    for command in (
        ["agent", "--job", "j", "--", "/no/such/command"],
        ["run", "--", "--no-python", "/no/such/command"],
    ):
        ran = nemesis(*command)
        assert (ran.returncode, ran.stderr.count("\n")) == (2, 1)
        assert "no such command: /no/such/command" in ran.stderr


def test_who_cannot_be_an_agent_is_told_in_a_line_and_who_starts_a_job_elsewhere_tells_of_it() -> (
    None
):
    line = ["--", "--nproc-per-node", "1", "t.py"]
    away = nemesis("run", "--server", "nats://127.0.0.1:1", "--context", "no-such", *line)
    assert (away.returncode, away.stderr.count("\n")) == (2, 1)
    none = nemesis("agent", "--job", "j")
    assert none.returncode == 3
    assert "`nemesis serve`" in none.stderr
    unnamed = nemesis("agent")
    assert (unnamed.returncode, unnamed.stderr.count("\n")) == (2, 1)
    with serving("--nodes", "n1"):
        stranger = nemesis("run", "--node", "n9", *line)
        assert stranger.returncode == 3
        assert "node-n9" in stranger.stderr
        who = ["--by", "me", "--reason", "test"]
        submit = ["job", "submit", "llama", "--nodes", "n1", "--ranks-per-node", "4", *who]
        assert nemesis(*submit, "--credentials", "/no/such").returncode == 3
        with waiting("agent", "--job", "llama", "--node", "n1", "THERE") as agent:
            assert agent.stderr is not None
            assert "the log knows of no job llama" in agent.stderr.readline()
        with seat(state_folder("local") / "agents", "n1"):
            for command in (
                ["run", "--node", "n1", *line],
                ["agent", "--job", "j", "--node", "n1"],
            ):
                second = nemesis(*command)
                assert (second.returncode, second.stderr.count("\n")) == (4, 1)
                assert "an agent of n1 runs already" in second.stderr
        told = nemesis(*submit)
        assert told.stdout == "llama: 4 ranks on n1\n"
        with waiting("agent", "--job", "llama", "--node", "n1", "THERE") as agent:
            agent.terminate()
            assert agent.communicate(timeout=LIMIT_S)[1] == ""
        assert nemesis("job", "end", "llama", *who).stdout == "llama is over\n"
        for words, status, said in (
            (["end", "llama"], 3, "no running job 'llama'"),
            (["submit", "other", "--nodes", "n1,n9"], 3, "'n9' has no credential"),
            (["submit", "other", "--nodes", "n1", "--spares", "n[1-9]"], 3, "'n[1-9]' has no"),
            (["submit", "my job", "--nodes", "n1"], 2, "'my job', expected a name without blanks"),
            (["submit", "other", "--nodes", ","], 2, "--nodes names no node"),
        ):
            refused = nemesis("job", *words, *who)
            assert (refused.returncode, refused.stderr.count("\n")) == (status, 1)
            assert said in refused.stderr
