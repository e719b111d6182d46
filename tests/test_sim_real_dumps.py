"""Promises of simulated flight recorders: the same fault leaves the pattern that real dumps show.

The real ones are in data/nvrx_fr_traces: a Megatron job of 16 ranks into which faults were
injected, two ranks at a time. Compared is which ranks are behind in which groups, in what they
enqueued and in what completed; not by how many operations, for that depends on the model.
"""

import json
import pickle
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nemesis.producers.flight_recorder import read_dump
from nemesis.sim.jobs.inversions import enqueued_last, inverted
from nemesis.sim.jobs.job import Job
from nemesis.sim.jobs.layout import KIND_INDEX, Kind, Layout
from nemesis.sim.jobs.program import Operation, Program, programs_of
from nemesis.sim.jobs.recorder import Recorder
from nemesis.sim.jobs.stall import NEVER_NS, Solver, nothing_broken
from nemesis.sim.jobs.table import ProgramTable
from tests.simulated_jobs import MS, SECOND, job_of, trained

DATA = Path(__file__).parent.parent / "data" / "nvrx_fr_traces"
TRUTH: dict[str, list[int]] = json.loads((DATA / "truth.json").read_text())
COMPARED = ("TENSOR_MODEL_PARALLEL_GROUP", "EXPERT_MODEL_PARALLEL_GROUP")
PIPELINE = "PIPELINE_MODEL_PARALLEL_GROUP"
CHUNKS = 4
"""Of a stage's model in that job, as its counts of messages say."""
Dump = dict[str, Any]
Pattern = dict[tuple[int, ...], tuple[set[int], set[int]]]
"""By the ranks of a group: who is behind in what was enqueued, and in what has completed."""


@cache
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
            pattern[tuple(ranks)] = (
                lagging({rank: each["last_enqueued_collective"] for rank, each in status.items()}),
                lagging({rank: each["last_completed_collective"] for rank, each in status.items()}),
            )
    return pattern


def lagging(counts: dict[int, int]) -> set[int]:
    return {rank for rank, count in counts.items() if count < max(counts.values())}


def simulated(job: Job, now_ns: int) -> dict[int, Dump]:
    recorder = Recorder(is_timed=False, only_active=True, past_steps_max=0)
    return {rank: recorder.dump(job, rank, now_ns) for rank in job.ranks}


@cache
def the_same_fault(run: str) -> dict[int, Dump]:
    dumps = real(run)
    tp, pp, ep = (
        size_of(dumps, f"{kind}_PARALLEL_GROUP")
        for kind in ("TENSOR_MODEL", "PIPELINE_MODEL", "EXPERT_MODEL")
    )
    job = trained(job_of(2, tp=tp, pp=pp, ep=ep, microbatches=8, chunks=CHUNKS), 5_800 * MS)
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
    there, here = behind(dumps, description), behind(the_same_fault(run), description)
    assert {ranks for ranks in there if set(ranks) & set(TRUTH[run])} <= here.keys()
    for ranks in there.keys() & here.keys():
        assert here[ranks] == there[ranks], ranks


@pytest.mark.parametrize("run", sorted(TRUTH))
def test_the_ranks_that_have_nothing_open_are_those_of_reality(run: str) -> None:
    """Calls of batches that are over stay in a dump of what is active, and are not open."""
    dumps = real(run)
    here = the_same_fault(run)
    for rank in range(16):
        assert has_open(here[rank]) is has_open(dumps[rank]) is bool(dumps[rank]["entries"]), rank


def has_open(dump: Dump) -> bool:
    return any(each.first_unfinished is not None for each in read_dump(dump).groups)


@pytest.mark.parametrize("run", sorted(TRUTH))
def test_entries_have_the_fields_and_the_types_of_real_ones(run: str) -> None:
    dumps = real(run)
    here = the_same_fault(run)[0]
    assert list(here) == list(dumps[0])
    for entry in here["entries"]:
        like = next(e for e in dumps[0]["entries"] if e["is_p2p"] is entry["is_p2p"])
        assert list(entry) == list(like)
        assert [type(value) for value in entry.values()] == [type(v) for v in like.values()]


PAIRS = Layout(4, tp=2)
GLOO_STEP: Program = (
    Operation(
        kind="tp",
        name="_all_gather_base",
        share_ppm=100_000,
        sizes_in=(128,),
        sizes_out=(256,),
        host_waits=True,
    ),
    Operation(
        kind="world",
        name="all_reduce",
        share_ppm=900_000,
        sizes_in=(1024,),
        sizes_out=(1024,),
        host_waits=True,
    ),
)
"""A step of data/fr_samples: an all-gather in the pair, then an all-reduce of all."""
CULPRIT = 2


