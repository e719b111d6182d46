"""Promises of simulated flight recorders: batches as torch records them, digests as of dumps."""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from nemesis.producers.flight_recorder import read_dump
from nemesis.producers.origin import Origin
from nemesis.sim.jobs.job import Job
from nemesis.sim.jobs.recorder import DIGEST_ENTRIES, Recorder, recorded
from tests.simulated_jobs import MS, SECOND, job_of, trained

Entry = dict[str, Any]
PIPELINE = "PIPELINE_MODEL_PARALLEL_GROUP"
CONTEXT = "CONTEXT_PARALLEL_GROUP"
TENSOR = "TENSOR_MODEL_PARALLEL_GROUP"


def dumped(job: Job, at_ns: int, **settings: Any) -> dict[int, dict[str, Any]]:
    recorder = Recorder(past_steps_max=100, **settings)
    return {rank: recorder.dump(job, rank, at_ns) for rank in job.ranks}


def entries_of(dump: dict[str, Any], description: str) -> list[Entry]:
    return [each for each in dump["entries"] if each["process_group"][1] == description]


def batches_of(entries: list[Entry]) -> list[list[Entry]]:
    found: dict[int, list[Entry]] = defaultdict(list)
    for each in entries:
        found[each["p2p_seq_id"]].append(each)
    return [found[number] for number in sorted(found)]


@pytest.mark.parametrize("is_timed", [True, False])
def test_a_batch_is_recorded_as_torch_promises(is_timed: bool) -> None:
    """pytorch/pytorch, test/distributed/test_c10d_nccl.py, test_batched_send_recv."""
    job = trained(job_of(1, tp=2, pp=4, microbatches=4), 3_500 * MS)
    dump = dumped(job, 3_001 * MS, is_timed=is_timed)[2]
    batches = batches_of(entries_of(dump, PIPELINE))
    assert {len(batch) for batch in batches} == {2, 3}
    calls = 0
    for number, (*members, closing) in enumerate(batches, 1):
        for each in members:
            calls += 1
            assert each["op_id"] == calls
            assert each["profiling_name"].split()[0] in {"nccl:send", "nccl:recv"}
            assert (each["state"], each["retired"]) == ("scheduled", False)
            assert each["input_sizes"] == each["output_sizes"] != []
        assert closing["profiling_name"] == "nccl:coalesced"
        assert closing["input_sizes"] == closing["output_sizes"] == []
        assert (closing["op_id"], closing["is_p2p"]) == (calls, True)
        assert {each["p2p_seq_id"] for each in (*members, closing)} == {number}
        assert {each["collective_seq_id"] for each in (*members, closing)} == {0}
        places = [each["record_id"] for each in (*members, closing)]
        assert places == list(range(places[0], places[0] + len(places)))
    status = dump["pg_status"][str(batches[0][0]["pg_id"])]
    completed = sum(batch[-1]["state"] == "completed" for batch in batches)
    assert 0 < status["last_completed_collective"] == completed
    assert status["last_enqueued_collective"] == len(batches)


@pytest.mark.parametrize(("cp", "is_batched"), [(2, True), (4, False)])
def test_around_a_ring_only_two_call_in_a_batch(cp: int, is_batched: bool) -> None:
    job = trained(job_of(1, cp=cp), 1_500 * MS)
    dumps = dumped(job, 1_500 * MS)
    entries = entries_of(dumps[0], CONTEXT)
    names = {each["profiling_name"] for each in entries}
    assert names == {f"nccl:send 0->{1}", f"nccl:recv 0<-{cp - 1}"} | (
        {"nccl:coalesced"} if is_batched else set()
    )
    numbers = [each["p2p_seq_id"] for each in entries]
    assert (len(set(numbers)) < len(numbers)) is is_batched
    # who stands at an odd place receives first: nobody waits for nobody to begin
    odd = entries_of(dumps[1], CONTEXT)
    assert entries[0]["profiling_name"].startswith("nccl:send")
    assert odd[0]["profiling_name"].startswith("nccl:recv")


def transfers(dumps: dict[int, dict[str, Any]], description: str) -> dict[Any, list[Any]]:
    """What was sent, and what was received, from one rank to another: sizes in order."""
    found: dict[Any, list[Any]] = defaultdict(list)
    for rank, dump in dumps.items():
        for each in entries_of(dump, description):
            what, _, ends = each["profiling_name"].removeprefix("nccl:").partition(" ")
            if ends:
                group = dump["pg_config"][each["process_group"][0]]["ranks"]
                order = [int(number) for number in group.strip("[]").split(", ")]
                one, two = map(int, ends.replace("<-", "->").split("->"))
                assert order[one] == rank
                way = (rank, order[two]) if what == "send" else (order[two], rank)
                found[what, way].append(each["input_sizes"])
    return found


