"""Promises of simulated flight recorders: the same fault leaves the pattern that real dumps show.

The real ones are in data/nvrx_fr_traces: a Megatron job of 16 ranks into which faults were
injected, two ranks at a time. Compared is which ranks are behind in which groups, in what they
enqueued and in what completed; not by how many operations, for that depends on the model.
"""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from nemesis.sim.jobs.job import Job
from nemesis.sim.jobs.recorder import Recorder
from tests.simulated_jobs import MS, SECOND, job_of, trained

DATA = Path(__file__).parent.parent / "data" / "nvrx_fr_traces"
TRUTH: dict[str, list[int]] = json.loads((DATA / "truth.json").read_text())
COMPARED = ("TENSOR_MODEL_PARALLEL_GROUP", "EXPERT_MODEL_PARALLEL_GROUP")
Dump = dict[str, Any]
Pattern = dict[tuple[int, ...], tuple[set[int], set[int]]]
"""By the ranks of a group: who is behind in what was enqueued, and in what has completed."""


def real(run: str) -> dict[int, Dump]:
    return {
        rank: pickle.loads((DATA / run / f"_dump_{rank}").read_bytes())  # noqa: S301 our own copy
        for rank in range(16)
    }


def size_of(dumps: dict[int, Dump], description: str) -> int:
    groups = dumps[0]["pg_config"].values()
    ranks = next(each["ranks"] for each in groups if each["desc"] == description)
    return len(json.loads(ranks))


def behind(dumps: dict[int, Dump], description: str) -> Pattern:
    """Group names are not told of in `pg_status`; ranks of one stage made theirs in one order."""
    ids = {
        entry["process_group"][0]: str(entry["pg_id"])
        for dump in dumps.values()
        for entry in dump["entries"]
        if entry["process_group"][1] == description
    }
    pattern: Pattern = {}
    for dump in dumps.values():
        for name, group in dump["pg_config"].items():
            if name not in ids:
                continue
            ranks = json.loads(group["ranks"])
            status = {rank: dumps[rank]["pg_status"][ids[name]] for rank in ranks}
            lags = [
                {
                    rank
                    for rank in ranks
                    if status[rank][what] < max(s[what] for s in status.values())
                }
                for what in ("last_enqueued_collective", "last_completed_collective")
            ]
            pattern[tuple(ranks)] = (lags[0], lags[1])
    return pattern


def simulated(job: Job, now_ns: int) -> dict[int, Dump]:
    recorder = Recorder(is_timed=False, only_active=True, past_steps_max=0)
    return {rank: recorder.dump(job, rank, now_ns) for rank in job.ranks}


def the_same_fault(run: str, dumps: dict[int, Dump]) -> dict[int, Dump]:
    tp, pp, ep = (
        size_of(dumps, f"{kind}_PARALLEL_GROUP")
        for kind in ("TENSOR_MODEL", "PIPELINE_MODEL", "EXPERT_MODEL")
    )
    job = trained(job_of(2, tp=tp, pp=pp, ep=ep, microbatches=8), 5_900 * MS)
    for rank in TRUTH[run]:
        if run.startswith("gpu_error"):
            job.blind(rank)  # its watchdog sees nothing complete after a CUDA error
        if (run, rank) != ("gpu_error_1st", 14):  # there the other one's error came first
            job.halt(rank)
    return simulated(trained(job, 60 * SECOND), 60 * SECOND)


@pytest.mark.parametrize("run", sorted(TRUTH))
@pytest.mark.parametrize("description", COMPARED)
def test_the_same_ranks_are_behind_in_the_same_groups_as_in_reality(
    run: str, description: str
) -> None:
    dumps = real(run)
    there, here = behind(dumps, description), behind(the_same_fault(run, dumps), description)
    assert {ranks for ranks in there if set(ranks) & set(TRUTH[run])} <= here.keys()
    for ranks in there.keys() & here.keys():
        assert here[ranks] == there[ranks], ranks


@pytest.mark.parametrize("run", sorted(TRUTH))
def test_the_ranks_that_have_nothing_open_are_those_of_reality(run: str) -> None:
    dumps = real(run)
    here = the_same_fault(run, dumps)
    for rank in range(16):
        assert bool(here[rank]["entries"]) is bool(dumps[rank]["entries"]), rank


@pytest.mark.parametrize("run", sorted(TRUTH))
def test_entries_have_the_fields_and_the_types_of_real_ones(run: str) -> None:
    dumps = real(run)
    here = the_same_fault(run, dumps)[0]
    assert list(here) == list(dumps[0])
    for entry in here["entries"]:
        like = next(e for e in dumps[0]["entries"] if e["is_p2p"] is entry["is_p2p"])
        assert list(entry) == list(like)
        assert [type(value) for value in entry.values()] == [type(v) for v in like.values()]


def test_version_2_10_names_the_library_as_torch_does() -> None:
    job = trained(job_of(1), 5 * SECOND)
    dump = Recorder(version="2.10").dump(job, 0, 5 * SECOND)
    assert (dump["version"], dump["comm_lib_version"]) == ("2.10", "2.27.3")
    assert "nccl_version" not in dump


def test_a_ring_keeps_its_newest_entries_and_counts_all() -> None:
    job = trained(job_of(1, tp=2), 30 * SECOND)
    whole = Recorder(past_steps_max=100).dump(job, 0, 30 * SECOND)["entries"]
    ring = Recorder(capacity=7, past_steps_max=100).dump(job, 0, 30 * SECOND)["entries"]
    assert [each["record_id"] for each in ring] == [each["record_id"] for each in whole[-7:]]
    numbers = [each["record_id"] for each in whole]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
