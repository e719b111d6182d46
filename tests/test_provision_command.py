"""Promises of `nemesis credentials` and `nemesis provision`: a plain NATS server becomes a cell."""

import asyncio
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from nemesis.streams.contexts import find
from nemesis.streams.provision import Limits, wanted_streams
from nemesis.streams.server import nats_server_program
from tests.commands import nemesis

pytestmark = pytest.mark.server
STREAMS = [stream["name"] for stream in wanted_streams(Limits())]


class Plain:
    """A NATS server that somebody else runs, with our block in its configuration."""

    def __init__(self, folder: Path) -> None:
        self.seeds = folder / "seeds"
        made = nemesis("credentials", "--out", str(self.seeds), "--nodes", "n1")
        assert made.returncode == 0, made.stderr
        ports = folder / "ports"
        ports.mkdir()
        config = folder / "nats.conf"
        store = f'jetstream {{ store_dir: "{folder / "js"}" }}'
        config.write_text(
            f'listen: "127.0.0.1:-1"\nports_file_dir: "{ports}"\n{store}\n{made.stdout}'
        )
        self.process = subprocess.Popen(
            [str(nats_server_program()), "-c", str(config)], stderr=subprocess.DEVNULL
        )
        self.url = self._listening(ports)

    def _listening(self, ports: Path) -> str:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            assert self.process.poll() is None, "the server does not take the block"
            for path in ports.glob("*.ports"):
                with suppress(msgspec.DecodeError):  # half written
                    return str(msgspec.json.decode(path.read_bytes())["nats"][0])
            time.sleep(0.02)
        raise AssertionError("the server did not listen")

    @property
    def options(self) -> tuple[str, ...]:
        return ("--server", self.url, "--credentials", str(self.seeds))


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Plain]:
    server = Plain(tmp_path)
    yield server
    server.process.terminate()
    server.process.wait()


def test_a_plain_server_is_made_a_cell_and_then_nothing_is_left_to_do(plain: Plain) -> None:
    before = nemesis("status", *plain.options)
    assert before.returncode == 3
    assert f"no NEMESIS streams at {plain.url}; make them with `nemesis provision`" in before.stderr
    missing = nemesis("provision", "--check", "--json", *plain.options)
    assert missing.returncode == 1
    assert msgspec.json.decode(missing.stdout)["missing"] == STREAMS
    made = nemesis("provision", *plain.options)
    assert (made.returncode, made.stdout.split()[1::2]) == (0, STREAMS)
    again = nemesis("provision", "--check", *plain.options)
    assert (again.returncode, again.stdout) == (0, "all streams are as they should be\n")
    assert nemesis("status", *plain.options).returncode == 0


def test_each_role_signs_in_with_its_seed(plain: Plain) -> None:
    assert nemesis("provision", *plain.options).returncode == 0

    async def sign_in() -> None:
        target = find(server=plain.url, credentials_folder=plain.seeds)
        for role in ("node/n1", "ticker", "operator", "processor/healer", "actor/job"):
            async with await target.connect(role):
                pass
        async with await target.connect("ticker") as log:
            assert await log.publish("nemesis.telemetry.clock.tick", b"x") == 1

    asyncio.run(sign_in())


def test_drift_is_told_field_by_field_and_left_alone(plain: Plain) -> None:
    assert nemesis("provision", *plain.options).returncode == 0
    for _ in range(2):
        found = nemesis("provision", "--check", "--replicas", "3", *plain.options)
        assert found.returncode == 1
        assert "drift    NEMESIS.num_replicas: wanted 3, found 1" in found.stdout.splitlines()
    told = nemesis("provision", "--replicas", "3", *plain.options)
    assert told.returncode == 0
    assert "num_replicas" in told.stdout


def test_run_and_act_say_that_a_server_has_no_streams(plain: Plain) -> None:
    for command in (["process", "intake"], ["process", "--once", "intake"], ["act", "job"]):
        ran = nemesis(*command, *plain.options)
        assert ran.returncode == 3
        assert "no NEMESIS streams at" in ran.stderr


def test_seeds_that_exist_are_kept(tmp_path: Path) -> None:
    first = nemesis("credentials", "--out", str(tmp_path), "--json")
    again = nemesis("credentials", "--out", str(tmp_path), "--nodes", "n1", "--json")
    old, new = (msgspec.json.decode(ran.stdout)["roles"] for ran in (first, again))
    assert new == old | {role: new[role] for role in ("node/n1", "producer/n1")}
    for seed in tmp_path.glob("*.nk"):
        assert seed.read_text() not in again.stdout
