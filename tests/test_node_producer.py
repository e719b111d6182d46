"""The producer at work: to a real server, while none is there, and over its own restarts."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from nemesis.producers.node.kernel_tail import KernelTail
from nemesis.producers.node.serve import BOOT_ID, Producer, ProducerRunningError, Settings, once
from nemesis.producers.origin import Origin
from nemesis.schemas.facts import decode_observation
from nemesis.schemas.observed import KernelLineLogged, Observation, SampleTaken, SpoolAnnounced
from nemesis.schemas.watched import CoverageReported
from nemesis.streams import credentials
from nemesis.streams.contexts import Target
from nemesis.streams.server import Server
from tests.cells import in_cell, until
from tests.commands import nemesis
from tests.node_trees import Tree

ROOT = Path(__file__).parent.parent
ROLES = ("node/n1", "producer/n1")
PERIOD_NS = 200_000_000


def settings_of(tree: Tree, state: Path) -> Settings:
    return Settings(node="n1", state=state, root=tree.path, period_ns=PERIOD_NS)


@contextlib.asynccontextmanager
async def working(producer: Producer) -> AsyncIterator[None]:
    task = asyncio.ensure_future(producer.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def told(server: Server) -> list[Observation]:
    async with await server.connect("reader") as log:
        records = [r async for r in log.read_range(1, 10**9) if r.subject.split(".")[2] == "n1"]
    return [decode_observation(r.subject.rpartition(".")[2], r.payload) for r in records]


@pytest.mark.server
def test_what_was_seen_while_no_server_was_there_comes_late_and_in_order(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "root")
    tree.write("dev/kmsg", "4,7,1000,-;first\n6,8,2000,-;second\n")

    async def body(server: Server) -> None:
        away = Target(url=server.url, credentials_folder=server.credentials_folder)
        settings = settings_of(tree, tmp_path / "state")
        spool = tmp_path / "state/spool"
        nobody = Target(url="nats://127.0.0.1:1", credentials_folder=server.credentials_folder)
        async with working(Producer(settings, nobody)):
            await until(lambda: spool.exists() and spool.stat().st_size > 2000, "it spools")
        async with working(Producer(settings, away)):

            async def both_lives() -> bool:
                samples = [f for f in await told(server) if isinstance(f, SampleTaken)]
                return len({each.start_ns for each in samples}) == 2

            await until(both_lives, "samples of both lives are in the log")
        facts = await told(server)
        assert isinstance(facts[0], SpoolAnnounced)
        (line,) = [fact for fact in facts if isinstance(fact, KernelLineLogged)]
        assert line.text == "first"  # what was printed before anybody watched: only warnings
        for kind in {type(fact) for fact in facts}:
            order = [(f.start_ns, f.n) for f in facts if type(f) is kind]
            assert order == sorted(order)

    in_cell(tmp_path, body, roles=ROLES)


@pytest.mark.server
def test_a_producer_that_is_told_to_end_says_last_that_nobody_watches_any_more(
    tmp_path: Path,
) -> None:
    async def body(server: Server) -> None:
        target = Target(url=server.url, credentials_folder=server.credentials_folder)
        async with working(Producer(settings_of(Tree(tmp_path / "root"), tmp_path / "s"), target)):

            async def is_heard() -> bool:
                return any(isinstance(fact, SampleTaken) for fact in await told(server))

            await until(is_heard, "a sample is in the log")
        *before, last = await told(server)
        assert isinstance(last, CoverageReported)
        assert last.ends
        assert last.probes
        assert not any(isinstance(fact, CoverageReported) and fact.ends for fact in before)

    in_cell(tmp_path, body, roles=ROLES)


def test_a_producer_says_once_what_it_cannot_see_and_nothing_before_it_has_its_seed(
    tmp_path: Path,
) -> None:
    seeds = tmp_path / "seeds"
    credentials.ensure(seeds, ["producer/n1"])
    tree = Tree(tmp_path / "root")
    options = ["--server", "nats://127.0.0.1:1", "--credentials", str(seeds), "--period", "0.2"]
    options += ["--root", str(tree.path), "--state", str(tmp_path / "state")]
    stranger = nemesis("producer", *options, "--node", "vm")
    assert (stranger.returncode, stranger.stderr.count("\n")) == (3, 1)
    assert "watching" not in stranger.stderr
    command = [sys.executable, "-m", "nemesis.cli", "producer", *options, "--node", "n1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = [process.stderr.readline()]
        while not said[-1].startswith("not seen: absent") or "rdma" not in said[-1]:
            said.append(process.stderr.readline())
            assert said[-1], said
        spool = tmp_path / "state/spool"
        size = spool.stat().st_size
        while spool.stat().st_size < size + 2000:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        said += process.communicate()[1].splitlines()
    assert said[0].startswith("watching n1")
    assert sum("no NVIDIA GPU" in line for line in said) == 1
    assert sum("no RDMA device" in line for line in said) == 1


def test_a_second_producer_of_a_node_is_refused(tmp_path: Path) -> None:
    tree, nobody = Tree(tmp_path / "root"), Target(url="nats://127.0.0.1:1")
    settings = settings_of(tree, tmp_path / "state")

    async def run() -> None:
        async with working(Producer(settings, nobody)):
            await until((tmp_path / "state/spool").exists, "the first works")
            with pytest.raises(ProducerRunningError, match="a producer of n1"):
                await Producer(settings, nobody).run()

    asyncio.run(run())


class Wire:
    """A pipe that keeps records apart, as /dev/kmsg does."""

    def __init__(self, folder: Path) -> None:
        read, self._write = os.pipe2(os.O_DIRECT | os.O_NONBLOCK)
        self.path = folder / "kmsg"
        self.path.symlink_to(f"/proc/self/fd/{read}")
        self._read = read

    def print(self, *lines: tuple[int, int, str]) -> None:
        """(priority, number, text) of each."""
        for priority, seq, text in lines:
            record = f"{priority},{seq},{seq * 1_000_000},-;{text}\n SUBSYSTEM=pci\n"
            os.write(self._write, record.encode())

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)


def test_a_kernels_line_is_told_once_over_a_restart_and_a_lost_one_is_counted(
    tmp_path: Path,
) -> None:
    wire, now_ns = Wire(tmp_path), 100_000_000_000
    origin = Origin("n1", start_ns=1, boot_id="b-1")

    def tail() -> KernelTail:
        return KernelTail(origin, wire.path, tmp_path / "kept.json", lambda: 10_000_000_000)

    first = tail()
    wire.print((6, 1, "old"), (4, 2, "old warning"), (6, 11, "new"), (30, 12, "of a program"))
    texts = [(line.text, line.at_ns) for line in first.read(now_ns)]
    assert texts == [("old warning", 92_000_000_000), ("new", 101_000_000_000)]
    first.keep()
    second = tail()
    wire.print((6, 11, "new"), (6, 12, "of nobody"), (6, 13, "next"), (6, 20, "later"))
    assert [line.text for line in second.read(now_ns)] == ["next", "later"]
    assert second.missed_count == 6
    wire.close()


@pytest.mark.parametrize("raw", ["", ";", "x,1,2,-;text", "6,1;short", "6,1,2"])
def test_a_record_that_is_none_is_passed_over(tmp_path: Path, raw: str) -> None:
    path = tmp_path / "kmsg"
    path.write_text(f"{raw}\n4,3,5,-;good\n")
    tail = KernelTail(Origin("n1", start_ns=1), path, None)
    assert [line.text for line in tail.read(10**18)] == ["good"]


def test_a_kernels_log_that_may_not_be_read_is_said(tmp_path: Path) -> None:
    tail = KernelTail(Origin("n1", start_ns=1), tmp_path / "none", None)
    assert tail.read(10**18) == []
    assert tail.seen.state == "absent"


def test_once_prints_what_is_seen_and_what_is_not_without_a_server(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.rdma("mlx5_0", "pci0000:00/0000:18:00.0")
    ran = nemesis(
        "producer", "--once", "--node", "n7", "--root", str(tmp_path), "--period", "0.2", "--json"
    )
    assert ran.returncode == 0, ran.stderr
    document = msgspec.json.decode(ran.stdout)
    kinds = [each["subject"].rpartition(".")[2] for each in document["facts"]]
    assert kinds == ["inventory", "sample", "device_state", "coverage", "sample"]
    shown = nemesis(
        "producer", "--once", "--node", "n7", "--root", str(tmp_path), "--period", "0.2"
    )
    assert "absent       nvml     node/n7" in shown.stdout


def test_a_root_that_is_no_folder_is_named() -> None:
    ran = nemesis("producer", "--once", "--root", "/no/such")
    assert ran.returncode == 2
    assert "no such folder" in ran.stderr


def test_the_service_starts_a_command_that_exists_with_what_it_needs_and_no_more() -> None:
    unit = (ROOT / "deploy/systemd/nemesis-producer.service").read_text()
    lines = dict(line.split("=", 1) for line in unit.splitlines() if "=" in line and line[0] != "#")
    program, command, *options = lines["ExecStart"].split()
    assert (program, command) == ("/opt/nemesis/bin/nemesis", "producer")
    shown = nemesis("producer", "--help").stdout
    assert all(option in shown for option in options if option.startswith("--"))
    assert (lines["DynamicUser"], lines["NoNewPrivileges"]) == ("yes", "yes")
    assert lines["CapabilityBoundingSet"] == "CAP_SYSLOG CAP_SYS_PTRACE"
    assert (lines["ProtectSystem"], lines["DevicePolicy"]) == ("strict", "closed")


def test_a_recorded_node_reads_the_same_and_holds_no_secret(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "node")
    tree.rdma("mlx5_0", "pci0000:15/0000:16:00.0/0000:17:00.0/0000:18:00.0", link_downed=2)
    tree.device(
        "pci0000:15/0000:19:00.0",
        "bus/pci/devices/0000:19:00.0",
        vendor="0x10de",
        **{"class": "0x030200"},
    )
    tree.process(70, {"RANK": "0", "NEMESIS_JOB": "llama", "WANDB_API_KEY": "s3cret"})
    tree.write("sys/class/dmi/id/product_name", "secret-host HGX")
    said = "0f8fad5b-d9cb-469f-a165-70867728950e"
    tree.write("proc/sys/kernel/random/boot_id", said)
    tree.write("dev/kmsg", "4,7,1000,-;secret-host: a warning\n")
    options = ["producer", "--node", "secret-host", "--period", "0.2", "--json"]
    copy = tmp_path / "copy"
    first = nemesis(*options, "--root", str(tree.path), "--record", str(copy), "--scrub")
    assert first.returncode == 0, first.stderr
    for file in copy.rglob("*"):
        if file.is_file():
            text = file.read_text()
            assert not [word for word in ("secret-host", "s3cret", said) if word in text]
    again = nemesis(*options, "--once", "--root", str(copy / "root"))
    seen = [msgspec.json.decode(ran.stdout)["facts"] for ran in (first, again)]
    names = ("gpus", "nics", "nic", "job", "text")
    told = [[{n: f["data"].get(n) for n in names} for f in facts] for facts in seen]
    changed = msgspec.json.encode(told[0]).replace(b"secret-host", b"node1")
    assert changed == msgspec.json.encode(told[1])
    refused = nemesis(*options, "--root", str(tree.path), "--record", str(copy))
    assert (refused.returncode, "cannot record into" in refused.stderr) == (1, True)


@pytest.mark.parametrize("boot", [None, b"\xff\x00\x1b[2J", b"b" * 4096])
def test_what_is_no_boot_id_gets_into_no_fact_and_keeps_nobody_waiting(
    tmp_path: Path, boot: bytes | None
) -> None:
    tree = Tree(tmp_path / "root")
    place = tree.path / BOOT_ID
    place.unlink()
    if boot is None:
        os.mkfifo(place)
    else:
        place.write_bytes(boot)
    assert {fact.boot_id for fact in once(settings_of(tree, tmp_path / "s"), 0.0)} == {""}
