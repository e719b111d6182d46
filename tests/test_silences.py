"""Promises about silence: who is called silent, and who must never be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemesis.schemas.observed import NicDescribed, PortSeen, StackSeen
from tests.attribution_log import Log, cluster, step_block, xid


def run(log: Log, nodes: list[str], seconds: int, *, period_s: int = 5) -> None:
    """These nodes are polled, time goes on."""
    for second in range(seconds):
        if second % period_s == 0:
            for node in nodes:
                log.sample(node, period_ns=period_s * 1_000_000_000)
        log.tick(1)


NODES = [f"n{number}" for number in range(1, 9)]


def test_a_node_that_stops_reporting_is_named_with_its_ranks() -> None:
    log = cluster(*NODES)
    run(log, NODES, 10)
    run(log, NODES[1:], 25)
    assert [each.id for each in log.last.culprits] == ["node/n1"]
    assert (log.last.verdict, log.last.ranks) == ("attributed", (0, 1))
    assert "n1" in log.last.evidence[0].says
    run(log, NODES[1:], 100)
    assert len(log.verdicts) == 1


def test_a_node_that_tells_where_its_ranks_stand_is_not_silent() -> None:
    log = cluster(*NODES)
    run(log, NODES, 10)
    run(log, NODES[1:], 8)
    log.told("stack", StackSeen, "n1", job="llama", rank=0, state="still")
    run(log, NODES[1:], 12)
    assert not log.verdicts
    run(log, NODES[1:], 15)
    assert named(log) == ["node/n1"]


def test_a_node_that_polls_often_is_missed_soon_and_one_that_polls_seldom_is_not() -> None:
    log = cluster(*NODES)
    run(log, NODES, 4, period_s=1)
    run(log, NODES[1:], 7, period_s=1)
    assert log.last.culprits[0].id == "node/n1"
    log = cluster(*NODES)
    run(log, NODES, 60, period_s=30)
    run(log, NODES[1:], 60, period_s=30)
    assert not log.verdicts


@given(
    ended=st.sets(st.sampled_from(NODES), min_size=1),
    is_late=st.booleans(),
)
def test_a_node_whose_watching_ended_in_order_is_not_silent_until_it_is_heard_again(
    ended: set[str], is_late: bool
) -> None:
    log = cluster(*NODES)
    run(log, NODES, 10)
    said_ns = log.now_ns
    for node in sorted(ended):
        log.unwatched(node)
        if is_late:  # what was on its way comes behind the word that it was the last
            log.sample(node, period_ns=5_000_000_000, at_ns=said_ns - 1)
    others = [node for node in NODES if node not in ended]
    run(log, others, 40)
    assert not log.verdicts
    back = min(ended)
    run(log, [back, *others], 10)
    run(log, others, 25)
    assert named(log) == ([f"node/{back}"] if others else [])


def test_a_job_begins_beside_a_node_that_nobody_watches_any_more() -> None:
    log = cluster(*NODES)
    run(log, NODES, 10)
    log.submitted(*NODES, job="next")
    log.unwatched("n1")
    log.sample("n2", job="next")
    run(log, NODES[1:], 40)
    assert not log.verdicts


def test_that_an_earlier_life_of_a_producer_ended_says_nothing_of_the_one_that_watches() -> None:
    log = cluster(*NODES)
    said_ns = log.now_ns
    log.tick(1)
    run(log, NODES, 10)
    log.unwatched("n1", at_ns=said_ns)
    run(log, NODES[1:], 25)
    assert named(log) == ["node/n1"]


@given(
    heard=st.sets(st.sampled_from(NODES), min_size=1, max_size=2),
    apart_s=st.integers(0, 4),
)
def test_nobody_is_named_where_no_other_node_goes_on(heard: set[str], apart_s: int) -> None:
    log = cluster(*NODES)
    run(log, sorted(heard), 10)
    run(log, sorted(heard)[1:], apart_s)
    run(log, [], 60)
    assert named(log) == []


def test_a_node_that_serves_no_job_may_be_silent() -> None:
    log = cluster(*NODES)
    run(log, [*NODES, "spare"], 10)
    run(log, NODES, 60)
    assert not log.verdicts


def test_nodes_that_fall_silent_together_lost_a_network_not_their_lives() -> None:
    log = cluster(*NODES)
    run(log, NODES, 10)
    run(log, NODES[3:], 40)
    assert (log.last.verdict, log.last.fault_class) == ("class-only", "network.fabric")
    assert not log.last.culprits
    assert log.last.victims == ("node/n1", "node/n2", "node/n3")


def test_what_fell_silent_together_is_named_by_the_switch_it_shares() -> None:
    log = Log()
    for at, node in enumerate(NODES):
        port = f"port/leaf{1 if at < 4 else 2}/{at}"
        log.inventory(node, "0000:1b:00.0", nics=(NicDescribed(name="mlx5_0", switch_port=port),))
    log.submitted(*NODES, ranks_per_node=1)
    run(log, NODES, 10)
    run(log, NODES[3:], 40)
    assert "switch/leaf1" in log.last.reason


@pytest.mark.parametrize(
    ("up", "blamed"),
    [(False, ["rack/r1"]), (True, [])],
    ids=["no light", "light"],
)
def test_a_rack_whose_links_stay_up_has_power(up: bool, blamed: list[str]) -> None:
    log = Log()
    for at, node in enumerate(NODES):
        nics = (NicDescribed(name="mlx5_0", switch_port=f"port/leaf1/{at}"),)
        log.inventory(node, "0000:1b:00.0", nics=nics, rack=f"r{1 + at // 4}")
    log.submitted(*NODES, ranks_per_node=1)
    for second in range(50):
        silent = second >= 10
        if second % 5 == 0:
            for node in NODES[4:] if silent else NODES:
                log.sample(node, period_ns=5_000_000_000)
        ports = [PortSeen(port=str(at), up=up or not silent or at >= 4) for at in range(8)]
        log.fabric("leaf1", *ports)
        log.tick(1)
    assert named(log) == blamed
    assert log.last.verdict == ("insufficient" if up else "attributed")
    assert ("their links are up" in log.last.reason) == up


def below_one_leaf() -> Log:
    """A job of a rank a node, each node with a port of leaf1."""
    log = Log()
    for at, node in enumerate(NODES):
        nics = (NicDescribed(name="mlx5_0", switch_port=f"port/leaf1/{at}"),)
        log.inventory(node, "0000:1b:00.0", nics=nics)
    log.submitted(*NODES, ranks_per_node=1)
    return log


@pytest.mark.parametrize(("goes_on", "blamed"), [(True, []), (False, ["node/n1"])])
def test_a_node_with_light_is_not_named_before_its_job_is_known_to_stand(
    goes_on: bool, blamed: list[str]
) -> None:
    log = below_one_leaf()
    for second in range(200):
        step = second // 20 if goes_on else min(second // 20, 4)
        for at, node in enumerate(NODES[1:] if second > 85 else NODES, second > 85):
            row = {"rank": at, "step": step, "step_ns": 20_000_000_000, "own_ns": 9}
            steps = step_block(row)
            log.sample(node, job="llama", step_count=1, steps=steps, period_ns=1_000_000_000)
        log.fabric("leaf1", *(PortSeen(port=str(at), up=True) for at in range(8)))
        log.tick(1)
        assert second > 140 or named(log) == [], f"named {second - 85} s into a step of 20 s"
    assert named(log) == blamed


@pytest.mark.parametrize(
    ("up", "missed_count", "blamed"),
    [(True, 4, []), (True, 6, ["node/n1"]), (False, 4, ["node/n1"])],
    ids=["a few lost polls", "too many", "no light"],
)
def test_more_polls_of_a_node_with_light_must_be_missing_before_it_is_dead(
    up: bool, missed_count: int, blamed: list[str]
) -> None:
    log = below_one_leaf()
    run(log, NODES, 20)
    for _ in range(missed_count):
        ports = [PortSeen(port=str(at), up=up or at > 0) for at in range(8)]
        log.fabric("leaf1", *ports)
        run(log, NODES[1:], 5)
    assert named(log) == blamed


@pytest.mark.parametrize(("missed_count", "blamed"), [(8, []), (13, ["node/n1"])])
def test_of_a_node_that_loses_many_polls_more_must_be_missing(
    missed_count: int, blamed: list[str]
) -> None:
    log = below_one_leaf()
    for _ in range(40):
        run(log, NODES, 5)
        run(log, NODES[1:], 5)
    for _ in range(missed_count):
        log.fabric("leaf1", *(PortSeen(port=str(at), up=True) for at in range(8)))
        run(log, NODES[1:], 5)
    assert named(log) == blamed


def test_a_node_that_is_heard_without_being_polled_is_not_missed_for_want_of_polls() -> None:
    log = cluster(*NODES)
    run(log, NODES, 10)
    for _ in range(7):
        log.told("stack", StackSeen, "n1", job="llama", rank=0, state="still")
        run(log, NODES[1:], 12)
    run(log, NODES[1:], 60)
    assert not log.verdicts


@pytest.mark.parametrize(("polled", "verdict"), [(True, "no-fault"), (False, "attributed")])
def test_a_node_whose_polls_were_lost_on_their_way_is_not_dead_and_one_that_made_none_may_be(
    polled: bool, verdict: str
) -> None:
    log = cluster(*NODES)
    run(log, NODES, 10)
    for second in range(20):
        if polled and second % 5 == 0:
            log.lose("n1", "sample")
        run(log, NODES[1:] if second % 5 == 0 else [], 1)
    assert named(log) == ["node/n1"]
    run(log, NODES, 10)
    assert log.last.verdict == verdict


def stepping(log: Log, nodes: list[str], seconds: range, *, job: str, stands_at: int = 999) -> None:
    """These nodes are polled each second and tell of a step a second, up to one."""
    for second in seconds:
        for at, node in enumerate(NODES):
            if node in nodes:
                row = {"rank": at, "step": min(second, stands_at), "step_ns": 10**9, "own_ns": 9}
                steps = step_block(row)
                log.sample(node, job=job, step_count=1, steps=steps, period_ns=1_000_000_000)
        log.tick(1)


@pytest.mark.parametrize(("stands_at", "told"), [(999, []), (10, ["network.fabric"])])
def test_a_fabric_is_not_blamed_for_nodes_cut_off_from_the_log_whose_job_gets_on(
    stands_at: int, told: list[str]
) -> None:
    log = Log()
    for node in NODES:
        log.inventory(node, "0000:1b:00.0")
    log.submitted(*NODES, ranks_per_node=1)
    stepping(log, NODES, range(1, 10), job="llama")
    stepping(log, NODES[4:], range(10, 60), job="llama", stands_at=stands_at)
    assert [each.fault_class for each in log.verdicts] == told


def test_of_a_job_that_is_silent_as_a_whole_nobody_knows_whether_it_stands() -> None:
    log = Log()
    for at, node in enumerate(NODES):
        port = f"port/leaf{1 if at < 4 else 2}/{at}"
        log.inventory(node, "0000:1b:00.0", nics=(NicDescribed(name="mlx5_0", switch_port=port),))
    log.submitted(*NODES[:4], ranks_per_node=1)
    run(log, NODES, 10)
    run(log, NODES[4:], 40)
    assert (log.last.verdict, log.last.fault_class) == ("insufficient", "unknown")


def test_a_rack_that_is_dark_is_named_though_its_leaves_serve_others_too() -> None:
    log = Log()
    for at, node in enumerate(NODES):
        nics = (NicDescribed(name="mlx5_0", switch_port=f"port/leaf{at // 3}/{at}"),)
        log.inventory(node, "0000:1b:00.0", nics=nics, rack=f"rack0{at // 4}")
    log.submitted(*NODES, ranks_per_node=1)
    run(log, NODES, 10)
    run(log, NODES[4:], 20)
    assert [each.id for each in log.last.culprits] == ["rack/rack00"]
    assert len(log.verdicts) == 1


def test_a_peer_that_missed_a_poll_does_not_make_a_dead_node_live() -> None:
    log = cluster(*NODES)
    for second in range(1, 30):
        for at, node in enumerate(NODES):
            if (node == "n1" and second > 5) or (node == "n2" and second in (6, 7)):
                continue
            rows = [
                {"rank": rank, "step": min(second, 6), "step_ns": 1_000_000_000, "own_ns": 9}
                for rank in (2 * at, 2 * at + 1)
            ]
            steps = step_block(*rows)
            log.sample(node, job="llama", step_count=2, steps=steps, period_ns=1_000_000_000)
        log.tick(1)
    assert [each.id for each in log.last.culprits] == ["node/n1"]


CLUSTER = [f"n{number}" for number in range(1, 17)]


def congested(log: Log, late: list[str], on_time: list[str], seconds: int) -> None:
    """Of those that are late each is heard every 24 s, one after the other."""
    for second in range(seconds):
        due = [name for at, name in enumerate(late) if second % 24 == 3 * at]
        for name in [*due, *(on_time if second % 5 == 0 else ())]:
            log.sample(name, period_ns=5_000_000_000)
        log.tick(1)


def named(log: Log) -> list[str]:
    """Every component that was ever blamed."""
    return [each.id for verdict in log.verdicts for each in verdict.culprits]


def test_nobody_is_named_while_many_are_late_each_at_its_own_time() -> None:
    log = cluster(*CLUSTER)
    run(log, CLUSTER, 10)
    congested(log, CLUSTER[:8], CLUSTER[8:], 120)
    run(log, CLUSTER, 30)
    assert named(log) == []
    few = cluster(*CLUSTER)
    run(few, CLUSTER, 10)
    congested(few, CLUSTER[:2], CLUSTER[2:], 120)
    assert "node/n1" in named(few)


def test_a_node_that_stays_silent_is_named_once_the_others_are_heard_again() -> None:
    log = cluster(*CLUSTER)
    run(log, CLUSTER, 10)
    congested(log, CLUSTER[:8], CLUSTER[8:], 120)
    run(log, [name for name in CLUSTER if name != "n4"], 40)
    assert named(log) == ["node/n4"]


def test_a_switch_that_is_lost_while_others_are_late_is_told() -> None:
    log = Log()
    for at, node in enumerate(CLUSTER):
        port = f"port/leaf{1 + at // 4}/{at}"
        log.inventory(node, "0000:1b:00.0", nics=(NicDescribed(name="mlx5_0", switch_port=port),))
    log.submitted(*CLUSTER, ranks_per_node=1)
    run(log, CLUSTER, 10)
    congested(log, CLUSTER[4:12], CLUSTER[:4], 40)
    assert any("switch/leaf4" in verdict.reason for verdict in log.verdicts)
    assert named(log) == []


def test_two_nodes_that_die_apart_are_both_named() -> None:
    log = cluster(*NODES)
    run(log, NODES, 10)
    run(log, NODES[1:], 8)
    run(log, NODES[2:], 40)
    named = {each.id for verdict in log.verdicts for each in verdict.culprits}
    assert named == {"node/n1", "node/n2"}


def test_a_node_that_spooled_was_never_silent() -> None:
    log = cluster(*NODES)
    run(log, NODES, 10)
    run(log, NODES[1:], 25)
    assert log.last.verdict == "attributed"
    log.spooled("n1")
    log.tick(1)
    assert (log.last.verdict, log.last.fault_class) == ("no-fault", "none")
    assert not log.last.culprits


def test_a_node_that_announced_a_spool_is_not_called_silent_until_it_is_heard_again() -> None:
    log = cluster(*NODES)
    run(log, NODES, 10)
    log.spooled("n1")
    run(log, NODES[1:], 60)
    assert not log.verdicts
    run(log, NODES, 10)
    run(log, NODES[1:], 25)
    assert log.last.culprits[0].id == "node/n1"


def test_nobody_is_silent_when_time_stood_still() -> None:
    log = cluster(*NODES)
    run(log, NODES, 10)
    log.tick(600)
    run(log, NODES, 10)
    assert not log.verdicts


def test_that_nobody_is_heard_says_nothing_about_nodes() -> None:
    log = cluster(*NODES)
    run(log, NODES, 10)
    run(log, [], 60)
    assert not log.verdicts


def test_a_silent_node_with_a_dead_gpu_is_one_incident() -> None:
    log = cluster(*NODES)
    run(log, NODES, 10)
    log.kernel(xid(79), "n1")
    run(log, NODES[1:], 25)
    assert [each.id for each in log.last.culprits] == ["gpu/n1/0000:1b:00.0"]


def test_ranks_that_died_of_a_silent_node_are_not_blamed() -> None:
    log = cluster(*NODES)
    run(log, NODES, 10)
    log.exited(4, node="n3", exit_code=1)
    log.exited(8, node="n5", exit_code=1)
    run(log, NODES[1:], 25)
    assert [each.id for each in log.last.culprits] == ["node/n1"]


def test_a_job_that_starts_on_a_node_that_is_silent_already_learns_it() -> None:
    log = cluster(*NODES[1:])
    run(log, NODES, 10)
    run(log, NODES[1:], 40)
    log.submitted("n1", "spare", job="other")
    run(log, [*NODES[1:], "spare"], 60)
    assert log.verdicts == [], "it may wait in a queue"
    log.sample("spare", job="other", period_ns=5_000_000_000)
    run(log, [*NODES[1:], "spare"], 10)
    assert log.verdicts == [], "its agent may only be starting"
    run(log, [*NODES[1:], "spare"], 10)
    assert log.last.culprits[0].id == "node/n1"
    assert log.last.jobs == ("other",)


def test_nobody_misses_the_node_of_a_job_that_waits_though_its_agent_has_just_gone() -> None:
    log = cluster(*NODES[1:])
    run(log, NODES, 10)
    log.submitted("n1", job="other")
    run(log, NODES[1:], 60)
    assert log.verdicts == []
    run(log, NODES, 10)  # it begins
    run(log, NODES[1:], 25)
    assert [each.id for each in log.last.culprits] == ["node/n1"]


def test_a_node_that_nobody_ever_heard_is_not_missed_by_its_job() -> None:
    log = cluster(*NODES[1:])
    log.submitted("n1", "spare", job="other")
    for _ in range(6):
        log.sample("spare", job="other", period_ns=5_000_000_000)
        run(log, NODES[1:], 5)
    assert log.verdicts == []


def test_a_node_whose_first_poll_was_lost_is_polled_as_seldom_as_the_others() -> None:
    log = cluster(*NODES)
    log.tick(9)
    for node in NODES[1:]:
        log.sample(node, period_ns=10_000_000_000)
    log.tick(10)
    for node in NODES[1:]:
        log.sample(node, period_ns=10_000_000_000)
    log.tick(9)
    log.sample("n1", period_ns=10_000_000_000)
    log.tick(1)
    assert not log.verdicts


def test_a_rack_of_which_one_node_was_last_heard_a_poll_before_the_others_lost_its_power() -> None:
    log = Log()
    for at, node in enumerate(NODES):
        log.inventory(node, "0000:1b:00.0", "0000:1c:00.0", rack=f"r{at // 4}")
    log.submitted(*NODES)
    run(log, NODES, 10)
    run(log, [node for node in NODES if node != "n2"], 5)
    run(log, NODES[4:], 30)
    assert [each.id for each in log.last.culprits] == ["rack/r0"]


def test_where_nobody_was_heard_for_two_periods_the_log_is_silent_and_no_node() -> None:
    log = cluster(*NODES)
    run(log, NODES, 10, period_s=1)
    log.tick(1)
    for node in NODES[4:]:
        log.sample(node, period_ns=1_000_000_000)
    for _ in range(6):
        log.tick(1)
    assert not log.verdicts
    run(log, NODES[1:], 8, period_s=1)
    assert [each.id for each in log.last.culprits] == ["node/n1"]


def test_who_does_not_come_back_with_those_that_were_cut_off_with_it_is_named() -> None:
    log = Log()
    for at, node in enumerate(NODES):
        nic = NicDescribed(
            name="mlx5_0", pci="0000:40:00.0", switch_port=f"port/leaf{at // 4}/{at}"
        )
        log.inventory(node, "0000:1b:00.0", "0000:1c:00.0", nics=(nic,))
    log.submitted(*NODES)
    run(log, NODES, 10)
    run(log, NODES[4:], 25)
    assert not log.last.culprits
    for node in NODES[1:4]:
        log.spooled(node)
    run(log, NODES[1:], 30)
    assert [each.id for each in log.last.culprits] == ["node/n1"]


def test_a_node_that_falls_silent_long_after_a_switch_stopped_is_a_fault_of_its_own() -> None:
    log = Log()
    for at, node in enumerate(NODES):
        port = f"port/leaf{1 + at // 4}/{at}"
        log.inventory(node, "0000:1b:00.0", nics=(NicDescribed(name="mlx5_0", switch_port=port),))
    log.submitted(*NODES, ranks_per_node=1)
    for second in range(90):
        up = second < 20
        for leaf, ports in (("leaf1", range(4)), ("leaf2", range(4, 8))):
            log.fabric(leaf, *(PortSeen(port=str(at), up=up or at > 3) for at in ports))
        run(log, NODES[:-1] if second > 50 else NODES, 1, period_s=1)
    assert named(log)[0] == "switch/leaf1"
    assert named(log)[-1] == "node/n8"
    assert len({each.incident for each in log.verdicts}) == 2
