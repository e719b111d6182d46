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
from nemesis.training.store import EMPTY

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

    def empty(self) -> None:
        """Forget what groups have left in it."""
        with suppress(ProcessLookupError):
            os.kill(self._pid, EMPTY)

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
    await asyncio.to_thread(expect_torch, python)
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
            hint="what it printed above says why",
        )
    known = Known(host=host, port=int(said), pid=child.pid)
    replace_file(path, msgspec.json.encode(known))
    return StoreBeside(known, child)


def expect_torch(python: str) -> None:
    """An interpreter for ranks must have torch; asked without importing it, which takes seconds.

    Raises:
        NoStoreError: it has none, or is none.
    """
    asked = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    try:
        code = subprocess.run(
            [python, "-c", asked], stdin=subprocess.DEVNULL, capture_output=True, check=False
        ).returncode
    except OSError as error:
        raise NoStoreError(
            f"cannot start {python}: {error.strerror}",
            hint="PYTHON_EXEC names the interpreter of the ranks",
        ) from error
    if code:
        raise NoStoreError(
            f"{python} has no torch",
            hint="pip install 'nemesis-gpu[train]', or name another interpreter with PYTHON_EXEC",
        )
