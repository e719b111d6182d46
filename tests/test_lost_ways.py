"""Promises about ways that lose packets: two NICs that give up on each other, and the switch."""

from collections.abc import Sequence

from nemesis.schemas.observed import DeviceStateRead, LogLineWritten, PortSeen
from tests.attribution_log import Log, nic_state_block, wired

NODES = [f"n{number}" for number in range(1, 7)]
GIVES_UP = "NET/IB: Got completion from peer 10.3.1.9<40123> with status=12 opcode=0 hca mlx5_1"


def polled(log: Log, drops: dict[str, int], seconds: int = 1) -> None:
    """Three leaves are polled, and count these drops."""
    for _ in range(seconds):
        for leaf in ("leaf1", "leaf2", "leaf3"):
            log.fabric(leaf, PortSeen(port="1", discard_count=drops.get(leaf, 0)))
        log.tick(1)


def gave_up(nodes: Sequence[str], drops: dict[str, int], *, counted: bool = False) -> Log:
    """The second NICs of these nodes give up, by their ranks' words or by their counters."""
    log = wired(*NODES)
    for node in NODES:
        log.told(
            "device_state", DeviceStateRead, node, nic_count=3, nic=nic_state_block({}, {}, {})
        )
    polled(log, {}, 3)
    for node in nodes:
        if counted:
            block = nic_state_block({}, {"retries_exceeded_count": 1}, {})
            log.told("device_state", DeviceStateRead, node, nic_count=3, nic=block)
        else:
            rank = 2 * NODES.index(node)
            line = {"job": "llama", "rank": rank, "source": "nccl", "text": GIVES_UP}
            log.told("log", LogLineWritten, node, **line)
    for second in range(1, 12):
        polled(log, {leaf: count * second for leaf, count in drops.items()})
    return log


def named(log: Log) -> set[str]:
    return {each.id for verdict in log.verdicts for each in verdict.culprits}


def test_the_switch_that_drops_between_two_nics_that_gave_up_is_named() -> None:
    for counted in (False, True):
        log = gave_up(["n2", "n5"], {"leaf2": 200}, counted=counted)
        assert named(log) == {"switch/leaf2"}
        assert log.last.fault_class == "network.fabric"


def test_where_no_switch_counts_drops_the_kind_of_fault_is_told_and_nobody_named() -> None:
    log = gave_up(["n2", "n5"], {})
    assert not named(log)
    assert (log.last.verdict, log.last.fault_class) == ("class-only", "network.fabric")


def test_a_switch_that_drops_elsewhere_or_beside_another_is_not_named() -> None:
    assert not named(gave_up(["n2", "n5"], {"leaf3": 200}))
    assert not named(gave_up([], {"leaf2": 200}))


def test_a_third_nic_that_gives_up_acquits_the_way_and_one_alone_proves_none() -> None:
    for nodes in (["n2"], ["n2", "n4", "n5"]):
        assert not named(gave_up(nodes, {"leaf2": 200}))


def test_what_switches_dropped_before_proves_nothing() -> None:
    log = wired(*NODES)
    polled(log, {"leaf2": 90_000}, 3)
    for node in ("n2", "n5"):
        line = {"job": "llama", "rank": 2, "source": "nccl", "text": GIVES_UP}
        log.told("log", LogLineWritten, node, **line)
    polled(log, {"leaf2": 90_000}, 12)
    assert not named(log)
