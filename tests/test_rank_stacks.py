"""Promises of ranks' stacks: who is stuck is named soon, who works alone is waited for."""

import faulthandler
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nemesis.processors.attribution.stack_places import place_of
from nemesis.producers.origin import Origin
from nemesis.producers.rank_stack import look_at, main_frames, stack_of
from nemesis.schemas.observed import StackSeen
from nemesis.sim.faults.scenario import ANYTHING, Scenario
from nemesis.sim.jobs import stacks
from nemesis.sim.offline import OfflineRun, run_offline
from nemesis.sim.topology.cluster import Cluster
from tests.attribution_log import SECOND_NS, Log
from tests.kind_runs import CLUSTER, planned_of
from tests.test_collectives import blamed, group

LOCK = ("wait (python3.11/threading.py:327)", "step (/w/train.py:9)", "<module> (/w/train.py:20)")
OWN = ("hold (/w/hooks.py:9)", "step (/w/train.py:9)", "<module> (/w/train.py:20)")
IDLE: dict[str, Any] = {"state": "still", "looked_ns": 8 * SECOND_NS, "waits_in": "futex_do_wait"}


def seen(log: Log, rank: int, frames: tuple[str, ...], **fields: Any) -> None:
    """An agent looked twice at a rank."""
    fields = {**IDLE, "job": "llama", "rank": rank, "frames": frames, **fields}
    log.told("stack", StackSeen, f"n{rank + 1}", **fields)


def waiting(*late: int) -> Log:
    """A job of four ranks in which some never called what the others wait in."""
    log = Log()
    log.submitted(*(f"n{rank + 1}" for rank in range(4)), ranks_per_node=1)
    for rank in range(4):
        enqueued = 4 if rank in late else 5
        log.digest(rank, group("0", "0-3", 4, enqueued=enqueued), node=f"n{rank + 1}")
    return log


