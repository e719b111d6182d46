"""A server, traffic, and copies of test processors behind proxies: where real faults happen."""

import asyncio
import os
import random
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from nemesis.schemas.facts import Record
from nemesis.streams.batch import Message
from nemesis.streams.errors import LogFullError, LogUnavailableError
from nemesis.streams.log import Log
from nemesis.streams.provision import Limits
from nemesis.streams.status import CopyStatus, read_status
from nemesis.streams.supervisor import Supervisor
from tests.faults import traffic
from tests.faults.oracle import judge
from tests.faults.processors import CATALOGUE
from tests.faults.proxy import Proxy
from tests.faults.real_server import RealServer

WAIT_S = 180.0
ROOT = Path(__file__).parent.parent.parent


class Stage:
    """What a fault test plays on."""

    def __init__(self, folder: Path, server: RealServer, log: Log) -> None:
        self.folder = folder
        self.server = server
        self.log = log
        self.proxies: dict[str, Proxy] = {}
        self.supervisor: Supervisor | None = None
        self._numbers: dict[tuple[str, int], int] = {}
        self._second = 0
        self._lines_count = 0
        self._dice = random.Random(7)
        self._pumping: asyncio.Task[None] | None = None
        self._flowing = False
        self.ticking = True

    def copies_folder(self, copy: str) -> Path:
        return self.folder / "copies" / copy

    async def write(self, *messages: Message) -> None:
        """Until the log has them, as a producer does: in order, the same again after no answer."""
        for message in messages:
            while True:
                try:
                    await self.log.publish(message.subject, message.payload)
                    break
                except (LogUnavailableError, LogFullError):
                    await asyncio.sleep(0.05)

    async def line(self, text: str, *, node: str = "n001", start_ns: int = 1) -> None:
        """One kernel line."""
        n = self._numbers[node, start_ns] = self._numbers.get((node, start_ns), 0) + 1
        await self.write(traffic.line(n, text, node=node, start_ns=start_ns, at_s=self._second))

    async def fill_up(self) -> None:
        """Kernel lines, large ones and then small ones, until the log takes no more."""
        for text in ("x" * 20_000, "x" * 1_000, "x"):
            with suppress(LogFullError):
                while True:
                    n = self._numbers["n001", 1] + 1
                    message = traffic.line(n, text, at_s=self._second)
                    await self.log.publish(message.subject, message.payload)
                    self._numbers["n001", 1] = n

    async def tick(self) -> None:
        """A second has passed."""
        self._second += 1
        await self.write(traffic.tick(self._second))

    async def lines(self, count: int) -> None:
        """Ordinary traffic of three nodes, with a tick after every twenty lines."""
        for _ in range(count):
            self._lines_count += 1
            text = self._dice.choice(["ok", "ok", "fault", "cured", "burst 3"])
            await self.line(text, node=f"n{self._dice.randrange(3):03}")
            if self._lines_count % 20 == 0 and self.ticking:
                await self.tick()

    @asynccontextmanager
    async def traffic(self) -> AsyncIterator[None]:
        """Ordinary traffic at about 200 lines a second until this or `settle` ends it."""

        async def pump() -> None:
            while self._flowing:
                await self.lines(5)
                await asyncio.sleep(0.025)

        self._flowing = True
        self._pumping = pumping = asyncio.ensure_future(pump())
        try:
            yield
        except BaseException:
            pumping.cancel()  # the log may be gone
            raise
        await self.quiet()

    async def quiet(self) -> None:
        """No more ordinary traffic: nothing of it is under way either."""
        self._flowing = False
        if self._pumping is not None:
            await self._pumping
            self._pumping = None

    @asynccontextmanager
    async def copies(self, *names: str) -> AsyncIterator[None]:
        """Copies of both processors, each a process behind a proxy of its own, supervised."""
        commands = {}
        for name in names:
            proxy = self.proxies[name] = Proxy(lambda: self.server.port)
            await proxy.start()
            folder = str(self.copies_folder(name))
            commands[name] = [
                sys.executable, "-m", "tests.faults.copy", proxy.url, folder, *CATALOGUE,
            ]  # fmt: skip
        try:
            async with Supervisor(commands, folder=ROOT, wait_s_max=0.3) as self.supervisor:
                yield
        finally:
            for proxy in self.proxies.values():
                await proxy.stop()

    def signal(self, copy: str, number: signal.Signals) -> None:
        """Send a signal to a copy that runs, and none to one that has just ended."""
        assert self.supervisor is not None
        pid = self.supervisor.pid(copy)
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def ends_count(self, copy: str) -> int:
        """How often a copy's process ended."""
        assert self.supervisor is not None
        return self.supervisor.restart_counts[copy]

    def status(self, copy: str) -> list[CopyStatus]:
        """What the copy says of itself, of the versions that are not waiting."""
        return [s for s in read_status(self.copies_folder(copy)) if s.stage != "waiting"]

    async def records(self) -> list[Record]:
        """The whole log."""
        last_seq = (await self.log.bounds()).last_seq
        return [record async for record in self.log.read_range(1, last_seq)]

    async def settle(self) -> list[Record]:
        """Wait until every copy has read all that there is and every input is answered; judge."""
        await self.quiet()
        records: list[Record] = []

        async def answered() -> bool:
            nonlocal records
            records = await self._answered_records()
            return bool(records)

        await self.until(answered)
        judge(records, CATALOGUE)
        return records

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        """Wait for a condition."""
        async with asyncio.timeout(WAIT_S):
            while not await holds():  # noqa: ASYNC110  # what it waits for is in other processes
                await asyncio.sleep(0.1)

    async def _answered_records(self) -> list[Record]:
        """The log, if every copy has answered all of it, else nothing.

        Judged at the last record that is not a position: copies write no others at rest. What the
        copies say is older than what is read of the log, so an answer they speak of is in it.
        """
        told = {copy: self.status(copy) for copy in self.proxies}
        try:
            records = await self.records()
        except LogUnavailableError:
            return []
        end = max(r.seq for r in records if not r.subject.startswith("nemesis.cursor."))
        last = records[-1].seq  # one that read further has not noticed that the log is shorter
        for statuses in told.values():
            if {status.name for status in statuses} != set(CATALOGUE):
                return []
            if any(not end <= min(s.in_seq, s.read_seq) <= last for s in statuses):
                return []
        return records


@asynccontextmanager
async def stage(folder: Path, *, limits: Limits | None = None) -> AsyncIterator[Stage]:
    """A server with a log in which both processors are activated."""
    server = RealServer(folder / "server", limits)
    (folder / "server").mkdir(parents=True)
    await server.start()
    try:
        async with await server.connect() as log:
            made = Stage(folder, server, log)
            await made.tick()
            await made.write(traffic.activation("counting", 1), traffic.activation("echoing", 1))
            yield made
    finally:
        await server.stop()
