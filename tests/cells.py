"""A cell of its own for a test: a real server, started and stopped around it."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from nemesis.streams.connection import Connection
from nemesis.streams.log import Log
from nemesis.streams.provision import Limits
from nemesis.streams.server import Server

NODES = ("node/n001", "node/n002")
PATIENCE_S = 30.0


def in_cell(
    folder: Path,
    body: Callable[[Server], Awaitable[None]],
    *,
    roles: Iterable[str] = NODES,
    limits: Limits | None = None,
) -> None:
    """Run a coroutine against a server of its own."""

    async def run() -> None:
        async with Server("test", folder=folder / "cell", roles=roles, limits=limits) as server:
            await body(server)

    asyncio.run(run())


async def until(
    holds: Callable[[], bool] | Callable[[], Awaitable[bool]], what: str, *, every_s: float = 0.02
) -> None:
    """Wait until a condition holds; fail after PATIENCE_S."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PATIENCE_S
    while True:
        answer = holds()
        if answer is True or (not isinstance(answer, bool) and await answer):
            return
        assert loop.time() < deadline, f"not within {PATIENCE_S:g} s: {what}"
        await asyncio.sleep(every_s)


async def back(log: Log) -> None:
    """Wait until a log answers again."""

    async def answers() -> bool:
        return log.connection.client.is_connected

    await until(answers, "the connection is back")
    await log.bounds()


async def publish_for_ever(log: Log, subject: str, payload: bytes, *, ttl_s: int = 3600) -> None:
    """Until the log refuses."""
    while True:
        await log.publish(subject, payload, ttl_s=ttl_s, timeout_s=1.0)


def write_for_ever(path: Path) -> None:
    """Until the disk refuses."""
    with path.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 512)


async def as_admin(server: Server) -> Connection:
    """A connection that may create streams."""
    return (await server.connect("admin")).connection
