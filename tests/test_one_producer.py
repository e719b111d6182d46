"""A node has one producer: whoever else starts one, with other files or elsewhere, is refused."""

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nemesis.producers.node import elder
from nemesis.producers.node.serve import Producer, ProducerRunningError
from nemesis.producers.origin import Origin
from nemesis.producers.switch.collector import Collector, CollectorRunningError
from nemesis.producers.switch.collector import Settings as CollectorSettings
from nemesis.schemas.facts import encode_observation, telemetry_subject
from nemesis.schemas.observed import SampleTaken
from nemesis.schemas.watched import CoverageReported
from nemesis.streams import credentials
from nemesis.streams.contexts import Target
from nemesis.streams.server import Server
from tests.cells import in_cell, until
from tests.commands import nemesis
from tests.node_trees import Tree
from tests.test_node_producer import ROLES, settings_of, told, working

NOBODY_UID = 65534
AWAY = "nats://127.0.0.1:1"
NOW_NS = 1_796_000_000_000_000_000
AS_ANOTHER_USER = """
import asyncio, os, sys
from pathlib import Path
from nemesis.producers.node.serve import Producer, ProducerRunningError, Settings
from nemesis.streams.contexts import Target

root, own, uid = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
os.setgid(uid)
os.setuid(uid)
target = Target(url="nats://127.0.0.1:1", credentials_folder=own / "seeds")
try:
    asyncio.run(Producer(Settings(node="n1", state=own / "state", root=root), target).run())
except ProducerRunningError as error:
    sys.exit(error.message)
"""


def options_of(tree: Tree, seeds: Path, state: Path, node: str = "n1") -> list[str]:
    options = ["producer", "--node", node, "--server", AWAY, "--credentials", str(seeds)]
    return [*options, "--root", str(tree.path), "--state", str(state), "--period", "0.2"]


@contextmanager
def at_work(tree: Tree, seeds: Path, state: Path, node: str = "n1") -> Iterator[None]:
    """Returns once it has its locks."""
    command = [sys.executable, "-m", "nemesis.cli", *options_of(tree, seeds, state, node)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            while not (state / "spool").exists():
                assert process.poll() is None
                time.sleep(0.02)
            yield
        finally:
            process.kill()


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path / "root")


@pytest.fixture
def seeds(tmp_path: Path) -> Path:
    credentials.ensure(tmp_path / "seeds", ["producer/n1", "producer/n2"])
    return tmp_path / "seeds"


def test_a_second_with_other_files_and_the_same_seed_is_refused_in_one_line(
    tree: Tree, seeds: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "other seeds"
    shutil.copytree(seeds, copy)
    with at_work(tree, seeds, tmp_path / "first"):
        second = nemesis(*options_of(tree, copy, tmp_path / "second"))
        assert second.returncode == 4
        assert "a producer of n1 runs on this machine already" in second.stderr
        with at_work(tree, seeds, tmp_path / "other", "n2"):
            pass  # another node of this machine has a producer of its own


@pytest.mark.skipif(os.getuid() != 0, reason="only root may become another user")
def test_a_second_of_another_user_is_refused(tree: Tree, seeds: Path, tmp_path: Path) -> None:
    with (
        tempfile.TemporaryDirectory() as name,  # pytest's own folders are for one user
        at_work(tree, seeds, tmp_path / "first"),
    ):
        shutil.copytree(seeds, Path(name, "seeds"))
        for each in [Path(name), *Path(name).rglob("*")]:
            os.chown(each, NOBODY_UID, NOBODY_UID)
        command = [sys.executable, "-c", AS_ANOTHER_USER, str(tree.path), name, str(NOBODY_UID)]
        second = subprocess.run(command, capture_output=True, text=True, check=False)
        assert second.stderr == "a producer of n1 runs on this machine already\n"


def test_a_second_collector_of_a_switch_is_refused_whatever_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "seeds"
    credentials.ensure(folder, ["collector/leaf03"])
    target = Target(url=AWAY, credentials_folder=folder)

    def collector(name: str) -> Collector:
        lines = tmp_path / "lines"
        return Collector(
            CollectorSettings(switch="leaf03", state=tmp_path / name, file=lines), target
        )

    async def run() -> None:
        first = asyncio.ensure_future(collector("a").run())
        await until((tmp_path / "a/spool").exists, "the first works")
        with pytest.raises(CollectorRunningError, match="of leaf03 runs on this machine"):
            await collector("b").run()
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)

    asyncio.run(run())


async def tell_as_another(server: Server, start_ns: int) -> None:
    """Somebody with this node's credential, whom no lock of this machine reaches."""
    origin = Origin("n1", start_ns=start_ns)
    async with await server.connect("producer/n1") as log:
        while True:
            fact = CoverageReported(**origin.stamp("coverage", NOW_NS))
            await log.publish(telemetry_subject("n1", "coverage"), encode_observation(fact))
            await asyncio.sleep(0.02)


@pytest.mark.server
def test_a_producer_ends_that_finds_an_earlier_one_telling_of_its_node_elsewhere(
    tmp_path: Path, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elder, "LOOK_S", 0.05)

    async def body(server: Server) -> None:
        target = Target(url=server.url, credentials_folder=server.credentials_folder)
        another = asyncio.ensure_future(tell_as_another(server, start_ns=1))
        with pytest.raises(ProducerRunningError, match="an earlier producer of n1 tells of it"):
            await Producer(settings_of(tree, tmp_path / "state"), target).run()
        another.cancel()

    in_cell(tmp_path, body, roles=ROLES)


@pytest.mark.server
def test_the_earlier_of_two_goes_on_and_what_an_earlier_life_left_is_no_other_producer(
    tmp_path: Path, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elder, "LOOK_S", 0.05)
    settings = settings_of(tree, tmp_path / "state")

    async def body(server: Server) -> None:
        here = Target(url=server.url, credentials_folder=server.credentials_folder)
        away = Target(url=AWAY, credentials_folder=server.credentials_folder)
        spool = settings.state / "spool"
        async with working(Producer(settings, away)):
            await until(lambda: spool.exists() and spool.stat().st_size > 2000, "it spools")
        another = asyncio.ensure_future(tell_as_another(server, start_ns=2**62))
        async with working(Producer(settings, here)):

            async def goes_on() -> bool:
                facts = await told(server)
                others = sum(isinstance(fact, CoverageReported) for fact in facts)
                samples = [fact for fact in facts if isinstance(fact, SampleTaken)]
                lives = {fact.start_ns for fact in samples}
                last = sum(fact.start_ns == max(lives) for fact in samples)
                return len(lives) == 2 and others > 50 and last > 5

            await until(goes_on, "both tell")
            assert max(fact.start_ns for fact in await told(server)) == 2**62
        another.cancel()

    in_cell(tmp_path, body, roles=ROLES)
