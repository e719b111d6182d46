"""Why a workload is slow, from what the kernel counted while somebody watched."""

import os
from pathlib import Path

import msgspec
import pytest

from nemesis.producers.node.explain import Explained, Explainer
from tests.commands import nemesis
from tests.node_trees import Tree

SECOND_NS = 1_000_000_000


class Watched:
    """A process 70 with numbers that the test turns."""

    def __init__(self, path: Path) -> None:
        self.tree = Tree(path)
        self.tree.write("proc/sys/kernel/task_delayacct", 1)
        self.tree.write("proc/70/cmdline", "python3\0train.py\0")
        self.tree.write("proc/70/cgroup", "0::/job\n")
        self.tree.write("proc/70/status", "Name: python3\nCpus_allowed_list:\t0-1,4\n")
        self.counted(70)

    def counted(
        self,
        pid: int,
        *,
        ran_ns: int = 0,
        waited_ns: int = 0,
        state: str = "R",
        blocked_ticks: int = 0,
        faults: int = 0,
    ) -> None:
        self.tree.process(pid, {}, ran_ns=ran_ns, waited_ns=waited_ns)
        self.tree.write(f"proc/{pid}/schedstat", f"{ran_ns} {waited_ns} 1\n")
        fields = ["0"] * 50
        fields[0], fields[9], fields[36], fields[39] = state, str(faults), "4", str(blocked_ticks)
        stat = f"{pid} (odd ) name) {' '.join(fields)}\n"
        self.tree.write(f"proc/{pid}/stat", stat)
        self.tree.write(f"proc/{pid}/task/{pid}/stat", stat)

    def begin(self) -> Explainer:
        return Explainer(self.tree.root, 70, SECOND_NS)

    def explain(self, explainer: Explainer) -> Explained:
        assert explainer.look()
        return explainer.explain(3 * SECOND_NS)


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def codes(explained: Explained) -> list[str]:
    return [reason.code for reason in explained.reasons]


def test_a_workload_that_waits_for_cpus_is_told_who_runs_there(watched: Watched) -> None:
    watched.counted(81)
    watched.tree.write("proc/81/status", "Cpus_allowed_list:\t4\n")
    watched.tree.write("proc/81/cmdline", "stress\0")
    watched.counted(82)
    watched.tree.write("proc/82/status", "Cpus_allowed_list:\t7\n")
    explainer = watched.begin()
    watched.counted(70, ran_ns=SECOND_NS, waited_ns=SECOND_NS)
    watched.counted(81, ran_ns=2 * SECOND_NS)
    watched.counted(82, ran_ns=2 * SECOND_NS)
    (reason,) = watched.explain(explainer).reasons
    assert (reason.code, reason.share_ppm) == ("run_queue", 500_000)
    assert "81 stress (100 % of a CPU)" in reason.says
    assert "82" not in reason.says  # it may not run where the workload may


def test_a_child_counts_with_its_parent(watched: Watched) -> None:
    watched.tree.write("proc/70/task/70/children", "71 ")
    watched.counted(71)
    explainer = watched.begin()
    watched.counted(71, ran_ns=SECOND_NS, waited_ns=SECOND_NS)
    explained = watched.explain(explainer)
    assert (codes(explained), explained.threads_count) == (["run_queue"], 2)


def test_a_quota_storage_faults_and_a_stop_are_told_apart(watched: Watched) -> None:
    watched.tree.write("sys/fs/cgroup/job/cpu.stat", "usage_usec 5\nthrottled_usec 0\n")
    explainer = watched.begin()
    watched.tree.write("sys/fs/cgroup/job/cpu.stat", "usage_usec 5\nthrottled_usec 800000\n")
    ticks = os.sysconf("SC_CLK_TCK") // 2
    watched.counted(70, state="T", blocked_ticks=ticks, faults=400)
    assert codes(watched.explain(explainer)) == ["stopped", "throttled", "storage", "major_faults"]


def test_memory_on_another_node_and_in_small_pages_is_told(watched: Watched) -> None:
    watched.tree.write("sys/devices/system/cpu/cpu4/node1/x", "")
    watched.tree.write("proc/70/numa_maps", "7f00 default anon=9 N0=6 N1=3 kernelpagesize_kB=4\n")
    rollup = "Anonymous: 4194304 kB\nAnonHugePages: 2048 kB\nSwap: 0 kB\n"
    watched.tree.write("proc/70/smaps_rollup", rollup)
    explained = watched.explain(watched.begin())
    assert codes(explained) == ["numa", "small_pages"]
    assert explained.reasons[0].share_ppm == 666_666


def test_a_workload_that_runs_when_it_wants_to_has_no_reason(watched: Watched) -> None:
    explainer = watched.begin()
    watched.counted(70, ran_ns=SECOND_NS, waited_ns=SECOND_NS // 100)
    assert watched.explain(explainer).reasons == ()


def test_one_that_hardly_wants_to_run_does_not_want_for_cpus(watched: Watched) -> None:
    explainer = watched.begin()
    watched.counted(70, ran_ns=1000, waited_ns=9000)
    assert watched.explain(explainer).reasons == ()


def test_a_process_that_ended_is_told_by_what_was_seen_of_it(watched: Watched) -> None:
    explainer = watched.begin()
    watched.counted(70, ran_ns=SECOND_NS, waited_ns=SECOND_NS)
    assert explainer.look()
    (watched.tree.path / "proc/70/task").rename(watched.tree.path / "gone")
    assert not explainer.look()
    assert codes(explainer.explain(3 * SECOND_NS)) == ["run_queue"]


def test_the_command_explains_a_process_and_a_command_of_this_machine() -> None:
    ran = nemesis("host", "explain", "--json", "--seconds", "0.1", str(os.getpid()))
    told = msgspec.json.decode(ran.stdout)
    assert (told["pid"], told["watched_ns"] > 0) == (os.getpid(), True)
    assert ran.returncode == int(bool(told["reasons"]))
    ran = nemesis("host", "explain", "--seconds", "0.1", "sleep", "9")
    assert "sleep 9" in ran.stdout


def test_what_cannot_be_watched_is_one_line() -> None:
    ran = nemesis("host", "explain", "999999999")
    assert (ran.returncode, ran.stderr.startswith("nemesis: no process 999999999")) == (3, True)
    for name in ("/no/such/command", "/", ""):
        ran = nemesis("host", "explain", name, "x")
        assert (ran.returncode, f"cannot start {name}" in ran.stderr) == (2, True)


@pytest.mark.parametrize(
    ("script", "code", "says"),
    [
        ("exit 7", 1, "it has ended, with exit status 7"),
        ("kill -9 $$", 1, "it has ended, by SIGKILL"),
        ("exit 0", 0, "it has ended, with exit status 0; nothing slowed it until then"),
    ],
)
def test_a_command_that_ends_is_told_how(script: str, code: int, says: str) -> None:
    ran = nemesis("host", "explain", "sh", "-c", script)
    assert (ran.returncode, says in ran.stdout) == (code, True)
    assert "runs when it wants to" not in ran.stdout


def test_a_process_that_is_dead_does_not_run_when_it_wants_to(watched: Watched) -> None:
    watched.counted(70, state="Z")
    explainer = watched.begin()
    assert not explainer.look()
    explained = explainer.explain(3 * SECOND_NS)
    assert codes(explained) == ["ended"]
    assert "zombie" in explained.ended
