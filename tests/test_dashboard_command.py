"""Promises of `nemesis dashboard`: it says where the page is, serves it, and ends in order."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest

from nemesis.streams.server import Server
from tests.cells import in_cell

RECORDING = Path(__file__).parent / "recordings" / "rank-exit.ndjson.zst"
LIMIT_S = 60.0


@contextmanager
def dashboard(*options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command, and the address that it says."""
    process = subprocess.Popen(
        [sys.executable, "-m", "nemesis.cli", "dashboard", "--port", "0", "--json", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        yield process, json.loads(line)["url"]
    finally:
        process.kill()
        process.communicate(timeout=LIMIT_S)


async def fetched(url: str) -> str:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        assert answer.status == 200
        return await answer.text()


def test_the_page_of_a_recording_needs_no_log_and_its_port_is_nobody_elses() -> None:
    with dashboard("--recording", str(RECORDING)) as (process, url):
        address = urlsplit(url)
        assert address.query.startswith("replay=")
        assert "<title>" in asyncio.run(fetched(url))
        second = subprocess.run(
            [sys.executable, "-m", "nemesis.cli", "dashboard", "--recording", str(RECORDING),
             "--port", str(address.port)],
            capture_output=True, text=True, timeout=LIMIT_S, check=False,
        )  # fmt: skip
        assert second.returncode not in (0, 130)
        assert f"cannot listen on 127.0.0.1 port {address.port}" in second.stderr
        assert "Traceback" not in second.stderr
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT_S) == 130


@pytest.mark.server
def test_the_page_of_a_log_is_served_until_it_is_told_to_end(tmp_path: Path) -> None:
    async def body(server: Server) -> None:
        where = ["--server", server.url, "--credentials", str(server.credentials_folder)]

        def look() -> None:
            with dashboard(*where) as (process, url):
                assert "<title>" in asyncio.run(fetched(url))
                process.send_signal(signal.SIGTERM)
                assert process.wait(LIMIT_S) == 0

        await asyncio.to_thread(look)

    in_cell(tmp_path, body)
