"""What befalls the producer itself: kills in a flood, a server that is away, a clock that jumps."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from nemesis.schemas.facts import decode_observation
from nemesis.schemas.observed import KernelLineLogged, Observation, SampleTaken, SpoolAnnounced
from nemesis.schemas.watched import CoverageReported
from nemesis.streams import publisher as publisher_module
from nemesis.streams.log import Log
from nemesis.streams.server import Server
from tests.cells import in_cell, until
from tests.node_trees import Tree
from tests.test_node_watch import NOW_NS, SECOND_NS, Watched, the
from tests.test_publisher import Origin, Running, all_facts, as_node

LINES = 30_000
"""In the flood of each life."""
BURST = 5_000
POLLS = 120
"""Ten minutes at 5 s."""


class Flood:
    """A kernel that prints 100,000 lines a second, into a log that can be read again."""

    def __init__(self, tree: Tree) -> None:
        self._path = tree.path / "dev/kmsg"
        self._path.parent.mkdir()
        self._path.touch()
        self.printed_count = 0

    def print(self) -> None:
        with self._path.open("ab", buffering=0) as file:
            for _ in range(LINES // BURST):
                began_us, first = time.monotonic_ns() // 1000, self.printed_count
                burst = (
                    f"4,{n},{began_us + n - first},-;line {n}\n"
                    for n in range(first, first + BURST)
                )
                file.write("".join(burst).encode())
                self.printed_count += BURST
                time.sleep(BURST / 100_000)


@contextmanager
def producer(server: Server, tree: Tree, state: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "nemesis.cli", "producer", "--node", "n1", "--period", "1"]
    command += ["--server", server.url, "--credentials", str(server.credentials_folder)]
    command += ["--root", str(tree.path), "--state", str(state)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


async def facts_of(server: Server, kind: str) -> dict[tuple[int, int], Observation]:
    """By their ids, in the order of the log; what is repeated under its id counts once."""
    async with await server.connect("reader") as log:
        records = [r async for r in log.read_range(1, 10**9) if r.subject.endswith(f".n1.{kind}")]
    found: dict[tuple[int, int], Observation] = {}
    for record in records:
        fact = decode_observation(kind, record.payload)
        found.setdefault((fact.start_ns, fact.n), fact)
    return found


async def lines_in(server: Server) -> list[KernelLineLogged]:
    return [
        f for f in (await facts_of(server, "kernel")).values() if isinstance(f, KernelLineLogged)
    ]


def count_of(told: Sequence[KernelLineLogged]) -> int:
    return sum(each.repeat_count + each.withheld_count for each in told)


@pytest.mark.server
def test_over_kills_in_a_flood_every_line_is_told_of_once_or_counted(tmp_path: Path) -> None:
    tree, state = Tree(tmp_path / "root"), tmp_path / "state"
    flood = Flood(tree)

    async def body(server: Server) -> None:
        for life in range(2):
            told_count = len(await lines_in(server))

            async def watches(life: int = life) -> bool:
                lives = {start_ns for start_ns, _ in await facts_of(server, "coverage")}
                return len(lives) > life

            async def is_told(told_count: int = told_count) -> bool:
                return len(await lines_in(server)) > told_count

            printing = threading.Thread(target=flood.print)
            with producer(server, tree, state):
                await until(watches, "it watches")
                printing.start()
                await until(is_told, "some of it is told")
            printing.join()

        async def all_told() -> bool:
            return count_of(await lines_in(server)) >= flood.printed_count

        with producer(server, tree, state):
            await until(all_told, "the floods are told of")
        told = await lines_in(server)
        assert count_of(told) == flood.printed_count == 2 * LINES
        numbers = [int(each.text.split()[1]) for each in told]
        assert numbers == sorted(set(numbers))
        assert len({each.start_ns for each in told}) >= 2

    in_cell(tmp_path, body, roles=("node/n1", "producer/n1"))


@pytest.mark.server
def test_after_ten_minutes_without_the_server_no_line_is_lost_and_lost_samples_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher_module, "AWAY_S", 0.0)

    async def body(server: Server, log: Log) -> None:
        origin, path = Origin(), tmp_path / "spool"
        offered = [(origin.sample(), origin.kernel(f"line {at}")) for at in range(POLLS)]
        size = path.stat().st_size if path.exists() else 0
        assert size == 0
        running = Running(log, origin, path, spool_bytes=16_000, durable=("kernel",))
        async with running as publisher:
            await server.kill()
            for sample, line in offered:
                publisher.offer(sample)
                publisher.offer(line)
            await server.restart()
            await publisher.drained()
        found = await all_facts(server)
        lines = [fact for fact in found if isinstance(fact, KernelLineLogged)]
        samples = [fact for fact in found if isinstance(fact, SampleTaken)]
        announced = [fact for fact in found if isinstance(fact, SpoolAnnounced)]
        assert lines == [line for _, line in offered]
        assert samples == [sample for sample, _ in offered][-len(samples) :]
        assert 0 < len(samples) < POLLS
        dropped = sum(fact.dropped_count for fact in announced) + publisher.dropped_count
        assert dropped == POLLS - len(samples)

    as_node(tmp_path, body)


def test_a_clock_that_jumps_is_told_by_how_much_and_shares_go_by_the_one_that_does_not(
    tmp_path: Path,
) -> None:
    tree = Tree(tmp_path)
    watched = Watched(tree)
    watched.poll()
    watched.now_ns += 60 * SECOND_NS
    facts = watched.watch.poll(NOW_NS + watched.now_ns - 3600 * SECOND_NS)
    assert the(CoverageReported, facts).clock_step_ns == -3600 * SECOND_NS
