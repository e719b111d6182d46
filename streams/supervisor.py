"""Keeps child processes alive: what ends is started again, and nothing outlives the supervisor.

Copies end on purpose when something is wrong (crash-only); a supervisor makes that a recovery. A
child that ends quickly again and again waits longer each time, so that a poisoned input costs
three quick deaths and a broken installation no whole core.
"""

import asyncio
import logging
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from nemesis.streams.children import die_with_parent

WAIT_S_MIN: Final = 0.2
WAIT_S_MAX: Final = 10.0
LIVED_WELL_S: Final = 10.0
STOP_TIMEOUT_S: Final = 10.0

_log: Final = logging.getLogger(__name__)


class Supervisor:
    """`async with Supervisor({...}) as supervisor:` runs the commands until it leaves."""

    def __init__(
        self,
        commands: Mapping[str, Sequence[str]],
        *,
        folder: Path | None = None,
        wait_s_max: float = WAIT_S_MAX,
    ) -> None:
        """`commands`: name of a child -> its program and arguments; run in `folder`, else here."""
        self.restart_counts: Final = dict.fromkeys(commands, 0)
        self._commands: Final = dict(commands)
        self._folder: Final = folder
        self._wait_s_max: Final = wait_s_max
        self._children: Final[dict[str, asyncio.subprocess.Process]] = {}
        self._keepers: Final[list[asyncio.Task[None]]] = []

    async def __aenter__(self) -> "Supervisor":
        self._keepers.extend(asyncio.ensure_future(self._keep(name)) for name in self._commands)
        return self

    async def __aexit__(self, *_: object) -> None:
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)

    def pid(self, name: str) -> int | None:
        """The child's process id while it runs."""
        child = self._children.get(name)
        return child.pid if child and child.returncode is None else None

    async def _keep(self, name: str) -> None:
        loop = asyncio.get_running_loop()
        wait_s = WAIT_S_MIN
        while True:
            started = loop.time()
            code = await self._live(name)
            lived_s = loop.time() - started
            waited_s = wait_s
            wait_s = WAIT_S_MIN if lived_s > LIVED_WELL_S else min(2 * wait_s, self._wait_s_max)
            self.restart_counts[name] += 1
            if wait_s != waited_s or wait_s == WAIT_S_MIN:  # at the longest wait, said once
                _log.info(
                    "%s ended with %d after %.1f s, again in %.1f s", name, code, lived_s, wait_s
                )
            await asyncio.sleep(wait_s)

    async def _live(self, name: str) -> int:
        program, *arguments = self._commands[name]
        child = await asyncio.create_subprocess_exec(
            program,
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C reaches us, and we stop the child in order
            cwd=self._folder,
            preexec_fn=die_with_parent(),
        )
        self._children[name] = child
        try:
            return await child.wait()
        finally:
            await _stop(child)


async def _stop(child: asyncio.subprocess.Process) -> None:
    if child.returncode is not None:
        return
    child.send_signal(signal.SIGTERM)
    child.send_signal(signal.SIGCONT)  # one that was stopped must be able to end
    try:
        async with asyncio.timeout(STOP_TIMEOUT_S):
            await child.wait()
    except TimeoutError:
        child.kill()
        await child.wait()
