"""Lines of NCCL's Inspector become one fact a minute, however many there are."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from nemesis.producers.node.inspector import NEWEST_BYTES, Inspector
from nemesis.producers.origin import Origin
from nemesis.schemas.timed import CollectivesTimed
from tests.node_trees import Tree
from tests.test_node_watch import Watched, states_of

HEADER = {
    "header": {"id": "0xabc", "rank": 3, "n_ranks": 8, "nnodes": 1},
    "metadata": {"inspector_output_format_version": "v4", "hostname": "n1", "pid": 70},
}


def performed(number: int, took_us: Any, **header: Any) -> bytes:
    perf = {
        "coll": "AllReduce",
        "coll_sn": number,
        "coll_msg_size_bytes": 1000,
        "coll_exec_time_us": took_us,
    }
    return msgspec.json.encode({**header, "coll_perf": perf}) + b"\n"


class Job:
    """A process that writes, and a producer that looks."""

    def __init__(self, tmp_path: Path) -> None:
        self.folder = tmp_path / "dumps"
        self.folder.mkdir()
        self.tree = Tree(tmp_path / "root")
        self.tree.process(70, {"RANK": "5", "NEMESIS_JOB": "llama"})
        origin = Origin("n1", start_ns=1)
        self.watched = Watched(self.tree, inspector=Inspector(origin, self.folder))

    def write(self, *lines: bytes, name: str = "n1-pid70.log") -> None:
        with (self.folder / name).open("ab") as file:
            file.write(b"".join(lines))

    def told(self) -> list[CollectivesTimed]:
        """Of two minutes."""
        facts = [fact for _ in range(24) for fact in self.watched.poll()]
        return [fact for fact in facts if isinstance(fact, CollectivesTimed)]


@pytest.fixture
def job(tmp_path: Path) -> Job:
    job = Job(tmp_path)
    # an earlier hour: what was written then is passed over, whose lines follow is not
    job.write(msgspec.json.encode(HEADER) + b"\n", performed(1, 10**6))
    assert job.told() == []
    return job


def test_a_minute_of_collectives_is_one_fact_that_names_the_rank(job: Job) -> None:
    job.write(performed(40, 100), performed(41, 300.5), performed(42, 0), performed(43, "x"))
    (fact,) = job.told()
    (group,) = fact.groups
    assert (fact.job, group.rank, group.communicator) == ("llama", 5, "0xabc")
    assert (group.member, group.size, group.last_number) == (3, 8, 41)
    assert (group.timed_count, group.total_ns, group.longest_ns) == (2, 400_500, 300_500)
    assert group.size_bytes == 2000
    assert job.told() == []


def test_of_more_than_anybody_could_read_the_newest_are_taken(job: Job) -> None:
    lines = [performed(number, 10) for number in range(2, 5000)]
    assert sum(map(len, lines)) > 3 * NEWEST_BYTES
    job.write(*lines)
    (group,) = job.told()[0].groups
    assert group.last_number == 4999
    assert 100 < group.timed_count <= NEWEST_BYTES // len(lines[0])


def test_a_file_that_is_cut_off_turned_over_or_broken_goes_on(job: Job) -> None:
    path = job.folder / "n1-pid70.log"
    path.rename(job.folder / "n1-pid70.log.1")
    job.write(b"{broken\n", b"7\n", performed(50, 20, **HEADER), performed(51, 20))
    (group,) = job.told()[0].groups
    assert (group.last_number, group.timed_count) == (51, 2)
    path.write_bytes(b"")
    assert job.told() == []
    job.write(performed(52, 20, **HEADER))
    (group,) = job.told()[0].groups
    assert group.last_number == 52


def test_a_folder_without_files_is_said(tmp_path: Path) -> None:
    job = Job(tmp_path)
    facts = job.watched.poll()
    assert states_of(facts)["inspector", "node/n1"] == "absent"
