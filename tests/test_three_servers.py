"""A log on three servers, as `deploy/ha.env` sets them up: one is lost, and no record is."""

import asyncio
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from subprocess import Popen

import msgspec
import pytest

from nemesis.processors.fold import Fold, Input
from nemesis.producers.origin import Origin
from nemesis.schemas.facts import Conclusion, Fact
from nemesis.schemas.observed import KernelLineLogged
from nemesis.streams import credentials
from nemesis.streams.connection import without_password
from nemesis.streams.contexts import Target
from nemesis.streams.errors import LogUnavailableError, PositionMovedError
from nemesis.streams.log import Log
from nemesis.streams.permissions import STREAM, server_users
from nemesis.streams.provision import Limits, provision
from nemesis.streams.publisher import Publisher
from nemesis.streams.server import nats_server_program
from tests.cells import until
from tests.conftest import ROOT
from tests.replay_logs import Counting
from tests.replay_logs import Log as HandMade
from tests.test_dashboard_board import verdict

NAMES = ("nats", "nats-2", "nats-3")
PRODUCERS = [f"n{at}" for at in range(1, 5)]
LINES = 1_000
"""Of each producer, in about three seconds; the server is killed after a third of them."""
ROLES = ["admin", "processor/attribution", "reader", *(f"producer/{each}" for each in PRODUCERS)]


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


def configure(folder: Path) -> tuple[list[Path], list[int]]:
    """The shipped configuration, once a server, on ports of this machine."""
    ports = free_ports(9)
    clients, routes, pages = ports[:3], ports[3:6], ports[6:]
    cluster = subprocess.run(
        ["sh", ROOT / "deploy/cluster.sh", *NAMES], capture_output=True, text=True, check=True
    ).stdout
    for name, port in zip(NAMES, routes, strict=True):
        cluster = cluster.replace(f"@{name}:6222", f"@127.0.0.1:{port}")
    keys = credentials.ensure(folder / "seeds", ROLES)
    users = msgspec.json.encode(server_users(keys)).decode()
    (folder / "authorization.conf").write_text(f"authorization {{ users: {users} }}\n")
    paths = []
    for at, name in enumerate(NAMES):
        text = (ROOT / "deploy/nats-ha.conf").read_text()
        (folder / f"{name}-cluster.conf").write_text(
            cluster.replace("0.0.0.0:6222", f"127.0.0.1:{routes[at]}")
        )
        for shipped, here in (
            ("$NEMESIS_SERVER_NAME", name),
            ("0.0.0.0:4222", f"127.0.0.1:{clients[at]}"),
            ("0.0.0.0:8222", f"127.0.0.1:{pages[at]}"),
            ("websocket { listen: 0.0.0.0:9222, no_tls: true, same_origin: true }", ""),
            ("store_dir: /log", f"store_dir: {folder / name}"),
            ("../../seeds/nats/cluster.conf", f"{name}-cluster.conf"),
            ("../../seeds/nats/authorization.conf", "authorization.conf"),
        ):
            assert shipped in text
            text = text.replace(shipped, here)
        paths.append(folder / f"{name}.conf")
        paths[-1].write_text(text)
    return paths, clients


@contextmanager
def running(paths: list[Path]) -> Iterator[list[subprocess.Popen[bytes]]]:
    servers = [
        subprocess.Popen(
            [nats_server_program(), "-c", path, "-l", path.with_suffix(".log")],
        )
        for path in paths
    ]
    try:
        yield servers
    finally:
        for server in servers:
            server.kill()
            server.wait()


async def append(log: Log, names: list[str]) -> list[int]:
    """Write a verdict on each, until it is known to be stored; their sequences."""
    made = HandMade()
    return [await stored_at(log, made, name) for name in names]


async def stored_at(log: Log, made: HandMade, name: str) -> int:
    made.event(verdict(name), key=name)
    subject, payload = made.records[-1].subject, made.records[-1].payload
    while True:
        try:
            return await log.publish(subject, payload, expected_last_subject_seq=0, timeout_s=1.0)
        except LogUnavailableError:
            await asyncio.sleep(0.05)  # the outcome is unknown: the same again
        except PositionMovedError:
            found = await log.last(subject)
            assert found is not None
            return found.seq


