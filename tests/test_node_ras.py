"""NCCL's RAS is asked where rank 0 runs, and tells of groups that stand still."""

import time
from collections.abc import Iterator, Sequence

import pytest

from nemesis.producers.node.ranks import RankProcess
from nemesis.producers.node.ras import Ras
from nemesis.producers.origin import Origin
from nemesis.schemas.observed import CountersRead, Observation
from tests.ras_server import RasServer, document, ras_server

RANK_0 = (RankProcess("llama", 0, 70),)
RANK_4 = (RankProcess("llama", 4, 74),)
OWN = "nccl.fa93daea854b060b"
TEXT = b"""NCCL version 2.24.3 compiled with CUDA 12.6
Communicators... (0.00s)
#0-0 (fa93daea854b060b) MISMATCH
  Communicator ranks have different AllReduce operation counts
  6 ranks have launched up to operation 640
  2 ranks have launched up to operation 639
  Rank 2 -- GPU 2 managed by process 72 on node 10.0.0.1
  Rank 3 -- GPU 3 managed by process 73 on node 10.0.0.1
"""


@pytest.fixture
def server() -> Iterator[RasServer]:
    with ras_server() as server:
        yield server


def ras_of(server: RasServer, *, deadline_s: float = 10.0) -> Ras:
    return Ras(Origin("n1", start_ns=1), server.address, deadline_s=deadline_s)


def look(ras: Ras, *, is_due: bool) -> list[Observation]:
    """One poll, and the answer to what it asked has come."""
    facts = ras.poll(RANK_0, 5, is_due=is_due)
    while ras._is_asking and not ras._probe.is_done:
        time.sleep(0.001)
    return facts


def counters_in(facts: Sequence[Observation]) -> dict[str, int]:
    (fact,) = facts
    assert isinstance(fact, CountersRead)
    assert fact.component == "job/llama"
    return dict(fact.counters)


def test_a_group_that_stands_still_is_told_of_once_with_who_is_behind(server: RasServer) -> None:
    ras = ras_of(server)
    server.status = document({0: 640, 1: 640, 2: 639, 3: 640})
    assert look(ras, is_due=True) == []
    assert look(ras, is_due=False) == []  # one answer: ranks that run differ at any moment
    told = counters_in(look(ras, is_due=False))
    assert told == {
        f"{OWN}.ranks": 4,
        f"{OWN}.least": 639,
        f"{OWN}.most": 640,
        f"{OWN}.behind.2": 639,
    }
    assert look(ras, is_due=False) == []
    assert ras.seen.state == "read"
    assert server.heard[:4] == [
        "client protocol 2",
        "timeout 5",
        "set format json",
        "verbose status",
    ]


def test_a_job_that_runs_is_asked_in_its_turn_only_and_told_nothing_of(server: RasServer) -> None:
    ras = ras_of(server)
    server.status = document({0: 640, 1: 639})
    assert look(ras, is_due=True) == []
    server.status = document({0: 700, 1: 700})
    assert [look(ras, is_due=False) for _ in range(4)] == [[]] * 4
    assert server.heard.count("verbose status") == 2


def test_ranks_whose_data_nobody_gets_are_told_of(server: RasServer) -> None:
    ras = ras_of(server)
    server.status = document({0: 640, 1: 640}, missing=(7,))
    look(ras, is_due=True)
    look(ras, is_due=False)
    told = counters_in(look(ras, is_due=False))
    assert (told[f"{OWN}.missing.7"], told[f"{OWN}.least"]) == (1, 640)


def test_an_older_release_answers_in_its_own_words(server: RasServer) -> None:
    ras = ras_of(server)
    server.knows_json, server.status = False, TEXT
    look(ras, is_due=True)
    look(ras, is_due=False)
    told = counters_in(look(ras, is_due=False))
    assert told == {
        f"{OWN}.ranks": 8,
        f"{OWN}.least": 639,
        f"{OWN}.most": 640,
        f"{OWN}.behind.2": 639,
        f"{OWN}.behind.3": 639,
    }


def test_a_node_without_rank_0_does_not_ask(server: RasServer) -> None:
    ras = ras_of(server)
    assert ras.poll(RANK_4, 5, is_due=True) == []
    assert ras.seen.state == "absent"
    assert server.heard == []


def test_nobody_waits_for_an_answer_that_is_slow(server: RasServer) -> None:
    ras = ras_of(server)
    server.held.clear()
    server.status = document({0: 1, 1: 1})
    ras.poll(RANK_0, 5, is_due=True)
    assert ras.poll(RANK_0, 5, is_due=True) == []
    assert ras.seen.state == "read"  # it has its own time
    server.held.set()
    look(ras, is_due=False)
    assert ras.seen.state == "read"


def test_an_answer_that_does_not_end_in_time_is_stalled(server: RasServer) -> None:
    ras = ras_of(server, deadline_s=0.1)
    server.held.clear()
    look(ras, is_due=True)
    look(ras, is_due=False)
    assert (ras.seen.state, "did not finish" in ras.seen.says) == ("stalled", True)


@pytest.mark.parametrize(
    ("status", "half"), [(document({0: 1, 1: 2}), True), (b"", False), (b"HTTP/1.1 400\r\n", False)]
)
def test_half_an_answer_and_a_strangers_are_no_reading(
    server: RasServer, status: bytes, half: bool
) -> None:
    ras = ras_of(server)
    server.status, server.half = status, half
    look(ras, is_due=True)
    assert look(ras, is_due=False) == []
    assert ras.seen.state == "broken"


def test_where_no_communicator_listens_that_is_said_and_costs_nothing(server: RasServer) -> None:
    ras = ras_of(server)
    server.close()
    look(ras, is_due=True)
    assert look(ras, is_due=False) == []
    assert (ras.seen.state, "nobody answers at 127.0.0.1" in ras.seen.says) == ("absent", True)
