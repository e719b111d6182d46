"""The wire of one switch collector: its own credential and its telemetry, nothing else."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

from nemesis.sim.telemetry.fabric import Collector
from nemesis.streams.connection import Connection, Login
from nemesis.streams.errors import LogUnavailableError
from nemesis.streams.log import Log
from nemesis.streams.publisher import Publisher

RETRY_S: Final = 0.2


class CollectorLink:
    """Carries what a collector polls; `run` goes on until it is cancelled."""

    def __init__(
        self,
        collector: Collector,
        *,
        url: str,
        seed_path: Path,
        spool_path: Path,
        now_ns: Callable[[], int],
    ) -> None:
        self._collector: Final = collector
        self._url: Final = url
        self._login: Final = Login(seed_path.stem, seed_path=seed_path)
        self._spool_path: Final = spool_path
        self._now_ns: Final = now_ns
        self._wake: Final = asyncio.Event()

    def wake(self) -> None:
        """The collector may have polled."""
        self._wake.set()

    async def run(self) -> None:
        """Connect and carry, for ever."""
        self._spool_path.parent.mkdir(parents=True, exist_ok=True)
        connection = await self._connect()
        stamp = self._collector.origin.stamp
        publisher = Publisher(stamp, self._now_ns, self._spool_path)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(publisher.run(Log(connection)))
                tasks.create_task(self._take(publisher))
        finally:
            publisher.close()
            await connection.close()

    async def _connect(self) -> Connection:
        while True:
            try:
                return await Connection.open(self._url, self._login, name=self._login.user)
            except LogUnavailableError:
                await asyncio.sleep(RETRY_S)

    async def _take(self, publisher: Publisher) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            for poll in self._collector.carried():
                publisher.offer(poll)