class Heard(Counting):
    """What a processor is shown, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[str, list[str]] = {}

    def step(self, fact: Fact) -> Sequence[Conclusion]:
        self.lines.setdefault(fact.key, []).append(fact.data.text)
        return ()


@asynccontextmanager
async def cell(folder: Path) -> AsyncIterator[tuple[Target, list[int], list[Popen[bytes]]]]:
    """Streams on three servers: how to reach them, their ports, their processes."""
    paths, ports = configure(folder)
    url = ",".join(f"nats://127.0.0.1:{port}" for port in ports)
    target = Target(url=url, credentials_folder=folder / "seeds")
    with running(paths) as servers:
        async with await target.connect("admin", timeout_s=30) as admin:

            async def provisioned() -> bool:
                try:
                    limits = Limits(log_bytes=1 << 26, store_bytes=1 << 24, replicas=3)
                    made = await provision(admin.connection, limits)
                except LogUnavailableError:
                    return False  # the three have no leader yet
                return not made.drift

            await until(provisioned, "streams on three servers", every_s=0.2)
        yield target, ports, servers


def server_of(log: Log, ports: list[int], servers: list[Popen[bytes]]) -> Popen[bytes]:
    """The one that a client speaks to."""
    spoken_to = log.connection.client.connected_url
    assert spoken_to is not None
    return servers[next(at for at, port in enumerate(ports) if spoken_to.port == port)]


@pytest.mark.server
def test_a_lost_server_costs_no_record_and_stops_nobody_for_long(tmp_path: Path) -> None:
    async def body() -> None:
        async with cell(tmp_path) as (target, ports, servers):
            assert without_password(target.url) == target.url
            async with await target.connect("processor/attribution") as log:
                before = await append(log, [f"before-{n}" for n in range(20)])
                server_of(log, ports, servers).kill()
                after = await append(log, [f"after-{n}" for n in range(20)])
                stored = [r.seq async for r in log.read_range(1, 10**9, subject="nemesis.events.>")]
            assert stored == [*before, *after]
            assert stored == sorted(set(stored))

    asyncio.run(body())


async def leader_of(target: Target, servers: list[Popen[bytes]]) -> Popen[bytes]:
    """The one that writes the log first; the others copy it."""
    async with await target.connect("admin") as admin:
        answer = await admin.connection.request(f"$JS.API.STREAM.INFO.{STREAM}", b"")
    return servers[NAMES.index(msgspec.json.decode(answer.data)["cluster"]["leader"])]


async def tell(target: Target, node: str, spool: Path, loaded: asyncio.Event) -> None:
    """One node's producer: four lines each 10 ms, until the log has them all."""
    async with await target.connect(f"producer/{node}") as log:
        origin = Origin(node, start_ns=time.time_ns())
        publisher = Publisher(origin.stamp, time.time_ns, spool / node)
        carrying = asyncio.ensure_future(publisher.run(log))
        for n in range(LINES):
            stamp = origin.stamp("kernel", time.time_ns())
            publisher.offer(KernelLineLogged(**stamp, text=f"line {n}"))
            if n == LINES // 3:
                loaded.set()
            if n % 4 == 3:
                await asyncio.sleep(0.01)
        await publisher.drained()
        carrying.cancel()
        await asyncio.gather(carrying, return_exceptions=True)
        publisher.close()
        assert publisher.dropped_count == 0


@pytest.mark.server
def test_a_server_lost_under_load_costs_no_line_of_any_producer(tmp_path: Path) -> None:
    async def body() -> None:
        async with cell(tmp_path) as (target, _, servers):
            leader = await leader_of(target, servers)
            loaded = asyncio.Event()
            async with asyncio.TaskGroup() as tasks:
                for node in PRODUCERS:
                    tasks.create_task(tell(target, node, tmp_path, loaded))
                await loaded.wait()
                leader.kill()
            async with await target.connect("reader") as log:
                heard = Heard()
                fold = Fold(heard)
                async for record in log.read_range(1, 10**9, subject="nemesis.telemetry.>"):
                    fold.step(Input(record))
        told = [f"line {n}" for n in range(LINES)]
        assert heard.lines == dict.fromkeys(PRODUCERS, told)

    asyncio.run(body())
