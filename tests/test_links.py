"""Promises about links: which part is named, when nothing is, and how often it is said."""

from typing import Any

import pytest

from nemesis.schemas.channels import ABSENT, NIC_CHANNELS
from nemesis.schemas.observed import DeviceStateRead, NicDescribed, PortSeen
from tests.attribution_log import SECOND_NS, Log, nic_block, nic_state_block, wired
from tests.test_attribution import recovered
from tests.test_collectives import group

NODES = [f"n{number}" for number in range(1, 9)]
UP: dict[str, int] = {}
DOWN = {"port_up": 0, "link_downed_count": 1}
_NIC = NicDescribed(name="mlx5_0", pci="0000:40:00.0", switch_port="port/leaf1/1")
GONE: dict[str, int] = dict.fromkeys(NIC_CHANNELS, ABSENT)


def poll(log: Log, rows: dict[str, list[dict[str, int]]], seconds: int = 1, **port: Any) -> None:
    """Every node is polled each second, and so is leaf1; `port` is what it sees of n1."""
    for _ in range(seconds):
        for node in NODES:
            own = rows.get(node, [UP, UP, UP])
            log.sample(node, nic_count=3, nic=nic_block(*own), period_ns=SECOND_NS)
        ports = [
            PortSeen(port=str(at + 1), peer=f"nic/{node}/mlx5_0", **(port if node == "n1" else {}))
            for at, node in enumerate(NODES)
        ]
        log.fabric("leaf1", *ports)
        log.tick(1)


def named(log: Log) -> list[str]:
    return [each.id for each in log.last.culprits]


def test_lifetime_counters_prove_nothing() -> None:
    log = wired(*NODES)
    old = {"link_downed_count": 255, "symbol_error_count": 40_000}
    poll(log, {"n1": [old, UP, {"port_up": 0}]}, 40, link_downed_count=255, symbol_error_count=9)
    assert not log.verdicts


def test_a_link_that_is_down_at_both_ends_is_named_as_a_whole_with_its_nodes_ranks() -> None:
    log = wired(*NODES)
    poll(log, {}, 3)
    poll(log, {"n1": [DOWN, UP, UP]}, 20, up=False, link_downed_count=1)
    assert named(log) == ["link/n1/mlx5_0"]
    last = log.last
    assert (last.fault_class, last.signature, last.ranks) == ("network.link", "", (0, 1))
    assert {each.says for each in last.evidence} == {
        "nic/n1/mlx5_0 lost its link",
        "port/leaf1/1 lost its link",
    }
    assert len(log.verdicts) == 1


def test_a_link_that_comes_back_at_once_is_nothing_and_one_that_goes_again_is_named() -> None:
    log = wired(*NODES)
    poll(log, {}, 3)
    poll(log, {"n1": [DOWN, UP, UP]}, 4, up=False, link_downed_count=1)
    back = {"link_downed_count": 1}
    poll(log, {"n1": [back, UP, UP]}, 20, link_downed_count=1)
    assert not log.verdicts
    poll(log, {"n1": [{"link_downed_count": 2}, UP, UP]}, 5, link_downed_count=2)
    assert named(log) == ["link/n1/mlx5_0"]
    assert log.last.signature == "link_recovered"


def test_a_link_that_flaps_thirty_times_is_one_incident_and_a_few_words() -> None:
    log = wired(*NODES)
    poll(log, {}, 3)
    for count in range(1, 31):
        row = {"link_downed_count": count}
        poll(log, {"n1": [{**row, "port_up": 0}, UP, UP]}, 2, up=False, link_downed_count=count)
        poll(log, {"n1": [row, UP, UP]}, 2, link_downed_count=count)
    assert named(log) == ["link/n1/mlx5_0"]
    assert len(log.verdicts) <= 5
    assert "30 times" in log.last.reason


def test_errors_that_only_the_switch_counts_name_its_port() -> None:
    log = wired(*NODES)
    poll(log, {}, 3)
    seen = {"up": False, "link_downed_count": 1, "crc_error_count": 80}
    poll(log, {"n1": [DOWN, UP, UP]}, 12, **seen)
    assert named(log) == ["port/leaf1/1"]
    assert (log.last.fault_class, log.last.ranks) == ("network.link", (0, 1))


def test_words_that_are_lost_on_the_wire_again_and_again_name_the_link() -> None:
    def lost(log: Log, per_s: int, seconds: int) -> None:
        for second in range(seconds):
            block = nic_state_block({}, {"fec_uncorrectable_count": 900 + per_s * second}, {})
            log.told("device_state", DeviceStateRead, "n1", nic_count=3, nic=block)
            poll(log, {}, 1)

    log = wired(*NODES)
    lost(log, 1, 60)
    assert not log.verdicts
    log = wired(*NODES)
    lost(log, 30, 8)
    assert (named(log), log.last.fault_class) == (["link/n1/mlx5_1"], "network.link")


