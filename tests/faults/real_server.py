"""A real nats-server that may be killed, and whose store may come back older than it was."""

import asyncio
import json
import os
import shutil
import signal
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

from nemesis.streams.children import die_with_parent
from nemesis.streams.log import Log, connect
from nemesis.streams.permissions import STREAM
from nemesis.streams.provision import Limits, provision, wanted_streams
from nemesis.streams.server import nats_server_program

_HEADER = struct.Struct("<IQQH")
"""Length, sequence, time and length of the subject (nats-server, server/filestore.go)."""


class RealServer:
    """One server without users: faults are the subject here, not permissions."""

    def __init__(self, folder: Path, limits: Limits | None = None) -> None:
        self.port = -1
        self.kills = 0
        self._folder = folder
        self._limits = limits or Limits()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    async def start(self) -> None:
        await self._launch()
        async with await self.connect() as log:
            await provision(log.connection, self._limits)

    async def connect(self, name: str = "test") -> Log:
        return await connect(self.url, name=name, timeout_s=30)

    async def kill_and_restart(self) -> None:
        """SIGKILL, then the same port and store."""
        self.kills += 1
        await self._end(signal.SIGKILL)
        await self._launch()

    async def stop(self) -> None:
        await self._end(signal.SIGTERM)

    async def raise_limit(self, log_bytes: int) -> None:
        """As a person does who finds the log full."""
        [wanted] = [each for each in wanted_streams(self._limits) if each["name"] == STREAM]
        wanted["max_bytes"] = log_bytes
        async with await self.connect() as log:
            answer = await log.connection.request(
                f"$JS.API.STREAM.UPDATE.{STREAM}", json.dumps(wanted).encode()
            )
        assert "error" not in json.loads(answer.data), answer.data

    async def save_store(self, name: str) -> None:
        """A copy of the store as a backup would have it."""
        await self._end(signal.SIGTERM)
        shutil.copytree(self._folder / "store", self._folder / name)
        await self._launch()

    async def restore_store(self, name: str) -> None:
        """Come back with an older store, as after a power cut that lost what was not synced."""
        await self._end(signal.SIGKILL)
        shutil.rmtree(self._folder / "store")
        shutil.copytree(self._folder / name, self._folder / "store")
        await self._launch()

    async def tear_store(self, lost_min: int) -> int:
        """Come back without the last messages, the store ending inside a batch; how many are lost.

        At least `lost_min` are.
        """
        await self._end(signal.SIGKILL)
        messages = self._folder / "store" / "jetstream" / "$G" / "streams" / STREAM / "msgs"
        block = max(messages.glob("*.blk"), key=lambda path: int(path.stem))
        stored = list(_stored(block.read_bytes()))
        for at in range(len(stored) - lost_min, 0, -1):
            end, subject = stored[at - 1]
            if (
                subject.startswith(b"nemesis.events.note_added.")
                and b".telemetry." not in stored[at][1]
            ):
                os.truncate(block, end)
                break
        else:
            raise AssertionError("no batch in the last block")
        (messages / "index.db").unlink(missing_ok=True)  # it is made anew from what is there
        await self._launch()
        return len(stored) - at

    async def _launch(self) -> None:
        ports = self._folder / "ports"
        shutil.rmtree(ports, ignore_errors=True)
        ports.mkdir(parents=True)
        config = self._folder / "server.conf"
        config.write_text(
            json.dumps(
                {
                    "listen": f"127.0.0.1:{self.port}",
                    "ports_file_dir": str(ports),
                    "log_file": str(self._folder / "server.log"),
                    "jetstream": {
                        "store_dir": str(self._folder / "store"),
                        "sync_interval": "always",
                    },
                }
            )
        )
        self._process = subprocess.Popen(  # noqa: ASYNC220  # a fork, over in milliseconds
            [str(nats_server_program()), "-c", str(config)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=die_with_parent(),  # noqa: PLW1509
        )
        async with asyncio.timeout(30):
            while True:
                for path in ports.glob("*.ports"):
                    text = path.read_text()
                    if text.rstrip().endswith("}"):
                        self.port = int(json.loads(text)["nats"][0].rpartition(":")[2])
                        return
                assert self._process.poll() is None, (self._folder / "server.log").read_text()
                await asyncio.sleep(0.02)

    async def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            await asyncio.to_thread(self._process.wait)
            self._process = None


def _stored(block: bytes) -> Iterator[tuple[int, bytes]]:
    """(end, subject) of each message in a block of the store."""
    at = 0
    while at + _HEADER.size <= len(block):
        length, _, _, subject_length = _HEADER.unpack_from(block, at)
        subject_at = at + _HEADER.size
        at += length & ~(1 << 31)  # the highest bit says that there are headers
        yield at, block[subject_at : subject_at + subject_length]
