"""Promises of `nemesis topology trace`: arrival traces, read or drawn, through the scheduler."""

import gzip
from pathlib import Path
from random import Random
from statistics import mean, median
from typing import Any

import msgspec
import pytest

from nemesis.sim.arrivals.published import PUBLISHED, run_s_of, sizes_of
from nemesis.sim.arrivals.reading import read_trace
from tests.commands import Ran, nemesis

HELIOS = """job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
1425511,uXBbc,vcJkd,8,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-10 04:55:09,36848,0
1425512,uVMrF,vchbv,0,16,1,FAILED,2020-06-09 18:41:27,2020-06-09 18:41:27,2020-06-09 18:45:36,249,0
1425513,uzqls,vcpDC,16,1,2,CANCELLED,2020-06-09 18:41:28,None,None,0,0
"""  # noqa: E501
KALOS = """job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,submit_time,start_time,end_time,fail_time,stop_time,duration,queue,gpu_time
dlctk696s0jbvitv,uf794,8,64.0,960,1000,100.0,Other,FAILED,2023-05-17 11:00:58+00:00,2023-05-17 11:01:08+00:00,2023-05-17 11:01:16+00:00,2023-05-17 11:01:16+00:00,,18,10.0,1152.0
"""  # noqa: E501
ROW = "job_id,gpu_num,submit_time,duration\n"
CLUSTER = """[cluster]
name = "four"
nodes = 4
sample_period_ms = 5000
[node]
kind = "dgx-h100"
[fabric]
kind = "fat-tree"
nodes_per_leaf = 2
spines = 1
[job]
name = "llama"
nodes = 4
world_min = 8
step_ms = 900
allreduce_ms = 100
checkpoint_steps = 50
stall_steps = 3
shrink_ms = 700
start_ms = 20000
on_log_loss = "wait"
grace_s = 30
"""


@pytest.fixture
def four(tmp_path: Path) -> str:
    """Four nodes of eight GPUs below two leaves."""
    path = tmp_path / "four.toml"
    path.write_text(CLUSTER)
    return str(path)


def trace(*arguments: str) -> Ran:
    return nemesis("topology", "trace", *arguments)


def test_files_are_read_as_their_publishers_describe_them(tmp_path: Path) -> None:
    helios, kalos = tmp_path / "cluster_log.csv", tmp_path / "trace_kalos.csv"
    helios.write_text(HELIOS)
    kalos.write_text(KALOS)
    read = read_trace(helios)
    (job,) = read.arrivals
    assert (job.job, job.team, job.gpu_count, job.run_s) == ("1425511", "vcJkd", 8, 36_848)
    assert (read.no_gpu_count, read.never_ran_count) == (1, 1)
    (job,) = read_trace(kalos).arrivals
    assert (job.team, job.gpu_count, job.run_s) == ("uf794", 64, 8)  # duration counts the queue too
    packed = tmp_path / "trace_kalos.csv.gz"
    packed.write_bytes(gzip.compress(KALOS.encode()))
    assert read_trace(packed).arrivals == (job,)


def test_what_is_drawn_has_the_marginals_that_are_published() -> None:
    for name, said in PUBLISHED.items():
        dice, (sizes, weights) = Random(name), sizes_of(said)
        assert sum(size * weight for size, weight in zip(sizes, weights, strict=True)) == (
            pytest.approx(said.gpus_mean)
        )
        assert sum(weights) == pytest.approx(1.0)
        runs_s = [run_s_of(said, dice) for _ in range(20_000)]
        assert median(runs_s) == pytest.approx(said.run_s_median, rel=0.05)
        assert 0.8 * said.run_s_mean < mean(runs_s) < 1.1 * said.run_s_mean
        assert max(runs_s) <= said.run_s_most


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others() -> None:
    drawn = ("--synthetic", "kalos", "--cluster", "topograph-nvl72", "--jobs", "40")
    one, again, other = (trace(*drawn, "--json", "--seed", seed) for seed in ("1", "1", "2"))
    assert one.returncode == 0, one.stderr
    assert (one.stdout, one.stdout == other.stdout) == (again.stdout, False)
    assert "all figures are simulated" in trace(*drawn).stdout


