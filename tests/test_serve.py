"""Promises of `nemesis serve`: one command is a cell, and nothing of it stays."""

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nemesis.processors.catalogue import CATALOGUE
from nemesis.schemas.facts import encode_conclusion, telemetry_subject
from nemesis.schemas.operated import ProcessorActivated
from nemesis.streams import crew
from nemesis.streams.contexts import find
from nemesis.streams.lookup import subjects
from nemesis.streams.server import Server, running, state_folder
from nemesis.streams.status import copies_folder, read_status
from tests.cells import until
from tests.commands import nemesis, processes_of

pytestmark = pytest.mark.server
LIMIT_S = 60.0
PROGRAM = [sys.executable, "-m", "nemesis.cli"]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NEMESIS_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


def test_every_child_leaves_its_traces_with_its_own_cell(tmp_path: Path) -> None:
    server = Server("local", folder=tmp_path / "cell", port=4222)
    children = crew.commands(server, sorted(CATALOGUE), cell="other", copies=2)
    assert len(children) == 5
    for command in children.values():
        assert command[command.index("--cell") + 1] == "other"


@contextmanager
def serving(*options: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """A cell and what it said when it was up."""
    process = subprocess.Popen(
        [*PROGRAM, "serve", "--json", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        yield process, json.loads(line)
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=LIMIT_S)


def activations(cell: str = "local") -> dict[str, int]:
    """Subject of each activation in the log, and how many it has."""

    async def count() -> dict[str, int]:
        async with await find(cell=cell).connect("reader") as log:
            return await subjects(log, "nemesis.events.processor_activated.*")

    return asyncio.run(count())


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_served_cell_concludes_and_ends_in_order_with_nothing_left(
    number: signal.Signals, status: int, state: Path
) -> None:
    async def send_and_hear(up: dict[str, Any]) -> None:
        target = find()
        assert target.url == up["url"]
        async with await target.connect("node/n1") as node, await target.connect("reader") as log:
            await node.publish(telemetry_subject("n1", "kernel"), b"not msgpack")

            async def concluded() -> bool:
                return await log.last("nemesis.events.input_rejected.n1") is not None

            await until(concluded, "a served processor concluded")
            assert await subjects(log, "nemesis.events.policy_applied.*") == {}

    with serving("--nodes", "n1,n2") as (process, up):
        assert (up["nodes"], up["has_policy"]) == (["n1", "n2"], False)
        assert up["processors"] == up["activated"] == sorted(CATALOGUE)
        assert Path(up["log_folder"]).is_dir()
        asyncio.run(send_and_hear(up))
        assert len(processes_of(state)) >= 3  # server, processors, actor
        process.send_signal(number)
        _, stderr = process.communicate(timeout=LIMIT_S)
    assert process.returncode == status
    assert "Traceback" not in stderr
    assert processes_of(state) == []
    assert running(state_folder("local")) is None
    assert read_status(copies_folder(state_folder("local"))) == []


def test_a_second_start_says_what_runs(state: Path) -> None:
    with serving() as (_, up):
        second = nemesis("serve")
        shown = nemesis("status", "--json")
    assert second.returncode == 3
    assert up["url"] in second.stderr
    assert "`nemesis status --cell local`" in second.stderr
    assert second.stderr.count("\n") == 1
    assert msgspec.json.decode(shown.stdout)["cell"] == "local"


def test_a_cell_is_served_on_a_server_that_runs_already(state: Path) -> None:
    with serving("--cell", "theirs") as (_, theirs):
        target = ["--server", theirs["url"], "--credentials", theirs["credentials_folder"]]
        with serving(*target) as (process, up):
            assert (up["url"], up["server_pid"], up["log_folder"]) == (theirs["url"], 0, "")
            assert up["activated"] == []
            process.terminate()
            process.communicate(timeout=LIMIT_S)
        assert process.returncode == 0
        assert running(state_folder("theirs")) is not None
        refused = nemesis("serve", *target[:2])
    assert refused.returncode == 3
    assert "nemesis credentials" in refused.stderr


def test_a_restart_takes_the_log_up_and_activates_nothing_again(state: Path) -> None:
    with serving("--nodes", "n1"):
        before = activations()
    with serving() as (_, up):
        assert up["activated"] == []
        assert up["nodes"] == ["n1"]
        assert activations() == before == dict.fromkeys(before, 1)
        assert len(before) == len(CATALOGUE)


def test_a_version_that_an_operator_chose_is_left_alone(state: Path) -> None:
    async def choose() -> None:
        async with Server() as server, await server.connect("operator") as log:
            data = ProcessorActivated(
                at_ns=1, by="operator", reason="chosen", name="healer", version=1
            )
            await log.publish(
                *encode_conclusion(id="o/1", source="/o", at_ns=1, data=data, key="healer")
            )

    asyncio.run(choose())
    with serving() as (_, up):
        assert up["activated"] == sorted(set(CATALOGUE) - {"healer"})
        assert set(activations().values()) == {1}


def test_what_is_up_is_told_in_a_line_each_and_what_lacks_its_key_too(
    state: Path, tmp_path: Path
) -> None:
    settings = tmp_path / "advisor.toml"
    settings.touch()
    process = subprocess.Popen(
        [*PROGRAM, "serve", "--cell", "rack", "--advisor", str(settings)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1", "ANTHROPIC_API_KEY": ""},
    )
    try:
        assert process.stdout is not None
        told, keyless = [], 0
        for line in process.stdout:
            told.append(line.split()[0])
            keyless += "no key for the advisor: the rules" in line
            if "Ctrl-C ends it" in line:
                break
        assert keyless == 1
        parts = ["clock", "keeper", *sorted(CATALOGUE), "job-actor", "archivist", "advisor"]
        assert told == ["cell", "server", "log", "credentials", *parts, "policy", "look"]
    finally:
        process.terminate()
        process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0


@pytest.mark.parametrize("command", [["process", "intake"], ["process", "--once"], ["act", "job"]])
def test_what_reads_says_so_once_and_ctrl_c_is_an_interruption(
    command: list[str], state: Path
) -> None:
    async def beside() -> None:
        async with Server("lone"):
            process = subprocess.Popen(  # noqa: ASYNC220
                [*PROGRAM, *command, "--cell", "lone"], stderr=subprocess.PIPE, text=True
            )
            try:
                assert process.stderr is not None
                line = await asyncio.to_thread(process.stderr.readline)
                assert line == "reading cell lone, Ctrl-C ends\n"
                process.send_signal(signal.SIGINT)
                await asyncio.to_thread(process.wait, LIMIT_S)
            finally:
                process.kill()
                process.communicate()
            assert process.returncode == 130

    asyncio.run(beside())


def test_nodes_may_be_named_in_a_file(tmp_path: Path) -> None:
    listed = tmp_path / "nodes.txt"
    listed.write_text("n1\n# a rack of its own\nn2  # spare\n\nn1\n")
    made = nemesis("credentials", "--out", str(tmp_path / "s"), "--nodes", str(listed), "--json")
    roles = msgspec.json.decode(made.stdout)["roles"]
    assert [role for role in roles if role.startswith("node/")] == ["node/n1", "node/n2"]
    for seed in (tmp_path / "s").iterdir():
        assert stat.S_IMODE(seed.stat().st_mode) == 0o600
    assert nemesis("serve", "--nodes", "/no/such/file").returncode == 2
