"""Promises of `nemesis simulate`: a cluster on somebody else's log, one job after the other."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nemesis.schemas.facts import decode_conclusion
from nemesis.schemas.operated import JobEnded, JobSubmitted
from nemesis.sim.stage import wire_roles
from nemesis.sim.topology.cluster_file import DEFAULT, load_cluster
from nemesis.streams.log import Log
from nemesis.streams.server import Server
from tests.cells import in_cell, until
from tests.commands import nemesis

SMALL = {
    "nodes = 16": "nodes = 4",
    "nodes = 14": "nodes = 3",
    "world_min = 64": "world_min = 8",
    "start_ms = 20000": "start_ms = 200",
}
FAULT = """
title = "a GPU falls off the bus"
[[fault]]
kind = "xid79"
after_s = 0.5
[fault.right]
classes = ["gpu.off_bus"]
components = ["{gpu}"]
actions = ["shrink"]
"""
LIMIT_S = 60.0


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """Four nodes, three of them for the job."""
    text = DEFAULT.read_text()
    for large, small in SMALL.items():
        assert large in text
        text = text.replace(large, small)
    path = tmp_path / "cluster.toml"
    path.write_text(text)
    return path


@contextmanager
def simulating(
    server: Server, cluster: Path, folder: Path, *options: str
) -> Iterator[subprocess.Popen[str]]:
    """The command at work on that server's log."""
    where = ["--server", server.url, "--credentials", str(server.credentials_folder)]
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "nemesis.cli", "simulate", *where),
            *("--cluster", str(cluster), *options),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"NEMESIS_STATE_DIR": str(folder / "state")},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=LIMIT_S)


async def struck(process: subprocess.Popen[str], times: int) -> list[str]:
    """Components that broke, as the ledger tells."""
    assert process.stdout is not None
    found: list[str] = []
    while len(found) < times:
        line = await asyncio.to_thread(process.stdout.readline)
        assert line, process.communicate()[1]
        entry = json.loads(line.removeprefix("ledger "))
        if entry["type"] == "fault_injected":
            found.append(entry["culprit"])
    return found


async def jobs_of(log: Log) -> list[tuple[str, str]]:
    """What became of which job, in the order of the log."""
    found: list[tuple[str, str]] = []
    async for record in log.read_range(1, (await log.bounds()).last_seq):
        token = record.subject.split(".")[2]
        if token in ("job_submitted", "job_ended"):
            _, data = decode_conclusion(token, record.payload)
            assert isinstance(data, (JobSubmitted, JobEnded))
            found.append((token, data.job))
    return found


@pytest.mark.server
def test_each_simulation_has_a_job_of_its_own_ends_the_one_before_and_breaks_other_parts(
    tmp_path: Path, cluster: Path
) -> None:
    scenario = tmp_path / "mine.toml"
    scenario.write_text(FAULT)
    again = ("--scenario", str(scenario), "--every", "1")

    async def body(server: Server) -> None:
        async with await server.connect("reader") as log:
            with simulating(server, cluster, tmp_path, *again) as first:
                broken = await struck(first, 3)
                assert len(set(broken)) == 3
                first.send_signal(signal.SIGTERM)
                assert await asyncio.to_thread(first.wait, LIMIT_S) == 0
            assert await jobs_of(log) == [("job_submitted", "llama")]
            with simulating(server, cluster, tmp_path) as second:

                async def submitted() -> bool:
                    return len(await jobs_of(log)) == 3

                await until(submitted, "the second simulation submitted its job")
                second.send_signal(signal.SIGTERM)
                assert await asyncio.to_thread(second.wait, LIMIT_S) == 0
            assert (await jobs_of(log))[1:] == [
                ("job_ended", "llama"),
                ("job_submitted", "llama-2"),
            ]
            assert await log.last("nemesis.telemetry.n001.sample") is not None

    in_cell(tmp_path, body, roles=wire_roles(load_cluster(cluster)))


def test_a_simulation_without_the_seeds_of_its_nodes_says_how_to_make_them(tmp_path: Path) -> None:
    (tmp_path / "seeds").mkdir()
    refused = nemesis(
        *("simulate", "--server", "nats://127.0.0.1:9", "--credentials", str(tmp_path / "seeds")),
        NEMESIS_STATE_DIR=str(tmp_path),
    )
    assert refused.returncode != 0
    assert "no seed of operator, sim, node/n001 and more" in refused.stderr
    assert "nemesis credentials --nodes" in refused.stderr
