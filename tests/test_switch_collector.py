"""JSON lines of a switch become the facts that the simulator's switches publish."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from nemesis.producers.switch.collector import (
    About,
    Collector,
    CollectorRunningError,
    Settings,
    about_in,
)
from nemesis.producers.switch.ports import Ports
from nemesis.schemas.errors import NemesisError
from nemesis.schemas.facts import decode_observation
from nemesis.schemas.observed import FabricInventoryReported, FabricSampled, Observation
from nemesis.streams import credentials
from nemesis.streams.contexts import Target
from nemesis.streams.server import Server
from tests.cells import in_cell, until
from tests.commands import nemesis

SONIC = {
    "COUNTERS": {
        "Ethernet0": {
            "SAI_PORT_STAT_IF_OUT_DISCARDS": "5",
            "SAI_PORT_STAT_PFC_3_RX_PAUSE_DURATION_US": "1200",
            "SAI_PORT_STAT_PFC_4_TX_PAUSE_DURATION_US": "7",
            "SAI_PORT_STAT_IF_IN_FEC_NOT_CORRECTABLE_FRAMES": "2",
        },
        "Ethernet4": {"SAI_PORT_STAT_IF_IN_DISCARDS": "1"},
    }
}


def event(name: str, path: str, value: object) -> bytes:
    """As gnmic prints an event."""
    one = {
        "name": "s",
        "timestamp": 1,
        "tags": {"source": "10.0.0.5:9339", "interface_name": name},
        "values": {path: value},
    }
    return msgspec.json.encode([one])


def oper_status(name: str, status: str) -> bytes:
    return event(name, "/interfaces/interface/state/oper-status", status)


def test_counters_come_by_the_names_of_every_switch() -> None:
    ports = Ports("leaf03", {"Ethernet0": "nic/n1/mlx5_0"})
    ports.take(msgspec.json.encode(SONIC))
    counted = "/interfaces/interface/state/counters/in-fcs-errors"
    ports.take(event("swp1", counted, "9"))
    first, second, third = ports.poll()
    assert (first.port, first.peer) == ("port/leaf03/Ethernet0", "nic/n1/mlx5_0")
    assert (first.discard_count, first.fec_uncorrectable_count) == (5, 2)
    assert (first.rx_pause_us, first.rx_pause_us_by_priority[3], first.tx_pause_us) == (
        1200,
        1200,
        7,
    )
    assert (second.port, second.in_discard_count) == ("port/leaf03/Ethernet4", 1)
    assert (third.port, third.crc_error_count) == ("port/leaf03/swp1", 9)
    assert ports.poll() == []  # nobody told of any since


def test_a_port_that_goes_down_is_down_and_counted_and_keeps_what_it_counted() -> None:
    ports = Ports("leaf03", {})
    ports.take(msgspec.json.encode(SONIC))
    for status in ("DOWN", "DOWN", "UP", "DOWN"):
        ports.take(oper_status("Ethernet0", status))
    port = ports.poll()[0]
    assert (port.up, port.link_downed_count, port.discard_count) == (False, 2, 5)


@pytest.mark.parametrize("line", [b"{", b"7", b'{"a": 1}', b'[{"values": 1, "tags": 2}]', b"\xff"])
def test_a_line_that_tells_of_no_port_is_counted(line: bytes) -> None:
    ports = Ports("leaf03", {})
    ports.take(line)
    ports.take(b"\n")
    assert (ports.poll(), ports.unknown_count) == ([], 1)


@contextlib.asynccontextmanager
async def working(settings: Settings, server: Server) -> AsyncIterator[None]:
    target = Target(url=server.url, credentials_folder=server.credentials_folder)
    task = asyncio.ensure_future(Collector(settings, target).run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def told(server: Server) -> list[Observation]:
    async with await server.connect("reader") as log:
        records = [r async for r in log.read_range(1, 10**9) if ".leaf03." in r.subject]
    return [decode_observation(r.subject.rpartition(".")[2], r.payload) for r in records]


@pytest.mark.server
def test_lines_from_a_socket_and_from_a_file_reach_the_log_as_the_switch(tmp_path: Path) -> None:
    about = About(tier="leaf", transport="roce", ports={"Ethernet0": "nic/n1/mlx5_0"})
    path, file = tmp_path / "lines.sock", tmp_path / "lines"
    common = Settings(switch="leaf03", state=tmp_path / "state", about=about, period_s=0.05)

    async def body(server: Server) -> None:
        by_socket = msgspec.structs.replace(common, socket=path)
        async with working(by_socket, server):
            await until(path.is_socket, "it listens")
            _, writer = await asyncio.open_unix_connection(path)
            writer.write(msgspec.json.encode(SONIC) + b"\n")
            await writer.drain()

            async def has(count: int) -> bool:
                return sum(isinstance(f, FabricSampled) for f in await told(server)) >= count

            await until(lambda: has(1), "a poll is in the log")
            nobody = Target(url="nats://127.0.0.1:1")
            with pytest.raises(CollectorRunningError, match="a collector of leaf03"):
                await Collector(by_socket, nobody).run()
        writer.close()  # only now: whoever is connected does not hold up the end
        file.touch()
        async with working(msgspec.structs.replace(common, file=file), server):
            await asyncio.sleep(0.3)
            with file.open("ab") as lines:
                lines.write(oper_status("Ethernet4", "DOWN") + b"\n")
            await until(lambda: has(2), "the file's line is in the log")
        facts = await told(server)
        assert isinstance(facts[0], FabricInventoryReported)
        assert (facts[0].tier, facts[0].ports[0].peer) == ("leaf", "nic/n1/mlx5_0")
        samples = [fact for fact in facts if isinstance(fact, FabricSampled)]
        assert {(fact.node, fact.switch) for fact in samples} == {("leaf03", "switch/leaf03")}
        assert [port.port for port in samples[0].ports] == [
            "port/leaf03/Ethernet0",
            "port/leaf03/Ethernet4",
        ]
        assert not samples[-1].ports[0].up

    in_cell(tmp_path, body, roles=("collector/leaf03",))


@pytest.mark.server
def test_lines_that_came_before_the_log_was_ever_reached_are_told_late(tmp_path: Path) -> None:
    file, state = tmp_path / "lines", tmp_path / "state"
    settings = Settings(switch="leaf03", state=state, file=file, period_s=0.05)

    async def body(server: Server) -> None:
        nobody = Target(url="nats://127.0.0.1:1", credentials_folder=server.credentials_folder)
        file.touch()
        first = asyncio.ensure_future(Collector(settings, nobody).run())
        await until((state / "spool").exists, "it collects")
        with file.open("ab") as lines:
            lines.write(oper_status("Ethernet4", "DOWN") + b"\n")
        await until(lambda: (state / "spool").stat().st_size > 0, "the line is told of")
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        async with working(settings, server):

            async def is_told() -> bool:
                return any(isinstance(fact, FabricSampled) for fact in await told(server))

            await until(is_told, "what was seen then is in the log")
        sample = next(f for f in await told(server) if isinstance(f, FabricSampled))
        assert (sample.ports[0].port, sample.ports[0].up) == ("port/leaf03/Ethernet4", False)

    in_cell(tmp_path, body, roles=("collector/leaf03",))


def test_what_is_missing_or_wrong_is_said_in_one_line(tmp_path: Path) -> None:
    neither = nemesis("collector", "leaf03")
    assert (neither.returncode, "one of --file and --socket" in neither.stderr) == (2, True)
    seeds = tmp_path / "seeds"
    credentials.ensure(seeds, ["collector/leaf03"])
    options = ["--server", "nats://127.0.0.1:1", "--credentials", str(seeds)]
    stranger = nemesis("collector", "leaf04", "--socket", str(tmp_path / "s"), *options)
    assert (stranger.returncode, "credentials of collector-leaf04" in stranger.stderr) == (3, True)
    wrong = tmp_path / "about.json"
    wrong.write_text('{"tier": "middle"}')
    with pytest.raises(NemesisError, match="tier"):
        about_in(wrong)
