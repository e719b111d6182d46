"""Promises of `nemesis process`: conclusions are written, and nothing is left behind."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from nemesis.schemas.facts import encode_conclusion, telemetry_subject
from nemesis.schemas.operated import ProcessorActivated
from nemesis.streams.log import Log
from nemesis.streams.server import Server, state_folder
from nemesis.streams.status import copies_folder, read_status

pytestmark = pytest.mark.server


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await holds():  # noqa: ASYNC110  # what it waits for is in other processes
            await asyncio.sleep(0.05)


async def activate(log: Log, name: str) -> None:
    data = ProcessorActivated(at_ns=1, by="test", reason="test", name=name, version=1)
    await log.publish(
        *encode_conclusion(id=f"operator/{name}", source="/operator", at_ns=1, data=data, key=name)
    )


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize(
    ("end", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 0), (signal.SIGKILL, -9)]
)
def test_a_run_writes_conclusions_and_leaves_no_process_however_it_ends(
    end: signal.Signals, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEMESIS_STATE_DIR", str(tmp_path))

    async def main() -> None:
        async with Server("cell", roles=["node/n001"]) as server:
            run = subprocess.Popen(  # noqa: ASYNC220
                [sys.executable, "-m", "nemesis.cli", "process", "intake", "--cell", "cell"],
                stderr=subprocess.DEVNULL,
            )
            try:
                async with (
                    await server.connect("operator") as operator,
                    await server.connect("node/n001") as node,
                    await server.connect("reader") as reader,
                ):
                    await activate(operator, "intake")
                    await node.publish(telemetry_subject("n001", "kernel"), b"not msgpack")

                    async def rejected() -> bool:
                        return await reader.last("nemesis.events.input_rejected.n001") is not None

                    await until(rejected)

                async def told() -> bool:
                    return read_status(copies_folder(state_folder("cell"))) != []

                await until(told)
                copies = read_status(copies_folder(state_folder("cell")))
                assert [copy.name for copy in copies] == ["intake"]
                run.send_signal(end)
                assert await asyncio.to_thread(run.wait, 30) == status

                async def gone() -> bool:
                    return not any(alive(copy.pid) for copy in copies)

                await until(gone)
                if end != signal.SIGKILL:  # who ended in order is not dead, it is no more
                    assert read_status(copies_folder(state_folder("cell"))) == []
            finally:
                run.kill()
                run.wait()

    asyncio.run(main())