def test_a_course_that_can_be_checked_by_hand(four: str, tmp_path: Path) -> None:
    """Of four nodes three are taken for 100 s; all four, then one for 50 s, are asked for."""
    path = tmp_path / "hand.csv"
    path.write_text(
        ROW
        + "a,24,2023-03-01 00:00:00+08:00,100\n"
        + "b,32,2023-03-01 00:00:01+08:00,10\n"
        + "c,8,2023-03-01 00:00:02+08:00,50\n"
        + "d,4,2023-03-01 00:00:02+08:00,50\n"
        + "e,40,2023-03-01 00:00:02+08:00,50\n"
    )
    ran = trace(str(path), "--cluster", four, "--json")
    assert ran.returncode == 0, ran.stderr
    document: dict[str, Any] = msgspec.json.decode(ran.stdout)
    assert (document["simulated"], document["jobs"], document["left_out"]["small"]) == (True, 4, 1)
    ours, fifo, kubernetes = document["schedulers"]
    for row in (ours, fifo, kubernetes):
        assert (row["ran"], [each["job"] for each in row["refused"]]) == (3, ["e"])
    waits = [[each["most_s"] for each in row["waits"][:3]] for row in (ours, fifo, kubernetes)]
    assert waits == [[99, 0, 99], [108, 108, 99], [99, 0, 99]]
    assert [row["backfilled"] for row in (ours, fifo, kubernetes)] == [1, 0, 1]
    assert [row["span_s"] for row in (ours, fifo, kubernetes)] == [110, 160, 110]
    # while b waits: from second 1 to 2 and from 52 to 100 one node is free, and of no use to it
    assert (ours["waiting_s"], ours["free"], ours["unusable"]) == (99, 49 / 99 / 4, 1.0)
    # as it comes, c could have used it
    assert (fifo["waiting_s"], fifo["unusable"]) == (109, 1 / 99)
    assert ours["utilisation"] == 3 / 4
    text = trace(str(path), "--cluster", four).stdout
    assert "e (C1: 40 GPUs: never, the whole cluster holds 32)" in text
    small = trace(str(path), "--cluster", four, "--least", "1", "--json")
    assert msgspec.json.decode(small.stdout)["schedulers"][0]["ran"] == 4


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "empty, expected a CSV file"),
        ("job_id,gpu_num,duration\na,8,1\n", "no column submit_time, the file has job_id"),
        ("job_id,gpu_num,submit_time\na,8,1\n", "no column start_time"),
        (ROW + "a,8,yesterday,100\n", ":2: submit_time 'yesterday', expected 2020-06-09 18:41:01"),
        (ROW + "a,8,,100\n", ":2: submit_time is empty"),
        (ROW + "a,8,0001-01-01 00:00:00,100\n", ":2: submit_time '0001-01-01 00:00:00'"),
        (ROW + "a,many,2023-03-01,100\n", ":2: gpu_num 'many', expected a number"),
        (ROW + "a,8,2023-03-01,1e12\n", ":2: 8 GPUs for 1000000000000 s"),
        (ROW + "a,8,2023-03-01,9\n" * 2, ":3: job_id 'a' is there twice"),
        (ROW + ",8,2023-03-01,9\n", ":2: job_id: a name must have"),
        (ROW + "a,0,2023-03-01,9\n", "no job that ran on GPUs: 1 asked for no GPU"),
        (ROW + "a,4,2023-03-01,9\n", "has 8 to 32 GPUs, they have 4 to 4; a larger --cluster"),
        (ROW + "a,64,2023-03-01,9\n", "has 8 to 32 GPUs, they have 64 to 64; a larger --cluster"),
        ("\x1f\x8b\x08\x00", "the packed file is broken"),
        (ROW + "x" * 200_000, "field larger than field limit"),
    ],
)
def test_a_file_that_is_no_trace_is_told_in_one_line(
    four: str, tmp_path: Path, text: str, told: str
) -> None:
    path = tmp_path / "bad.csv"
    path.write_bytes(text.encode("latin-1"))
    ran = trace(str(path), "--cluster", four)
    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (2, "", 1)
    assert told in ran.stderr


def test_options_that_cannot_be_are_told_in_one_line(four: str, tmp_path: Path) -> None:
    for arguments, told in (
        ((), "a trace is a FILE or --synthetic"),
        (("x.csv", "--synthetic", "seren"), "a trace is a FILE or --synthetic"),
        ((str(tmp_path / "none.csv"),), "No such file"),
        (("--synthetic", "philly", "--least", "256"), "philly has no jobs of 256 to 1016 GPUs"),
    ):
        ran = trace(*arguments)
        assert (ran.returncode, ran.stderr.count("\n")) == (2, 1)
        assert told in ran.stderr
