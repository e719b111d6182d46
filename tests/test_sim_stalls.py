"""Promises of stalls: what crosses the broken thing stops, and only then who waits for it."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from nemesis.sim.jobs.job import Job
from nemesis.sim.jobs.layout import KIND_INDEX, Kind, Layout
from nemesis.sim.jobs.network import Network
from nemesis.sim.jobs.program import programs_of
from nemesis.sim.jobs.stall import NEVER_NS, Broken, Solver, Standing, nothing_broken
from nemesis.sim.jobs.table import ProgramTable
from tests.simulated_jobs import MS, SECOND, job_of, trained
from tests.test_sim_layout import layouts

OWN_NS = SECOND
LAST_NS = 60 * MS


def solved(layout: Layout, table: ProgramTable, broken: Broken) -> Standing:
    own_ns = OWN_NS + np.arange(layout.world) % 7 * MS
    return Solver(layout, table, 3).solve(np.zeros_like(own_ns), own_ns, broken, LAST_NS)


def prepared(layout: Layout) -> tuple[ProgramTable, Broken]:
    table = ProgramTable(programs_of(layout, 3))
    return table, nothing_broken(layout, table)


@settings(max_examples=40)
@given(layouts())
def test_a_step_in_which_nothing_is_broken_is_finished_by_all(layout: Layout) -> None:
    table, broken = prepared(layout)
    standing = solved(layout, table, broken)
    finished = standing.position(NEVER_NS - 1) == table.lengths[layout.stages]
    assert finished.all()
    done_ns = standing.done_ns[standing.done_ns < NEVER_NS]
    assert done_ns.max() <= OWN_NS + 6 * MS + LAST_NS


@settings(max_examples=30)
@given(st.sampled_from([2, 3, 4]), st.integers(2, 4), st.integers(1, 3))
def test_a_step_whose_schedule_interleaves_is_finished_by_all_in_its_time(
    pp: int, chunks: int, rounds: int
) -> None:
    layout = Layout(2 * pp, tp=2, pp=pp)
    table = ProgramTable(programs_of(layout, rounds * pp, chunks))
    own_ns = np.full(layout.world, OWN_NS, np.int64)
    solver = Solver(layout, table, rounds * pp * chunks)
    standing = solver.solve(np.zeros_like(own_ns), own_ns, nothing_broken(layout, table), LAST_NS)
    finished = standing.position(NEVER_NS - 1) == table.lengths[layout.stages]
    assert finished.all()
    assert standing.done_ns[standing.done_ns < NEVER_NS].max() <= OWN_NS + LAST_NS


@settings(max_examples=60)
@given(layouts(), st.data())
def test_nobody_waits_but_for_somebody_who_does_not_come(
    layout: Layout, data: st.DataObject
) -> None:
    """The fixed point: who waits in a collective misses a member of its group there."""
    table, broken = prepared(layout)
    rank = data.draw(st.integers(0, layout.world - 1))
    at_ns = data.draw(st.integers(0, 1_100)) * MS
    what = data.draw(st.sampled_from(["stopped_ns", "halted_ns"]))
    getattr(broken, what)[rank] = at_ns
    standing = solved(layout, table, broken)
    position = standing.position(NEVER_NS - 1)
    waits = standing.waiting_since_ns() < NEVER_NS
    for each in np.flatnonzero(waits).tolist():
        use = table.uses[int(table.use[layout.stages[each], position[each]])]
        kind, pattern = use
        if pattern == "exchange":
            continue
        group = layout.group_of(each, kind).ranks
        calls = {_calls(table, layout, kind, other, int(position[other])) for other in group}
        arrived = [bool(waits[other]) and position[other] == position[each] for other in group]
        assert len(calls) > 1 or not all(arrived) or rank in group
    early = standing.done_ns < at_ns
    healthy = solved(layout, table, nothing_broken(layout, table))
    assert (standing.done_ns[early] == healthy.done_ns[early]).all()


def _calls(table: ProgramTable, layout: Layout, kind: Kind, rank: int, position: int) -> int:
    return int(table.collectives[KIND_INDEX[kind], layout.stages[rank], position])


def waiting(job: Job, now_ns: int) -> dict[int, tuple[int, str]]:
    """By rank that waits: since when, and in which kind of group."""
    since = job.waits_ns(now_ns)
    position = job.standings.now().position(now_ns)
    found: dict[int, tuple[int, str]] = {}
    for rank in np.flatnonzero(since < NEVER_NS).tolist():
        use = job.programs.use[job.layout.stages[rank], position[rank]]
        found[rank] = (int(since[rank]), job.programs.uses[int(use)][0])
    return found


def test_a_stall_spreads_from_the_tensor_group_to_the_pipeline_to_all() -> None:
    job = trained(job_of(4, tp=4, pp=4), 5_500 * MS)
    job.stick(10)
    seen = waiting(trained(job, 20 * SECOND), 20 * SECOND)
    peers = [seen[rank] for rank in job.layout.group_of(10, "tp").ranks if rank != 10]
    assert {kind for _, kind in peers} == {"tp"}
    pipeline = {rank for each in (8, 9, 10, 11) for rank in job.layout.group_of(each, "pp").ranks}
    through_it = [seen[rank] for rank in sorted(pipeline - {8, 9, 10, 11})]
    assert {kind for _, kind in through_it} == {"pp"}
    elsewhere = [seen[rank] for rank in range(32) if rank not in pipeline]
    assert {kind for _, kind in elsewhere} <= {"dp_cp"}
    assert max(*peers, *through_it)[0] < min(elsewhere)[0]


def test_a_cut_nic_stops_what_leaves_its_node_there_and_nothing_inside() -> None:
    job = trained(job_of(2, tp=8), 5_500 * MS)
    job.cut("n1", 3)
    seen = waiting(trained(job, 20 * SECOND), 20 * SECOND)
    # gradients of rank 3 and of rank 11 meet over that NIC; all others got on to the norm
    assert {rank for rank, (_, kind) in seen.items() if kind == "dp_cp"} == {3, 11}
    assert {kind for rank, (_, kind) in seen.items() if rank not in (3, 11)} == {"mp"}
    job.mend("n1", 3, 20 * SECOND)
    before = job.step
    trained(job, 25 * SECOND)
    assert job.step > before


def test_a_broken_nvlink_domain_stops_its_own_tensor_groups_first() -> None:
    job = trained(job_of(2, tp=4, pp=2), 5_500 * MS)
    job.network.cut_domain("n1")
    job.rewired(0)
    seen = waiting(trained(job, 20 * SECOND), 20 * SECOND)
    assert {kind for rank, (_, kind) in seen.items() if rank >= 8} == {"tp"}
    assert "tp" not in {kind for rank, (_, kind) in seen.items() if rank < 8}


def test_two_nodes_that_lose_each_other_stop_the_ring_only_if_they_are_neighbours() -> None:
    for other, stalls in (("n1", True), ("n2", False)):
        job = trained(job_of(4), 5_500 * MS)
        job.network.cut_pair(("n0", 3), (other, 3))
        job.rewired(0)
        before = job.step
        trained(job, 10 * SECOND)
        assert (job.step == before) is stalls


def test_a_rack_of_nvlink_needs_no_nic_inside() -> None:
    job = job_of(2, tp=8, network=Network(lambda node: "rack"))
    job.cut("n1", 3)
    assert trained(job, 5 * SECOND).step > 0


def test_a_replica_that_lost_a_rank_does_not_go_on_and_without_it_the_others_do() -> None:
    job = trained(job_of(2, tp=4), 5 * SECOND)
    for members, goes_on in (([r for r in range(16) if r != 5], False), (list(range(8, 16)), True)):
        for rank in range(16):
            job.hold(rank)
        for rank in members:
            job.join(rank, 1 if not goes_on else 2, members, 6 * SECOND)
        before = job.step
        trained(job, 12 * SECOND if not goes_on else 20 * SECOND)
        assert (job.step > before) is goes_on


def test_a_host_that_stops_lets_its_gpu_finish_what_was_enqueued() -> None:
    job = trained(job_of(2, tp=2, ep=8), 5_500 * MS)
    job.halt(5)
    standing = trained(job, 20 * SECOND).standings.now()
    last = job.standings.enqueued_last(5, standing, 20 * SECOND)
    assert int(standing.position(20 * SECOND)[5]) == last + 1
    other = job.standings.enqueued_last(4, standing, 20 * SECOND)
    assert other > last


def test_equal_jobs_stall_equally() -> None:
    one, two = (trained(job_of(2, tp=4, pp=2, ep=2), 5_500 * MS) for _ in range(2))
    for job in (one, two):
        job.stick(6)
    assert waiting(one, 20 * SECOND) == waiting(two, 20 * SECOND)
