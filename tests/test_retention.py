"""What a cell keeps: streams as wanted, drift told, facts for as long as the table says."""

import asyncio
import json
from pathlib import Path

import pytest

from nemesis.schemas.errors import NemesisError
from nemesis.streams.connection import Connection
from nemesis.streams.errors import LogFullError, ProvisionError, UndeliverableError
from nemesis.streams.log import Message
from nemesis.streams.provision import Limits, provision, wanted_streams
from nemesis.streams.server import Server, running
from tests.cells import as_admin, in_cell, until

SAMPLE = "nemesis.telemetry.n001.sample"
KERNEL = "nemesis.telemetry.n001.kernel"


async def api(connection: Connection, call: str, body: object) -> dict[str, object]:
    answer = await connection.request(f"$JS.API.{call}", json.dumps(body).encode())
    decoded: dict[str, object] = json.loads(answer.data)
    return decoded


@pytest.mark.server
def test_provisioning_again_changes_nothing(tmp_path: Path) -> None:
    async def body(server: Server) -> None:
        assert len(server.provisioned.created) == 5
        assert server.provisioned.drift == ()
        admin = await as_admin(server)
        again = await provision(admin)
        assert (again.created, again.drift) == ((), ())
        await admin.close()

    in_cell(tmp_path, body)


@pytest.mark.server
def test_drift_is_told_field_by_field_and_left_alone(tmp_path: Path) -> None:
    async def body(server: Server) -> None:
        admin = await as_admin(server)
        wanted = wanted_streams(Limits())[0]
        changed = {**wanted, "max_age": 3600 * 10**9, "max_bytes": 2**30, "republish": None}
        assert "error" not in await api(admin, "STREAM.UPDATE.NEMESIS", changed)
        for _ in range(2):
            drift = (await provision(admin)).drift
            assert {str(each) for each in drift} == {
                "NEMESIS.max_age: wanted 0, found 3600000000000",
                f"NEMESIS.max_bytes: wanted {Limits().log_bytes}, found {2**30}",
                f"NEMESIS.republish: wanted {wanted['republish']!r}, found None",
            }
        await admin.close()

    in_cell(tmp_path, body)


@pytest.mark.server
@pytest.mark.parametrize(
    ("limits", "error", "says"),
    [
        (Limits(log_bytes=2**60), LogFullError, "stream NEMESIS: .*storage"),
        (Limits(replicas=3), ProvisionError, "stream NEMESIS: .*replicas"),
    ],
)
def test_a_stream_that_is_refused_says_why(
    tmp_path: Path, limits: Limits, error: type[NemesisError], says: str
) -> None:
    with pytest.raises(error, match=says):
        asyncio.run(Server("test", folder=tmp_path / "cell", limits=limits).start())
    assert running(tmp_path / "cell") is None


@pytest.mark.server
def test_only_the_admin_may_provision(tmp_path: Path) -> None:
    async def body(server: Server) -> None:
        async with await server.connect("node/n001") as node:
            with pytest.raises(UndeliverableError, match="may not publish"):
                await provision(node.connection)

    in_cell(tmp_path, body)


@pytest.mark.server
def test_the_log_cannot_be_shortened_by_anybody(tmp_path: Path) -> None:
    async def body(server: Server) -> None:
        async with await server.connect("reader") as log:
            answer = await log.connection.request("$JS.API.STREAM.INFO.NEMESIS")
        config = json.loads(answer.data)["config"]
        assert config["deny_delete"]
        assert config["deny_purge"]
        assert not config.get("allow_rollup_hdrs")
        assert config["discard"] == "new"
        assert not config["max_age"]

    in_cell(tmp_path, body)


@pytest.mark.server
def test_what_is_kept_for_ever_outlives_what_expires_also_over_a_killed_server(
    tmp_path: Path,
) -> None:
    async def body(server: Server) -> None:
        async with (
            await server.connect("node/n001") as node,
            await server.connect("processor/healer") as log,
        ):
            await node.publish(KERNEL, b"for ever")
            await node.publish(SAMPLE, b"a second", ttl_s=1)
            await node.publish(SAMPLE, b"an hour", ttl_s=3600)
            await log.commit([Message(subject="nemesis.cursor.healer", payload=b"position")])

            async def expired() -> bool:
                return await log.get(2) is None

            await until(expired, "the sample has expired")
            await server.kill()
            await server.restart()
            async with await server.connect("reader") as reader:
                assert [r.seq async for r in reader.read_range(1, 9)] == [1, 3, 4]

    in_cell(tmp_path, body)


@pytest.mark.server
def test_the_servers_own_max_age_would_lose_what_is_to_be_kept_for_ever(tmp_path: Path) -> None:
    """Decision 0002 rests on this defect of nats-server 2.15.1; if this fails, look there again."""

    async def body(server: Server) -> None:
        admin = await as_admin(server)
        aged = {**wanted_streams(Limits())[0], "max_age": 10**9}
        assert "error" not in await api(admin, "STREAM.UPDATE.NEMESIS", aged)
        await admin.close()
        async with await server.connect("node/n001") as node:
            await node.publish(KERNEL, b"for ever")
            await node.publish(SAMPLE, b"a day", ttl_s=24 * 3600)
            async with await server.connect("reader") as log:

                async def day_is_over() -> bool:
                    return await log.get(2) is None

                await until(day_is_over, "a longer TTL counts no more than max_age")
                assert await log.get(1) is not None
            await server.restart()
            async with await server.connect("reader") as log:
                assert await log.get(1) is None

    in_cell(tmp_path, body)


@pytest.mark.server
def test_events_reach_the_browser_and_positions_do_not(tmp_path: Path) -> None:
    async def body(server: Server) -> None:
        async with (
            await server.connect("browser") as browser,
            await server.connect("processor/healer") as healer,
        ):
            seen: list[tuple[str, bytes]] = []

            async def see(msg: object) -> None:
                seen.append((msg.headers["Nats-Subject"], msg.data))  # type: ignore[attr-defined]

            await browser.connection.subscribe("nemesis.events", see)
            await browser.connection.flush()
            subject = "nemesis.events.recovery_decided.llama"
            await healer.commit(
                [
                    Message(subject="nemesis.cursor.healer", payload=b"p"),
                    Message(subject=subject, payload=b"decided"),
                ]
            )
            await until(lambda: bool(seen), "the browser hears of it")
            assert seen == [(subject, b"decided")]

    in_cell(tmp_path, body)
