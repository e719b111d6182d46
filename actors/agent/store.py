"""The store process beside an agent: found again by the agent's next life, or started."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from nemesis.schemas.errors import NemesisError
from nemesis.streams.replacing import replace_file

READY_S: Final = 60.0
"""torch is imported meanwhile."""


class NoStoreError(NemesisError):
    """Groups have nowhere to meet."""


class Known(msgspec.Struct, kw_only=True, frozen=True):
    """A store as it stands in the agent's folder."""

    host: str
    port: int
    pid: int


class StoreBeside:
    """A store that serves."""

    def __init__(self, known: Known, child: subprocess.Popen[bytes] | None) -> None:
        self.address: Final = f"{known.host}:{known.port}"
        """As plans name it."""
        self._pid: Final = known.pid
        self._child: Final = child

    def end(self) -> None:
        """Serve no more."""
        with suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        if self._child is not None:
            self._child.wait()


async def open_store(
    folder: Path, *, host: str, python: str, environment: Mapping[str, str]
) -> StoreBeside:
    """The store of an earlier life where it still serves, else a new one.

    Raises:
        NoStoreError: it does not start.
    """
    path = folder / "store.json"
    if path.exists():
        known = msgspec.json.decode(path.read_bytes(), type=Known)
        with suppress(OSError):
            _, writer = await asyncio.open_connection(known.host, known.port)
            writer.close()
            return StoreBeside(known, None)
    child = await asyncio.to_thread(
        subprocess.Popen,
        [python, "-m", "nemesis.training.store", host, str(folder / "agent.lock")],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
        env=environment,
    )
    assert child.stdout is not None
    with child.stdout:
        async with asyncio.timeout(READY_S):
            said = await asyncio.to_thread(child.stdout.readline)
    if not said:
        raise NoStoreError(
            f"{python} -m nemesis.training.store ended with {child.wait()}",
            hint="it needs torch: pip install 'nemesis-gpu[train]'",
        )
    known = Known(host=host, port=int(said), pid=child.pid)
    replace_file(path, msgspec.json.encode(known))
    return StoreBeside(known, child)
