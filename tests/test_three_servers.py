"""A log on three servers, as `deploy/ha.env` sets them up: one is lost, and no record is."""

import asyncio
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from nemesis.streams import credentials
from nemesis.streams.connection import without_password
from nemesis.streams.contexts import Target
from nemesis.streams.errors import LogUnavailableError, PositionMovedError
from nemesis.streams.log import Log
from nemesis.streams.permissions import server_users
from nemesis.streams.provision import Limits, provision
from nemesis.streams.server import nats_server_program
from tests.cells import until
from tests.conftest import ROOT
from tests.replay_logs import Log as HandMade
from tests.test_dashboard_board import verdict

NAMES = ("nats", "nats-2", "nats-3")
ROLES = ("admin", "processor/attribution", "reader")


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


@pytest.mark.server
def test_a_lost_server_costs_no_record_and_stops_nobody_for_long(tmp_path: Path) -> None:
    paths, ports = configure(tmp_path)
    url = ",".join(f"nats://127.0.0.1:{port}" for port in ports)
    assert without_password(url) == url
    target = Target(url=url, credentials_folder=tmp_path / "seeds")

    async def body(servers: list[subprocess.Popen[bytes]]) -> None:
        async with await target.connect("admin", timeout_s=30) as admin:

            async def provisioned() -> bool:
                try:
                    made = await provision(
                        admin.connection, Limits(log_bytes=1 << 26, store_bytes=1 << 24, replicas=3)
                    )
                except LogUnavailableError:
                    return False  # the three have no leader yet
                return not made.drift

            await until(provisioned, "streams on three servers", every_s=0.2)
        async with await target.connect("processor/attribution") as log:
            before = await append(log, [f"before-{n}" for n in range(20)])
            spoken_to = log.connection.client.connected_url
            assert spoken_to is not None
            at = next(n for n, port in enumerate(ports) if spoken_to.port == port)
            servers[at].kill()
            after = await append(log, [f"after-{n}" for n in range(20)])
            stored = [r.seq async for r in log.read_range(1, 10**9, subject="nemesis.events.>")]
        assert stored == [*before, *after]
        assert stored == sorted(set(stored))

    with running(paths) as servers:
        asyncio.run(body(servers))
