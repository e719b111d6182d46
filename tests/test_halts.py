"""Promises about ranks whose process does not run: who is named, how soon, and when nobody is."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nemesis.producers.origin import Origin
from nemesis.producers.process import LASTS_NS, ProcessWatch
from nemesis.schemas.decided import RecoveryDecided
from nemesis.schemas.done import AttemptCompleted
from nemesis.schemas.observed import ProcessStateSeen
from tests.attribution_log import Log


class Halting(Log):
    """A job of four ranks on two nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.inventory("n1")
        self.inventory("n2")
        self.submitted("n1", "n2")

    def seen(self, rank: int, state: str = "stopped", *, others: str = "", **fields: Any) -> None:
        """The agent of a rank's node says how the kernel has it."""
        node = "n1" if rank < 2 else "n2"
        fields.update(job="llama", rank=rank, state=state, others=others)
        self.told("process_state", ProcessStateSeen, node, **fields)

    @property
    def blamed(self) -> list[list[str]]:
        """Whom each verdict names."""
        return [[each.id for each in verdict.culprits] for verdict in self.verdicts]


def test_a_stopped_rank_is_named_at_once_where_another_of_its_node_runs_on() -> None:
    log = Halting()
    log.seen(1, others="0")
    assert (log.last.verdict, log.last.fault_class) == ("attributed", "app.stall")
    assert (log.blamed, log.last.ranks) == ([["rank/llama/1"]], (1,))
    assert log.last.signature == "process_stopped"
    assert "does not say who" in log.last.reason


def test_where_a_whole_node_is_stopped_others_are_heard_of_first() -> None:
    log = Halting()
    log.seen(0)
    log.seen(1)
    log.tick()
    assert log.verdicts == []
    log.tick()
    assert log.blamed == [["rank/llama/0", "rank/llama/1"]]


def test_a_job_that_is_stopped_as_a_whole_was_suspended_and_blames_nobody() -> None:
    log = Halting()
    for rank in range(4):
        log.seen(rank)
    log.tick(3)
    assert (log.last.verdict, log.blamed) == ("insufficient", [[]])
    assert "suspends" in log.last.reason


def test_a_rank_that_runs_again_takes_the_verdict_back() -> None:
    log = Halting()
    log.seen(1, others="0")
    log.seen(1, "running")
    assert log.last.verdict == "no-fault"
    log.tick(5)
    assert len(log.verdicts) == 2


def test_a_debugger_is_told_of_after_a_while_and_is_somebodys_work() -> None:
    log = Halting()
    log.seen(1, "traced", others="0", tracer_pid=77)
    log.tick(5)
    assert log.verdicts == []
    log.tick(6)
    assert (log.last.signature, log.blamed) == ("process_traced", [["rank/llama/1"]])
    assert "process 77" in log.last.reason


@pytest.mark.parametrize("state", ["running", "uninterruptible"])
def test_a_state_that_may_be_anybodys_blames_nobody(state: str) -> None:
    log = Halting()
    log.seen(1, state, others="0")
    log.tick(30)
    assert log.verdicts == []


def test_the_end_of_a_stopped_rank_is_no_other_fault() -> None:
    log = Halting()
    log.seen(1, others="0")
    log.exited(1, signal=9)
    log.tick(5)
    assert log.last.signature == "process_stopped"
    assert log.blamed[-1] == ["rank/llama/1"]


def test_after_the_recovery_a_rank_that_is_stopped_next_is_named_alone() -> None:
    log = Halting()
    log.seen(1, others="0")
    log.exited(1, signal=9)
    decided = RecoveryDecided(
        at_ns=0, reason="", decision="llama/1", incident=log.last.incident, mode="act",
        deadline_ns=0, job="llama", action="shrink", target="job/llama", removed_ranks=(1,),
    )  # fmt: skip
    log.event("recovery_decided", decided)
    completed = AttemptCompleted(
        at_ns=0, reason="", decision="llama/1", actor="a", job="llama", epoch=1
    )
    log.event("attempt_completed", completed)
    log.seen(3, others="2")
    assert log.blamed[-1] == ["rank/llama/3"]
    assert len({verdict.incident for verdict in log.verdicts}) == 2


@pytest.mark.parametrize("others", ["", "2", "0-x"])
def test_what_concerns_no_job_or_is_not_understood_is_passed_over(others: str) -> None:
    log = Log()
    log.told(
        "process_state", ProcessStateSeen, "n1", job="x", rank=1, state="stopped", others=others
    )
    log.tick(5)
    assert log.verdicts == []


@pytest.fixture
def sleepers() -> Iterator[dict[int, int]]:
    """Two ranks' processes, by rank."""
    ranks = [subprocess.Popen(["sleep", "60"]) for _ in range(2)]
    yield {at: each.pid for at, each in enumerate(ranks)}
    for each in ranks:
        each.kill()
        each.wait()


def _until(pid: int, letter: str) -> None:
    stat = Path(f"/proc/{pid}/stat")
    while f") {letter} " not in stat.read_text():
        time.sleep(0.001)


def test_the_kernel_is_asked_and_only_what_lasts_is_told(sleepers: dict[int, int]) -> None:
    watch = ProcessWatch(Origin("n1", start_ns=1), "llama")
    os.kill(sleepers[1], signal.SIGSTOP)
    _until(sleepers[1], "T")
    assert watch.look(sleepers, {}, 0) == []
    (seen,) = watch.look(sleepers, {1: 4}, LASTS_NS["stopped"])
    assert (seen.rank, seen.state, seen.others, seen.epoch) == (1, "stopped", "0", 4)
    assert (seen.since_ns, seen.pid) == (0, sleepers[1])
    assert watch.look(sleepers, {}, 10 * LASTS_NS["stopped"]) == []
    os.kill(sleepers[1], signal.SIGCONT)
    _until(sleepers[1], "S")
    (again,) = watch.look(sleepers, {}, 11 * LASTS_NS["stopped"])
    assert (again.rank, again.state) == (1, "running")


def test_ranks_that_are_stopped_one_after_the_other_are_told_together(
    sleepers: dict[int, int],
) -> None:
    watch = ProcessWatch(Origin("n1", start_ns=1), "llama")
    os.kill(sleepers[0], signal.SIGSTOP)
    _until(sleepers[0], "T")
    watch.look(sleepers, {}, 0)
    os.kill(sleepers[1], signal.SIGSTOP)
    _until(sleepers[1], "T")
    told = watch.look(sleepers, {}, LASTS_NS["stopped"])
    assert [(each.rank, each.others) for each in told] == [(0, ""), (1, "")]


def test_a_process_that_is_gone_is_not_told_of() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    watch = ProcessWatch(Origin("n1", start_ns=1), "llama")
    watch.look({0: gone.pid}, {}, 0)
    assert watch.look({0: gone.pid}, {}, 10**12) == []
