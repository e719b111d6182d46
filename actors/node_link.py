"""The wire of one node, real or simulated: its credential, its telemetry, its plans and reports.

The agent behind it never waits for the network: what it has to say is taken from it here. An agent
that (re)connects says how things stand and asks for its last plans until it is answered.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from nats.aio.msg import Msg

from nemesis.producers.origin import Stamp
from nemesis.schemas.errors import MalformedFactError
from nemesis.schemas.observed import Observation
from nemesis.schemas.plans import (
    Hello,
    Plan,
    PlanAnswer,
    Plans,
    Report,
    decode_message,
    encode_message,
    hello_subject,
    plan_subject,
    report_subject,
)
from nemesis.streams.connection import Connection, Login
from nemesis.streams.errors import LogUnavailableError
from nemesis.streams.log import Log
from nemesis.streams.publisher import Publisher
from nemesis.streams.side_by_side import background

RETRY_S: Final = 0.2
HELLO_RETRY_S: Final = 1.0
LEAVE_S: Final = 2.0
"""How long to try to have the last words delivered."""


class NodeAgent(Protocol):
    """What the link carries for."""

    reports: list[Report]
    is_cut_off: bool
    """Nothing of it may reach anybody."""

    @property
    def node(self) -> str:
        """Its name."""
        ...

    @property
    def boot_id(self) -> str:
        """Of the node."""
        ...

    @property
    def start_ns(self) -> int:
        """When this life of the agent began."""
        ...

    def stamp(self, kind: str, at_ns: int) -> Stamp:
        """What a fact of this node starts with."""
        ...

    def carried(self, now_ns: int) -> list[Observation]:
        """Take away what there is to send."""
        ...

    def follow(self, plan: Plan, now_ns: int) -> PlanAnswer:
        """Judge a plan, do what it says if it counts, and say how things stand."""
        ...

    def report_changes(self, now_ns: int, *, always: bool = False) -> None:
        """Report the ranks if something changed, or always."""
        ...


class Link:
    """Carries what an agent says and hears; `run` goes on until it is cancelled."""

    def __init__(
        self,
        agent: Callable[[], NodeAgent],
        *,
        url: str,
        login: Login,
        spool_path: Path,
        now_ns: Callable[[], int],
        farewell: Callable[[], Observation] | None = None,
    ) -> None:
        """`agent` gives the node's present agent, which may be started anew under the link;
        `farewell`: what is said last of all, where somebody ends it in order."""
        self._agent: Final = agent
        self._url: Final = url
        self._login: Final = login
        self._spool_path: Final = spool_path
        self._now_ns: Final = now_ns
        self._farewell: Final = farewell
        self._wake: Final = asyncio.Event()
        self._connection: Connection | None = None

    @property
    def connected(self) -> bool:
        """Whether the log can be reached now."""
        return self._connection is not None and self._connection.client.is_connected

    def wake(self) -> None:
        """The agent may have something to say."""
        self._wake.set()

    async def run(self) -> None:
        """Connect and carry, for ever."""
        connection = await self._connect()
        self._connection = connection
        publisher = Publisher(self._stamp, self._now_ns, self._spool_path)
        try:
            await connection.subscribe(plan_subject(self._agent().node), self._on_plan)
            async with background(publisher.run(Log(connection))):
                try:
                    async with asyncio.TaskGroup() as tasks:
                        tasks.create_task(self._take(connection, publisher))
                        tasks.create_task(self._greet(connection))
                except asyncio.CancelledError:
                    await self._take_leave(publisher)
                    raise
        finally:
            self._connection = None
            publisher.close()
            await connection.close()

    async def _take_leave(self, publisher: Publisher) -> None:
        if self._farewell is None:
            return
        for observation in (*self._agent().carried(self._now_ns()), self._farewell()):
            publisher.offer(observation)
        with suppress(TimeoutError):  # what is not delivered by then lies in the spool
            async with asyncio.timeout(LEAVE_S):
                await publisher.drained()

    def _stamp(self, kind: str, at_ns: int) -> Stamp:
        return self._agent().stamp(kind, at_ns)

    async def _connect(self) -> Connection:
        while True:
            try:
                return await Connection.open(self._url, self._login, name=self._login.user)
            except LogUnavailableError:
                await asyncio.sleep(RETRY_S)

    async def _take(self, connection: Connection, publisher: Publisher) -> None:
        """Carry away whatever the agent has to say, whenever it may have something."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            for observation in self._agent().carried(self._now_ns()):
                publisher.offer(observation)
            await self._send_reports(connection)

    async def _send_reports(self, connection: Connection) -> None:
        agent = self._agent()
        if agent.is_cut_off:
            return
        reports, agent.reports = agent.reports, []
        try:
            for report in reports:
                await connection.publish(report_subject(agent.node), encode_message(report))
        except LogUnavailableError:
            return  # the newest state is reported at the next connect

    async def _greet(self, connection: Connection) -> None:
        """At each connect: how things stand, and what is to be done."""
        again = asyncio.Event()
        connection.wakes.add(again)
        while True:
            agent = self._agent()
            agent.report_changes(self._now_ns(), always=True)
            self.wake()
            hello = Hello(node=agent.node, boot_id=agent.boot_id, start_ns=agent.start_ns)
            try:
                answer = await connection.request(
                    hello_subject(agent.node), encode_message(hello), timeout_s=HELLO_RETRY_S
                )
                for plan in decode_message(Plans, answer.data).plans:
                    self._agent().follow(plan, self._now_ns())
            except (LogUnavailableError, MalformedFactError):
                await asyncio.sleep(HELLO_RETRY_S)
                continue
            await again.wait()
            again.clear()

    async def _on_plan(self, msg: Msg) -> None:
        connection = self._connection
        if connection is None or self._agent().is_cut_off:
            return
        try:
            plan = decode_message(Plan, msg.data)
        except MalformedFactError:
            return  # the sender hears nothing and asks again; a wrong plan is never followed
        answer = self._agent().follow(plan, self._now_ns())
        try:
            await connection.publish(msg.reply, encode_message(answer))
        except LogUnavailableError:
            return  # it will be asked again, and answered as a repetition
