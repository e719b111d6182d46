"""Promises of the simulated job: all step or none, nothing is lost, nobody goes on alone."""

from hypothesis import given, settings
from hypothesis import strategies as st

from nemesis.producers.origin import Origin
from nemesis.schemas.rank_ranges import parse_ranks
from nemesis.sim.jobs.job import Job
from nemesis.sim.jobs.recorder import recorded
from nemesis.sim.rendezvous import WAIT_NS, Rendezvous
from nemesis.sim.topology.cluster_file import load_cluster

MS = 1_000_000
SECOND = 1_000 * MS
CLUSTER = load_cluster()


def job(seed: int = 7) -> Job:
    return Job(CLUSTER.job, CLUSTER.job_nodes, CLUSTER.ranks_per_node, seed, start_ns=0)


def run(job: Job, from_ns: int, to_ns: int, quantum_ns: int = 50 * MS) -> None:
    for now_ns in range(from_ns, to_ns, quantum_ns):
        job.advance(now_ns)


def test_all_ranks_step_together() -> None:
    training = job()
    run(training, 0, 10 * SECOND)
    assert training.step == 9
    assert {rank.step for rank in training.ranks.values()} == {9}


@settings(max_examples=30)
@given(st.integers(20, 3000))
def test_how_often_one_looks_changes_nothing(quantum_ms: int) -> None:
    often, seldom = job(), job()
    run(often, 0, 6_001 * MS, 20 * MS)
    run(seldom, 0, 6_001 * MS, quantum_ms * MS)
    seldom.advance(6_000 * MS)
    assert seldom.history == often.history


def test_a_dead_rank_stalls_everybody_at_one_step() -> None:
    training = job()
    run(training, 0, 5 * SECOND)
    training.kill(17, -6)
    run(training, 5 * SECOND, 30 * SECOND)
    assert {rank.step for rank in training.ranks.values()} == {training.step}
    assert training.waiting_since_ns(3, 30 * SECOND) is not None
    assert training.waiting_since_ns(17, 30 * SECOND) is None


def test_survivors_go_on_from_their_last_step_without_repeating_one() -> None:
    training = job()
    run(training, 0, 5 * SECOND)
    stood = training.step
    training.kill(17, -6)
    survivors = sorted(training.ranks.keys() - {17})
    for number in survivors:
        training.hold(number)
    for number in survivors:
        training.join(number, 1, survivors, 6 * SECOND)
    run(training, 6 * SECOND, 12 * SECOND)
    steps = [(done.epoch, done.step, done.world) for done in training.history]
    assert (1, stood + 1, 111) in steps
    assert training.redone_count == 0
    assert training.restarts_count == 0


def test_an_epoch_that_one_member_was_not_told_of_does_not_step() -> None:
    training = job()
    run(training, 0, 3 * SECOND)
    training.kill(17, -6)
    survivors = sorted(training.ranks.keys() - {17})
    for number in survivors[:-1]:
        training.join(number, 1, survivors, 4 * SECOND)
    run(training, 4 * SECOND, 30 * SECOND)
    assert all(done.epoch == 0 for done in training.history)


def test_ranks_that_disagree_on_the_members_do_not_step() -> None:
    training = job()
    survivors = sorted(training.ranks.keys() - {17})
    for number in survivors:
        members = survivors if number % 2 else survivors[1:]
        training.join(number, 1, members, SECOND)
    run(training, SECOND, 30 * SECOND)
    assert training.history == []


def test_a_started_rank_is_counted_and_joins_at_the_given_step() -> None:
    training = job()
    run(training, 0, 5 * SECOND)
    training.kill(17, 1)
    members = sorted(training.ranks)
    for number in members:
        if number == 17:
            training.start(17, "n015", 1, members, 5 * SECOND, step=training.step)
        else:
            training.join(number, 1, members, 5 * SECOND)
    assert training.on_node("n015") == [training.ranks[17]]
    run(training, 5 * SECOND, 35 * SECOND)
    assert training.restarts_count == 1
    assert training.history[-1].world == 112
    assert training.redone_count == 0


def test_a_stuck_rank_is_a_live_process_that_never_arrives() -> None:
    training = job()
    training.stick(5)
    run(training, 0, 10 * SECOND)
    assert training.step == 0
    assert training.ranks[5].stage == "running"


def test_the_recorder_shows_who_waits_and_for_which_collective() -> None:
    training = job()
    run(training, 0, 5 * SECOND)
    training.stick(17)
    run(training, 5 * SECOND, 10 * SECOND)
    origin = Origin("n001", start_ns=1)
    waiting = recorded(origin, training, 0, 10 * SECOND).groups[0]
    behind = recorded(origin, training, 17, 10 * SECOND).groups[0]
    assert waiting.last_enqueued == behind.last_enqueued + 1
    assert waiting.first_unfinished is not None
    assert waiting.first_unfinished.seq == waiting.last_enqueued
    assert behind.first_unfinished is None
    assert parse_ranks(waiting.ranks) == tuple(range(112))


NODES = ("a", "b", "c", "d", "e")


def test_a_rendezvous_closes_at_once_when_everybody_came() -> None:
    place = Rendezvous(world_min=1)
    results = [place.come(1, node, [at], NODES, 0) for at, node in enumerate(NODES)]
    assert results[:4] == [None] * 4
    assert results[4] == frozenset(range(5))


def test_a_rendezvous_of_half_the_nodes_never_closes() -> None:
    place = Rendezvous(world_min=1)
    for at_ns in (0, 10 * WAIT_NS):
        assert place.come(1, "a", [0], NODES, at_ns) is None
        assert place.come(1, "b", [1], NODES, at_ns) is None


def test_a_rendezvous_of_most_nodes_closes_after_a_wait_and_stays_closed() -> None:
    place = Rendezvous(world_min=1)
    for node in "abc":
        assert place.come(1, node, [ord(node)], NODES, 0) is None
    closed = place.come(1, "a", [ord("a")], NODES, WAIT_NS)
    assert closed == frozenset(map(ord, "abc"))
    assert place.come(1, "e", [9], NODES, 2 * WAIT_NS) == closed


def test_a_rendezvous_with_too_few_ranks_never_closes() -> None:
    place = Rendezvous(world_min=6)
    for at, node in enumerate(NODES):
        assert place.come(1, node, [at], NODES, 10 * WAIT_NS) is None