def test_a_nic_that_answers_nothing_while_its_neighbours_do_is_named_itself() -> None:
    log = wired(*NODES)
    poll(log, {}, 3)
    poll(log, {"n1": [GONE, UP, UP]}, 12)
    assert (named(log), log.last.fault_class) == (["nic/n1/mlx5_0"], "nic")
    log = wired(*NODES)
    poll(log, {}, 3)
    poll(log, {"n1": [GONE, GONE, GONE]}, 12)
    poll(log, {}, 12)
    assert not log.verdicts


def test_an_end_that_is_down_alone_is_named_once_the_other_was_polled_after_it() -> None:
    log = wired(*NODES)
    poll(log, {}, 3)
    poll(log, {"n1": [DOWN, UP, UP]}, 12)
    assert named(log) == ["nic/n1/mlx5_0"]
    log = wired(*NODES)
    poll(log, {}, 3)
    poll(log, {}, 12, up=False, link_downed_count=1)
    assert named(log) == ["port/leaf1/1"]


def test_a_switch_that_was_not_polled_since_the_link_came_back_names_nobody() -> None:
    log = wired(*NODES)
    poll(log, {}, 3)
    poll(log, {"n1": [DOWN, UP, UP]}, 7, up=False, link_downed_count=1)
    for _ in range(6):
        back = nic_block({"link_downed_count": 1}, UP, UP)
        log.sample("n1", nic_count=3, nic=back, period_ns=SECOND_NS)
        log.tick(1)
    assert not [each for each in log.verdicts if each.culprits]


def test_a_counter_that_was_reset_a_missed_poll_and_a_late_one_are_no_events() -> None:
    log = wired(*NODES)
    poll(log, {"n1": [{"link_downed_count": 7}, UP, UP]}, 3)
    poll(log, {"n1": [{"link_downed_count": 0}, UP, UP]}, 3)
    for _ in range(20):
        log.sample("n1", nic_count=0)
        log.sample("n2", nic_count=3, nic=b"torn")
        late = nic_block(DOWN, DOWN, DOWN)
        log.sample("n3", nic_count=3, nic=late, at_ns=log.now_ns - 60 * SECOND_NS)
        for node in NODES[3:]:
            log.sample(node)
        log.tick(1)
    poll(log, {}, 3)
    assert not log.verdicts


def test_a_link_that_no_job_uses_concerns_nobody() -> None:
    log = wired(*NODES)
    log.submitted(*NODES[1:])
    log.processor.restore(log.processor.snapshot())
    poll(log, {}, 3)
    log.kernel("mlx5_core 0000:40:00.0 enp64s0np0: Link down", "n1")
    poll(log, {"n1": [DOWN, UP, UP]}, 30, up=False, link_downed_count=1)
    assert not log.verdicts


def test_links_that_one_node_or_one_switch_lost_together_name_what_they_share() -> None:
    log = wired(*NODES)
    poll(log, {}, 3)
    poll(log, {"n1": [DOWN, DOWN, DOWN]}, 12)
    assert (named(log), log.last.fault_class) == (["node/n1"], "nic")
    log = wired(*NODES)
    poll(log, {}, 3)
    poll(log, {node: [DOWN, UP, UP] for node in NODES[:5]}, 12, up=False, link_downed_count=1)
    assert (named(log), log.last.fault_class) == (["switch/leaf1"], "network.fabric")


@pytest.mark.parametrize(("count", "culprits"), [(5, ["switch/leaf1"]), (2, [])])
def test_a_switch_that_fell_silent_is_named_by_the_many_links_that_it_took_along(
    count: int, culprits: list[str]
) -> None:
    log = wired(*NODES)
    poll(log, {}, 3)
    for _ in range(45):
        for at, node in enumerate(NODES):
            rows = (DOWN if at < count else UP, UP, UP)
            log.sample(node, nic_count=3, nic=nic_block(*rows), period_ns=SECOND_NS)
        log.tick(1)
    named = {each.id for verdict in log.verdicts for each in verdict.culprits}
    assert sorted(named) == culprits


def test_a_switch_that_fell_silent_is_named_by_what_kernels_below_it_say() -> None:
    log = Log()
    for at, node in enumerate(NODES):
        place = NicDescribed(name="mlx5_0", pci="0000:18:00.0", switch_port=f"port/leaf1/{at + 1}")
        log.inventory(node, "0000:1b:00.0", nics=(place,))
    log.submitted(*NODES, ranks_per_node=1)
    poll(log, {}, 3)
    for node in NODES[:2]:
        log.kernel("mlx5_core 0000:18:00.0 enp24s0np0: Link down", node)
    for _ in range(12):
        log.tick(1)
    named = {each.id for verdict in log.verdicts for each in verdict.culprits}
    assert named == {"switch/leaf1"}