@pytest.mark.parametrize(
    "layout",
    [
        {"pp": 2, "tp": 4},
        {"pp": 4, "tp": 2},
        {"cp": 2},
        {"cp": 4},
        {"pp": 8},
        {"pp": 4, "chunks": 4},
        {"pp": 2, "chunks": 2},
    ],
)
def test_between_steps_every_send_was_received(layout: dict[str, Any]) -> None:
    """What torch's analyzer asks for (flight_recorder/components/utils.py, rules 1 to 3), between
    all pairs; it looks for the peer of a receive at the receiver (issue 139280)."""
    twin = trained(job_of(1, microbatches=8, **layout), 2_900 * MS)
    before_ns = twin.recent[-1].done.at_ns - 1  # all are in the step's last collective
    dumps = dumped(trained(job_of(1, microbatches=8, **layout), before_ns), before_ns)
    for description in (PIPELINE, CONTEXT):
        found = transfers(dumps, description)
        for (what, way), sizes in found.items():
            assert found[("recv" if what == "send" else "send"), way] == sizes
        assert found or description not in str(dumps[0]["pg_config"])


def test_a_stuck_rank_leaves_what_its_neighbours_sent_unreceived() -> None:
    job = trained(job_of(1, tp=2, pp=4, microbatches=8), 2_500 * MS)
    job.stick(2)
    found = transfers(dumped(trained(job, 60 * SECOND), 60 * SECOND), PIPELINE)
    sent = {way: len(sizes) for (what, way), sizes in found.items() if what == "send"}
    received = {way: len(sizes) for (what, way), sizes in found.items() if what == "recv"}
    assert sent[0, 2] > received[0, 2], "2 never came to take it"
    assert received[4, 2] == sent[4, 2], "they wait for one another in good order"


FAULTS: dict[str, Callable[[Job], object]] = {
    "none": lambda job: None,
    "stuck": lambda job: job.stick(5),
    "halted": lambda job: job.halt(5),
    "blind": lambda job: job.blind(5),
    "dead": lambda job: job.kill(5, -9),
    "another operation": lambda job: job.stray(5, "operation"),
    "another size": lambda job: job.stray(5, "size"),
    "another order": lambda job: job.stray(5, "order"),
}


LAYOUTS: list[dict[str, Any]] = [
    {},
    {"pp": 4, "tp": 2},
    {"cp": 2, "ep": 2},
    {"cp": 4},
    {"tp": 2, "pp": 4, "chunks": 2},
    {"tp": 2, "ep": 4, "pp": 2},
]


@pytest.mark.parametrize(
    ("fault", "layout"),
    [
        *(("none", layout) for layout in LAYOUTS),
        *(("stuck", layout) for layout in LAYOUTS),
        *((fault, LAYOUTS[-1]) for fault in FAULTS if fault not in {"none", "stuck"}),
    ],
)
def test_a_digest_is_what_would_be_read_from_the_dump(fault: str, layout: dict[str, Any]) -> None:
    job = trained(job_of(2, microbatches=8, **layout), 2_300 * MS)
    FAULTS[fault](job)
    origin = Origin("n0", start_ns=0)
    for now_ns in (2_310 * MS, 9 * SECOND):
        trained(job, now_ns)
        settings = Recorder(capacity=DIGEST_ENTRIES)
        if job.layout.is_plain:
            settings = Recorder(past_steps_max=len(job.recent))
        for rank in (0, 4, 5, 15):
            fact = recorded(origin, job, rank, now_ns)
            dump = read_dump(settings.dump(job, rank, now_ns))
            assert fact.groups == dump.groups
            assert (fact.entry_count, fact.trace_version) == (dump.entry_count, dump.version)
            assert fact.comm_lib_version == dump.comm_lib_version


def test_a_batch_that_waits_tells_whom_it_waits_for() -> None:
    job = trained(job_of(1, tp=2, pp=4, microbatches=8), 2_500 * MS)
    job.stick(4)
    digest = recorded(Origin("n0", start_ns=0), trained(job, 60 * SECOND), 2, 60 * SECOND)
    (pipeline,) = (each for each in digest.groups if each.desc == PIPELINE)
    assert pipeline.first_unfinished is not None
    assert pipeline.first_unfinished.peers == (4,)
    assert pipeline.first_unfinished.p2p


@pytest.mark.parametrize("is_timed", [True, False])
def test_of_active_work_alone_batches_that_are_over_are_not_taken_for_open(is_timed: bool) -> None:
    job = trained(job_of(1, tp=2, pp=4, microbatches=8), 2_500 * MS)
    job.halt(4)
    job = trained(job, 60 * SECOND)
    for rank in job.ranks:
        whole = Recorder(is_timed=is_timed).dump(job, rank, 60 * SECOND)
        active = Recorder(is_timed=is_timed, only_active=True).dump(job, rank, 60 * SECOND)
        assert [each.first_unfinished for each in read_dump(active).groups] == [
            each.first_unfinished for each in read_dump(whole).groups
        ]


def test_nothing_is_recorded_before_it_was_called() -> None:
    job = trained(job_of(1, tp=2, pp=4, microbatches=8), 2_900 * MS)
    for at_ns in range(2_100 * MS, 2_900 * MS, 100 * MS):
        for dump in dumped(job, at_ns).values():
            assert all(each["time_created_ns"] <= at_ns for each in dump["entries"])
