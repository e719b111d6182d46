"""Who watches a part on its machine hears when its log goes away and when it is back, once each."""

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from pathlib import Path

import pytest

from nemesis.streams import pulse
from nemesis.streams.contexts import Target
from nemesis.streams.server import Server
from tests.cells import in_cell, until
from tests.node_trees import Tree


async def started(server: Server, *arguments: str) -> Process:
    options = ["--server", server.url, "--credentials", str(server.credentials_folder)]
    command = [sys.executable, "-m", "nemesis.cli", *arguments, *options]
    return await asyncio.create_subprocess_exec(*command, stdout=DEVNULL, stderr=PIPE)


async def heard(process: Process, words: str) -> list[str]:
    """The lines up to the one with these words."""
    assert process.stderr is not None
    lines: list[str] = []
    while not lines or words not in lines[-1]:
        line = (await process.stderr.readline()).decode()
        assert line, lines
        lines.append(line)
    return lines


@pytest.mark.server
def test_producer_and_exporter_say_when_the_log_is_away_and_when_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEMESIS_STATE_DIR", str(tmp_path / "state"))
    tree = Tree(tmp_path / "root")

    async def body(server: Server) -> None:
        producer = ["producer", "--node", "n1", "--root", str(tree.path)]
        parts = {
            "producer-n1": await started(server, *producer, "--state", str(tmp_path / "own")),
            "exporter": await started(server, "exporter", "--port", "0"),
        }
        folder = tmp_path / "state/local/pulses"
        await until(lambda: len(list(folder.glob("*.json"))) == len(parts), "both live")
        await server.kill()
        for name, process in parts.items():
            before = await heard(process, "the log is away")
            assert not any("the log is" in line for line in before[:-1])
            assert f"{name}: the log is away" in before[-1]
        await server.restart()
        for name, process in parts.items():
            assert f"{name}: the log is back" in (await heard(process, "the log is"))[-1]
            process.kill()
            await process.wait()

    in_cell(tmp_path, body, roles=("node/n1", "producer/n1"))


def test_a_log_that_is_away_for_a_moment_is_not_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pulse, "PERIOD_S", 0.0)
    looks = iter([True, False, False, True, False, False, False, False, True, True])

    async def work() -> None:
        with pytest.raises(RuntimeError):  # of the iterator that is at its end
            await pulse.keep(tmp_path, "part", lambda: next(looks))

    asyncio.run(work())
    said = [record.getMessage() for record in caplog.records]
    assert [line.split(";")[0] for line in said] == [
        "part: the log is away",
        "part: the log is back",
    ]


@pytest.mark.server
def test_who_signs_in_by_a_seed_that_everybody_may_read_is_told_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(server: Server) -> None:
        folder = server.credentials_folder
        seed = folder / "reader.nk"
        for mode, count in ((0o600, 0), (0o640, 0), (0o644, 1), (0o644, 0)):
            seed.chmod(mode)
            caplog.clear()
            target = Target(url=server.url, credentials_folder=folder)
            async with await target.connect("reader"):
                said = [r.getMessage() for r in caplog.records if "may read" in r.getMessage()]
            assert (
                said == [f"everybody here may read {seed}: chmod 600 it, or make new seeds"][:count]
            )

    in_cell(tmp_path, body)