@pytest.mark.parametrize("down", [True, False])
def test_who_wrote_no_dump_on_a_node_whose_link_has_just_gone_down_is_not_blamed(
    down: bool,
) -> None:
    log = wired(*NODES)
    log.tick(70)
    poll(log, {})
    for rank in (0, 2, 6):
        log.digest(rank, group("0", "0,2,4,6", 4, enqueued=5), node=f"n{rank // 2 + 1}")
    log.digest(4, node="n3", dump_missing=True)
    poll(log, {"n3": [DOWN if down else UP, UP, UP]}, 3)
    assert named(log) == ([] if down else ["rank/llama/4"])


def test_two_links_of_different_nodes_are_two_incidents() -> None:
    log = wired(*NODES)
    poll(log, {}, 3)
    poll(log, {"n1": [DOWN, UP, UP], "n5": [UP, DOWN, UP]}, 12, up=False, link_downed_count=1)
    by_incident = {each.incident: [c.id for c in each.culprits] for each in log.verdicts}
    assert sorted(by_incident.values()) == [["link/n1/mlx5_0"], ["link/n5/mlx5_1"]]


@pytest.mark.parametrize(("step", "is_named"), [(2, False), (40, True)])
def test_errors_far_above_the_standards_rate_name_the_link_and_a_few_do_not(
    step: int, is_named: bool
) -> None:
    log = wired(*NODES)
    for count in range(20):
        row = {"symbol_error_count": 5_000 + count * step}
        poll(log, {"n1": [row, UP, UP]}, 2)
    assert [each.id for verdict in log.verdicts for each in verdict.culprits] == (
        ["link/n1/mlx5_0"] if is_named else []
    )


def test_the_ports_of_a_node_that_lost_power_are_not_at_fault() -> None:
    log = wired(*NODES)
    poll(log, {}, 6)
    for _ in range(30):
        for node in NODES[1:]:
            log.sample(node, nic_count=3, nic=nic_block(UP, UP, UP), period_ns=SECOND_NS)
        log.fabric(
            "leaf1",
            *(
                PortSeen(port=str(at + 1), peer=f"nic/{node}/mlx5_0", up=node != "n1")
                for at, node in enumerate(NODES)
            ),
        )
        log.tick(1)
    assert {each.id for verdict in log.verdicts for each in verdict.culprits} == {"node/n1"}


def test_a_link_whose_node_the_job_has_left_is_told_no_more() -> None:
    log = wired(*NODES)
    poll(log, {}, 3)
    poll(log, {"n1": [DOWN, UP, UP]}, 12, up=False, link_downed_count=1)
    recovered(log, log.last.incident, 0, 1)
    poll(log, {"n1": [DOWN, UP, UP]}, 12, up=False, link_downed_count=1)
    poll(log, {}, 12, link_downed_count=1)
    assert len(log.verdicts) == 1


def test_a_port_that_is_down_at_a_node_whose_nics_nobody_reads_is_told_of_by_its_switch() -> None:
    for heard, right in ((True, ["link/n1/mlx5_0"]), (False, ["node/n1"])):
        log = wired(*NODES)
        for second in range(60):
            for node in NODES if heard or second < 5 else NODES[1:]:
                log.sample(node, period_ns=SECOND_NS)
            is_up = second < 5
            log.fabric("leaf1", PortSeen(port="1", peer="nic/n1/mlx5_0", up=is_up))
            log.tick(1)
        assert named(log) == right


def test_a_loss_with_more_errors_than_a_link_may_count_in_an_hour_is_named_at_once() -> None:
    for errors, found in ((20, []), (300, ["link/n1/mlx5_0"])):
        log = wired(*NODES)
        poll(log, {}, 3)
        row = {"link_downed_count": 1, "symbol_error_count": errors}
        poll(log, {"n1": [{**row, "port_up": 0}, UP, UP]}, 3, up=False, link_downed_count=1)
        poll(log, {"n1": [row, UP, UP]}, 12, link_downed_count=1)
        assert [each.id for verdict in log.verdicts for each in verdict.culprits] == found


def test_ports_that_went_down_with_a_node_before_a_job_used_it_do_not_count_for_the_job() -> None:
    log = wired(*NODES[1:])
    log.inventory("n1", "0000:1b:00.0", "0000:1c:00.0", nics=(_NIC,))
    poll(log, {}, 3)
    for count in (1, 2):
        poll(log, {}, 4, up=False, link_downed_count=count)
        poll(log, {}, 4, link_downed_count=count)
    log.submitted(*NODES)
    poll(log, {}, 20, link_downed_count=2)
    assert not log.verdicts
    poll(log, {}, 4, up=False, link_downed_count=3)
    poll(log, {}, 12, link_downed_count=3)
    assert not log.verdicts