@pytest.mark.parametrize(
    ("frames", "fields"),
    [
        (LOCK, {}),
        (OWN, {}),
        (OWN, {"waits_in": "hrtimer_nanosleep", "ran_ns": SECOND_NS // 100}),
        (("destroy_process_group (x.py:3)", "main (/w/train.py:8)"), {"waits_in": "", "ran_ns": 9}),
        (("cmdloop (python3.11/cmd.py:126)", "interaction (python3.11/pdb.py:3)"), {}),
    ],
)
def test_a_rank_that_is_stuck_in_one_place_is_named_within_seconds(
    frames: tuple[str, ...], fields: dict[str, Any]
) -> None:
    log = waiting(2)
    seen(log, 2, frames, **fields)
    log.tick(3)
    assert (log.last.verdict, log.last.fault_class, blamed(log.last)) == (
        "attributed",
        "app.stall",
        [2],
    )
    assert frames[0] in log.last.reason
    assert "rank 2" in log.last.evidence[0].says
    assert not any("py-spy" in each for each in log.last.missing)
    log.tick(60)
    assert len(log.verdicts) == 1


@pytest.mark.parametrize(
    ("frames", "fields"),
    [
        (OWN, {"state": "moved"}),
        ((), {"state": "silent"}),
        (OWN, {"ran_ns": 8 * SECOND_NS, "process_ran_ns": 8 * SECOND_NS, "waits_in": ""}),
        (OWN, {"process_ran_ns": 4 * SECOND_NS}),
        (OWN, {"waits_in": "do_wait"}),
        (OWN, {"waits_in": ""}),
        (OWN, {"looked_ns": SECOND_NS}),
        (("read (site-packages/s3/client.py:3)", *OWN[1:]), {}),
        (("wait (python3.11/threading.py:3)", "result (futures.py:2)", "save (/w/train.py:7)"), {}),
        (("poll (/w/wait.py:3)", "evaluate (/w/train.py:8)"), {}),
        (("get (python3.11/queue.py:3)", "next_batch (/w/feed.py:8)"), {}),
    ],
)
def test_a_rank_that_may_be_at_work_is_waited_for_and_its_stack_is_told_of(
    frames: tuple[str, ...], fields: dict[str, Any]
) -> None:
    log = waiting(2)
    seen(log, 2, frames, **fields)
    log.tick(50)
    assert log.verdicts == []
    log.tick(12)
    assert blamed(log.last) == [2]
    assert ": rank 2 " in log.last.reason


def test_a_stuck_rank_beside_one_that_saves_is_not_named_before_the_save_must_be_over() -> None:
    log = waiting(1, 2)
    seen(log, 2, LOCK)
    seen(log, 1, ("save (site-packages/torch/serialization.py:3)",))
    log.tick(50)
    assert log.verdicts == []


def test_a_stack_alone_blames_nobody() -> None:
    log = waiting()
    seen(log, 2, LOCK)
    log.tick(50)
    assert log.verdicts == []


@given(st.lists(st.sampled_from([*LOCK, *OWN, "all_reduce (x.py:1)", "evaluate (y.py:2)", ""])))
def test_work_anywhere_in_a_stack_counts_wherever_the_thread_waits(frames: list[str]) -> None:
    assert (place_of(frames) == "evaluating") == ("evaluate (y.py:2)" in frames)


def test_what_simulated_ranks_do_is_read_as_what_it_is() -> None:
    places = {name: place_of(stacks.frames_of(each, 0)) for name, each in stacks.BUSY.items()}
    assert places == {
        "data": "loading",
        "save": "saving",
        "evaluation": "evaluating",
        "upload": "transferring",
        "compile": "compiling",
        "index": "loading",
        "program": "another program",
        "": "own code",
    }


IN_PARTS = replace(CLUSTER, jobs=(replace(CLUSTER.job, tp=2),))
"""Most ranks of a node are through with their step when one never comes to its last collective."""


def alone(kind: str, seed: int, cluster: Cluster = CLUSTER, **fields: Any) -> OfflineRun:
    """A run in which one rank does something by itself."""
    scenario = Scenario(
        name=kind,
        title=kind,
        faults=(replace(planned_of(kind), **fields),),
        expect=ANYTHING,
        duration_s=45.0,
    )
    with tempfile.TemporaryDirectory() as folder:
        return run_offline(cluster, scenario, seed=seed, folder=Path(folder))


def test_a_simulated_rank_that_waits_for_what_never_comes_is_named_before_half_a_minute() -> None:
    fields: dict[str, Any] = {"differs_in": "absent", "after_s": 8.0}
    runs = [alone("desync", 1, **fields), alone("desync", 2, IN_PARTS, **fields)]
    scores = [run.score.faults[0] for run in runs]
    assert all(each.culprit_right and (each.to_attribute_ms or 0) < 30_000 for each in scores)


def test_a_simulated_rank_that_evaluates_alone_is_waited_for() -> None:
    run = alone("lone-work", 1, does="evaluation", after_s=8.0)
    assert run.score.false_alarms == ()
    assert any(each.subject.endswith(".stack") for each in run.records)


DUMP = """Thread 0x00007f51 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 331 in wait
  <no Python frame>

Current thread 0x00007f52 (most recent call first):
  <no Python frame>

Thread 0x00007f53 (most recent call first):
  File "/v/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1773 in _call_impl
  File "/v/lib/python3.11/site-packages/torch/nn/functional.py", line 5 in linear
  File "/w/a (copy).py", line 6 in forward
  File "/w/train.py", line 13 in <module>
"""


def test_the_main_thread_is_the_last_of_a_dump_and_paths_begin_at_their_library() -> None:
    assert main_frames(DUMP) == (
        "linear (site-packages/torch/nn/functional.py:5)",
        "forward (/w/a (copy).py:6)",
        "<module> (/w/train.py:13)",
    )
    assert main_frames(DUMP + "...\n") == ()


@given(st.text(max_size=400))
def test_no_dump_is_too_broken(text: str) -> None:
    assert all(len(each) <= 200 for each in main_frames(text))


def test_a_deep_stack_keeps_its_ends() -> None:
    deep = "\n".join(f'  File "/w/m.py", line {at} in f{at}' for at in range(90))
    frames = main_frames(f"Thread 0x1 (most recent call first):\n{deep}\n")
    assert (len(frames), frames[0], frames[-1]) == (24, "f0 (/w/m.py:0)", "f89 (/w/m.py:89)")


def test_faulthandler_writes_what_is_read_here() -> None:
    def wait_here() -> None:
        ready.set()
        over.wait()

    ready, over = threading.Event(), threading.Event()
    thread = threading.Thread(target=wait_here)
    thread.start()
    ready.wait()
    with tempfile.TemporaryFile() as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        frames = main_frames(file.read().decode())
    over.set()
    thread.join()
    name = "test_faulthandler_writes_what_is_read_here"
    assert frames[0].startswith(name)
    assert not any("wait_here" in each for each in frames)


@contextmanager
def process(code: str) -> Iterator[int]:
    """A Python process that has begun with this."""
    words = [sys.executable, "-c", f"import time; print('go', flush=True); {code}"]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        running.stdout.readline()
        yield running.pid
        running.kill()


def looked_at(pid: int) -> StackSeen:
    looks = []
    for _ in range(2):
        time.sleep(0.1)
        looks.append(look_at(pid, DUMP.encode(), time.monotonic_ns()))
    return stack_of(Origin("n1", start_ns=1), job="llama", rank=0, pid=pid, looks=looks)


def test_the_kernel_tells_a_process_that_sleeps_from_one_that_runs() -> None:
    with process("time.sleep(60)") as asleep, process("exec('while True: pass')") as busy:
        sleeps, runs = looked_at(asleep), looked_at(busy)
    assert sleeps.state == runs.state == "still"
    assert sleeps.ran_ns == sleeps.process_ran_ns == 0
    assert "sleep" in sleeps.waits_in or not sleeps.waits_in
    assert runs.ran_ns > 0


def test_what_the_kernel_does_not_tell_counts_as_work(tmp_path: Path) -> None:
    looks = [look_at(7, DUMP.encode(), at_ns, proc=tmp_path) for at_ns in (10, 20)]
    fact = stack_of(Origin("n1", start_ns=1), job="llama", rank=0, pid=7, looks=looks)
    assert fact.ran_ns == fact.process_ran_ns == fact.looked_ns == 10