def gloo_lags(scenario: str) -> dict[tuple[int, ...], set[int]]:
    """By group of the real dumps: who has enqueued less than the others."""
    dumps = gloo(scenario)
    lags: dict[tuple[int, ...], set[int]] = {}
    for dump in dumps.values():
        for number, group in enumerate(dump["pg_config"].values()):
            ranks = [rank for rank in json.loads(group["ranks"]) if rank in dumps]
            counts = {
                rank: dumps[rank]["pg_status"][str(number)]["last_enqueued_collective"]
                for rank in ranks
            }
            lags[tuple(json.loads(group["ranks"]))] = lagging(counts)
    return lags


@pytest.mark.parametrize(
    ("scenario", "field", "at_ms"),
    [
        ("hang", "halted_ns", 50),
        ("missing_rank_subgroup", "halted_ns", 0),
        ("dead", "stopped_ns", 500),
        ("type_mismatch", "strays_ns", 500),
        ("size_mismatch", "strays_ns", 500),
        ("dtype_mismatch", "strays_ns", 500),
        ("ok", "strays_ns", NEVER_NS // MS),
        ("straggler", "strays_ns", NEVER_NS // MS),
    ],
)
def test_a_gloo_job_of_pairs_stalls_in_the_groups_of_its_real_dumps(
    scenario: str, field: str, at_ms: int
) -> None:
    table = ProgramTable((GLOO_STEP,))
    broken = nothing_broken(PAIRS, table)
    getattr(broken, field)[CULPRIT] = at_ms * MS
    own_ns = np.full(4, SECOND, np.int64)
    standing = Solver(PAIRS, table, 1).solve(np.zeros(4, np.int64), own_ns, broken, 0)
    position = standing.position(10 * SECOND)
    last = np.minimum(table.host_limit[0, position], standing.host_last)
    alive = [rank for rank in range(4) if field != "stopped_ns" or rank != CULPRIT]
    for ranks, lag in gloo_lags(scenario).items():
        kind: Kind = "world" if len(ranks) == 4 else "tp"
        counts = {
            rank: int(table.collectives[KIND_INDEX[kind], 0, last[rank] + 1])
            for rank in ranks
            if rank in alive
        }
        assert lagging(counts) == lag, ranks


def test_an_inverted_order_leaves_each_group_behind_where_its_real_dumps_do() -> None:
    table = ProgramTable((GLOO_STEP,))
    broken = nothing_broken(PAIRS, table)
    broken.strays_ns[CULPRIT], broken.inverts[CULPRIT] = 0, True
    own_ns = np.full(4, SECOND, np.int64)
    standing = Solver(PAIRS, table, 1).solve(np.zeros(4, np.int64), own_ns, broken, 0)
    programs = [inverted(GLOO_STEP, 0) if rank == CULPRIT else GLOO_STEP for rank in range(4)]
    position = standing.position(10 * SECOND).tolist()
    for ranks, lag in gloo_lags("order_inversion").items():
        kind: Kind = "world" if len(ranks) == 4 else "tp"
        counts = {
            rank: sum(
                each.kind == kind for each in program[: enqueued_last(program, position[rank]) + 1]
            )
            for rank, program in enumerate(programs)
            if rank in ranks
        }
        assert lagging(counts) == lag, ranks


def gloo(scenario: str) -> dict[int, Dump]:
    """The real dumps of data/fr_samples."""
    folder = DATA.parent / "fr_samples" / scenario
    return {
        int(path.name.removeprefix("rank_")): pickle.loads(path.read_bytes())  # noqa: S301
        for path in sorted(folder.glob("rank_?"))
    }


@pytest.mark.parametrize(
    ("scenario", "differs_in", "fields"),
    [
        ("type_mismatch", "operation", {"op"}),
        ("size_mismatch", "size", {"input_sizes", "output_sizes"}),
        ("dtype_mismatch", "dtype", {"dtypes"}),
    ],
)
def test_what_a_rank_called_otherwise_differs_in_the_fields_of_reality(
    scenario: str, differs_in: str, fields: set[str]
) -> None:
    job = trained(job_of(1), 5_900 * MS)
    job.stray(CULPRIT, differs_in)
    for dumps in (gloo(scenario), simulated(trained(job, 60 * SECOND), 60 * SECOND)):
        called = {rank: open_call(dump) for rank, dump in dumps.items()}
        others = [each for rank, each in called.items() if rank != CULPRIT]
        assert all(each == others[0] for each in others)
        odd = called[CULPRIT]
        assert {name for name, value in odd.items() if value != others[0][name]} == fields


def open_call(dump: Dump) -> dict[str, Any]:
    (world,) = (each for each in read_dump(dump).groups if each.name == "0")
    assert world.first_unfinished is not None
    names = ("seq", "op", "input_sizes", "output_sizes", "dtypes")
    return {name: getattr(world.first_unfinished, name) for name in names}


def every_dump() -> dict[str, Dump]:
    found = {f"{run}/{rank}": dump for run in TRUTH for rank, dump in real(run).items()}
    for folder in sorted((DATA.parent / "fr_samples").iterdir()):
        if folder.is_dir():
            found |= {f"{folder.name}/{rank}": each for rank, each in gloo(folder.name).items()}
    jobs = {
        "plain": job_of(1),
        "model": job_of(2, tp=2, pp=4, ep=2),
        "ring": job_of(1, cp=4, pp=2),
        "halted": job_of(2, tp=2, pp=2, ep=2),
        "interleaved": job_of(1, pp=4, chunks=4, microbatches=8),
    }
    for name, job in jobs.items():
        trained(job, 2_900 * MS)
        if name == "halted":
            job.halt(5)
            trained(job, 20 * SECOND)
        recorder = Recorder(past_steps_max=100)
        now_ns = 20 * SECOND if name == "halted" else 2_900 * MS
        found |= {f"{name}/{rank}": recorder.dump(job, rank, now_ns) for rank in job.ranks}
    return found


def test_real_and_simulated_dumps_count_by_the_same_rules() -> None:
    """Records one by one; collectives, and sends and receives, each by numbers of their group."""
    dumps = every_dump()
    assert len(dumps) == 64 + 35 + 8 + 16 + 8 + 16 + 8
    for name, dump in dumps.items():
        records = [each["record_id"] for each in dump["entries"]]
        assert records == sorted(set(records)), name
        for group in {each["pg_id"] for each in dump["entries"]}:
            counted_in_order(name, [each for each in dump["entries"] if each["pg_id"] == group])
            status = dump["pg_status"][str(group)]
            newest = [each for each in dump["entries"] if each["pg_id"] == group][-1]
            key = "p2p_seq_id" if newest["is_p2p"] else "collective_seq_id"
            assert status["last_enqueued_collective"] == newest[key], name
            assert status["last_completed_collective"] <= newest[key], name


def counted_in_order(name: str, entries: list[dict[str, Any]]) -> None:
    for is_p2p, key in ((False, "collective_seq_id"), (True, "p2p_seq_id")):
        numbers = [each[key] for each in entries if each["is_p2p"] is is_p2p]
        assert numbers == sorted(numbers), name
        if not is_p2p:
            assert len(set(numbers)) == len(numbers), name
    calls = [each["op_id"] for each in entries]
    assert calls == sorted(calls), name
    for one, two in pairwise(entries):
        closes = two["profiling_name"] == "nccl:coalesced"
        assert closes or two["op_id"] > one["op_id"], name


def sent_counts(dumps: dict[int, Dump]) -> dict[int, set[int]]:
    """By stage: how often its ranks have called the pipeline's group by now."""
    found: dict[int, set[int]] = {}
    for rank, dump in dumps.items():
        called = [each for each in dump["entries"] if each["process_group"][1] == PIPELINE]
        for each in called[-1:]:
            groups = (each for each in dump["pg_config"].values() if each["desc"] == PIPELINE)
            place = json.loads(next(groups)["ranks"]).index(rank)
            found.setdefault(place, set()).add(each["p2p_seq_id"])
    return found


@pytest.mark.parametrize("run", ["gpu_error_1st", "lock_gil_2nd"])
def test_the_ends_of_a_real_pipeline_send_an_eighth_less_as_four_chunks_do(run: str) -> None:
    programs = programs_of(Layout(4, pp=4), 8, CHUNKS)
    messages = [sum(len(each.messages) for each in program) for program in programs]
    assert messages[0] * 8 == messages[1] * 7
    assert (messages[0], messages[1]) == (messages[3], messages[2])
    counts = sent_counts(real(run))
    for end, between in ((0, 1), (0, 2), (3, 1), (3, 2)):
        for one in counts.get(end, ()):
            for two in counts.get(between, ()):
                # both count a job of many steps, and stand within one of the other
                assert abs(one * messages[1] - two * messages[0]) < messages[0] * messages[1]


@pytest.mark.parametrize("run", sorted(TRUTH))
def test_calls_of_real_stages_follow_each_other_as_in_a_schedule_that_interleaves(run: str) -> None:
    dumps = real(run)
    pp = size_of(dumps, PIPELINE)
    job = trained(job_of(2, tp=16 // pp // 2, pp=pp, chunks=CHUNKS, microbatches=8), 2_900 * MS)
    compared = 0
    for rank, dump in dumps.items():
        whole = Recorder(past_steps_max=2).dump(job, rank, 2_900 * MS)
        assert following(dump) <= following(whole), rank
        compared += len(following(dump))
    assert compared


def following(dump: Dump) -> set[tuple[str, str]]:
    """What a rank called in the pipeline, and what right after it."""
    calls = [each for each in dump["entries"] if each["process_group"][1] == PIPELINE]
    return {
        (one["profiling_name"], two["profiling_name"])
        for one, two in pairwise(calls)
        if two["op_id"] == one["op_id"] + 1
    }


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
