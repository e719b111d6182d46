"""The collector of one switch at work: takes JSON lines from a file or a socket, tells its ports.

It has the switch's name and a credential of its own, which may tell of switches and nothing else.
While no line comes nothing is told: a feed that died is no switch that is well.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import msgspec

from nemesis.producers.fabric import fabric_inventory_of, fabric_of
from nemesis.producers.origin import Origin
from nemesis.producers.switch.ports import Ports
from nemesis.producers.tail import LINE_BYTES_MAX, Tail
from nemesis.schemas.errors import NemesisError
from nemesis.schemas.observed import PortDescribed, Tier, Transport
from nemesis.streams.alone import alone, alone_as
from nemesis.streams.contexts import Target
from nemesis.streams.log import Log
from nemesis.streams.publisher import Publisher
from nemesis.streams.side_by_side import background

PERIOD_S: Final = 5.0
LOOK_S: Final = 0.2
PORTS_A_FACT: Final = 128  # of a port in full 300 bytes, and a fact has 64 KiB
LINES_MAX: Final = 10_000
"""Of one connection between two breaths; more wait in its socket."""


class CollectorRunningError(NemesisError):
    """Two collectors would tell everything of a switch twice."""

    exit_code = 4


class About(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What no counter tells of a switch."""

    tier: Tier = ""
    transport: Transport = ""
    ports: dict[str, str] = {}
    """A port's name to what is plugged in: `nic/n012/mlx5_3`, `port/spine01/Ethernet4`."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Which switch, and where its lines come from."""

    switch: str
    state: Path
    file: Path | None = None
    socket: Path | None = None
    about: About = About()
    period_s: float = PERIOD_S


def about_in(path: Path) -> About:
    """What a JSON file tells.

    Raises:
        NemesisError: it cannot be read, or is none.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=About)
    except (OSError, msgspec.DecodeError) as error:
        hint = 'like {"tier": "leaf", "transport": "roce", "ports": {"Ethernet0": "nic/n1/mlx5_0"}}'
        raise NemesisError(f"{path}: {error}", hint=hint) from error


class Collector:
    """Runs until it is cancelled."""

    def __init__(
        self,
        settings: Settings,
        target: Target,
        on_unknown: Callable[[int], None] = lambda count: None,
    ) -> None:
        """`on_unknown` hears, once, that lines told nothing, and how many."""
        self._settings: Final = settings
        self._target: Final = target
        self._on_unknown: Final = on_unknown
        self._origin: Final = Origin(settings.switch, start_ns=time.time_ns())
        self._ports: Final = Ports(settings.switch, settings.about.ports)
        self._role: Final = f"collector/{settings.switch}"
        self._log: Log | None = None
        self._open: Final[list[asyncio.StreamWriter]] = []

    def is_connected(self) -> bool:
        """Whether the log is reached now."""
        return self._log is not None and self._log.is_connected()

    async def run(self) -> None:
        """Collect and tell.

        Raises:
            CollectorRunningError: this switch has a collector.
            NemesisError: the socket cannot be made.
            WrongCredentialsError: the server does not know us.
        """
        state, switch = self._settings.state, self._settings.switch
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        with ExitStack() as held:
            says = f"a collector of {switch} keeps its state in {state} already"
            held.enter_context(alone(state / "lock", _second(says)))
            says = f"a collector of {switch} runs on this machine already"
            held.enter_context(alone_as(self._target.login(self._role), _second(says)))
            publisher = Publisher(self._origin.stamp, time.time_ns, state / "spool")
            try:
                async with background(self._carry(publisher), self._take_lines()):
                    await self._tell(publisher)
            finally:
                publisher.close()

    async def _carry(self, publisher: Publisher) -> None:
        self._log = log = await self._target.reach(self._role)
        try:
            await publisher.run(log)
        finally:
            await log.close()

    async def _tell(self, publisher: Publisher) -> None:
        switch, said = f"switch/{self._settings.switch}", False
        about = self._settings.about
        if about != About():
            publisher.offer(
                fabric_inventory_of(
                    self._origin,
                    time.time_ns(),
                    switch=switch,
                    tier=about.tier,
                    transport=about.transport,
                    ports=_described(self._settings.switch, about.ports),
                )
            )
        while True:
            await asyncio.sleep(self._settings.period_s)
            ports, now_ns = self._ports.poll(), time.time_ns()
            for first in range(0, len(ports), PORTS_A_FACT):
                some = ports[first : first + PORTS_A_FACT]
                publisher.offer(fabric_of(self._origin, now_ns, switch=switch, ports=some))
            if self._ports.unknown_count and not said:
                said = True
                self._on_unknown(self._ports.unknown_count)

    async def _take_lines(self) -> None:
        if self._settings.file is not None:
            await self._follow(Tail(self._settings.file))
        elif self._settings.socket is not None:
            await self._listen(self._settings.socket)

    async def _follow(self, tail: Tail) -> None:
        try:
            while True:
                for line in tail.read():
                    self._ports.take(line)
                await asyncio.sleep(LOOK_S)
        finally:
            tail.close()

    async def _listen(self, path: Path) -> None:
        _make_room(path)
        try:
            server = await asyncio.start_unix_server(self._hear, path, limit=LINE_BYTES_MAX)
        except OSError as error:
            raise NemesisError(f"cannot listen on {path}: {error.strerror}") from error
        _open_to_group(path)
        try:
            await asyncio.Event().wait()
        finally:
            server.close()
            for each in self._open:  # or from Python 3.12 on the end waits for who is connected
                each.close()

    async def _hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        count = 0
        self._open.append(writer)
        try:
            while line := await reader.readline():
                self._ports.take(line)
                count += 1
                if count % LINES_MAX == 0:
                    await asyncio.sleep(0)
        except (OSError, ValueError):
            self._ports.unknown_count += 1  # a line that is too long: nothing behind it is whole
        finally:
            self._open.remove(writer)
            writer.close()


def _second(says: str) -> CollectorRunningError:
    return CollectorRunningError(says, hint="one collector a switch: end the other one, or this")


def _make_room(path: Path) -> None:
    """Remove the socket of an earlier life: who is alone here may take its place."""
    with suppress(OSError):
        if path.is_socket():
            path.unlink()


def _open_to_group(path: Path) -> None:
    path.chmod(0o660)


def _described(switch: str, peers: Mapping[str, str]) -> list[PortDescribed]:
    return [
        PortDescribed(port=f"port/{switch}/{name}", peer=peer)
        for name, peer in sorted(peers.items())
    ]
