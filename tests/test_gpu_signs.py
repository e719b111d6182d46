"""Promises about GPUs whose readings change while no kernel log tells why."""

import pytest

from nemesis.schemas.channels import ABSENT, GPU_CHANNELS
from nemesis.schemas.observed import DeviceStateRead
from tests.attribution_log import SECOND_NS, Log, cluster, gpu_block, gpu_state_block, xid
from tests.test_attribution import recovered

MUTE: dict[str, int] = {channel: ABSENT for channel in GPU_CHANNELS}
WELL: dict[str, int] = {}
FIRST = "gpu/n1/0000:1b:00.0"


def poll(log: Log, *rows: dict[str, int], seconds: int = 1) -> None:
    """Both GPUs of n1, each second, and nothing of n2."""
    for _ in range(seconds):
        log.sample("n1", gpu_count=2, gpu=gpu_block(*rows), period_ns=SECOND_NS)
        log.sample("n2", period_ns=SECOND_NS)
        log.tick(1)


def named(log: Log) -> list[str]:
    return [each.id for verdict in log.verdicts for each in verdict.culprits]


def test_a_gpu_that_cannot_be_read_while_its_neighbour_can_is_lost_to_its_driver() -> None:
    log = cluster("n1", "n2")
    poll(log, WELL, WELL)
    poll(log, MUTE, WELL, seconds=4)
    assert named(log) == [FIRST]
    assert log.last.fault_class == "gpu.off_bus"


def test_gpus_that_all_cannot_be_read_or_never_could_name_nobody() -> None:
    for before, after in (((WELL, WELL), (MUTE, MUTE)), ((MUTE, WELL), (MUTE, WELL))):
        log = cluster("n1", "n2")
        poll(log, *before)
        poll(log, *after, seconds=10)
        assert not log.verdicts


def test_a_gpu_that_answers_the_next_poll_again_is_not_named() -> None:
    log = cluster("n1", "n2")
    poll(log, WELL, WELL)
    poll(log, MUTE, WELL)
    poll(log, WELL, WELL, seconds=10)
    assert not named(log)


def test_what_the_kernel_says_of_a_gpu_that_cannot_be_read_says_more() -> None:
    log = cluster("n1", "n2")
    poll(log, WELL, WELL)
    log.kernel(xid(119, rest="pid=7, name=python3, Timeout after 6s of waiting for RPC response"))
    poll(log, MUTE, WELL, seconds=5)
    assert log.last.fault_class == "gpu.driver"


@pytest.mark.parametrize("channel", ["dram_ue_count", "sram_ue_count"])
def test_an_uncorrected_error_counts_with_the_end_of_its_own_rank_only(channel: str) -> None:
    for rank, right in ((0, FIRST), (1, "rank/llama/1")):
        log = cluster("n1", "n2")
        poll(log, WELL, WELL)
        poll(log, {channel: 1}, WELL, seconds=5)
        assert not log.verdicts
        log.exited(rank, exit_code=1)
        poll(log, {channel: 1}, WELL, seconds=25)
        assert set(named(log)) == {right}


def test_a_row_that_could_not_be_replaced_is_named_at_once() -> None:
    log = cluster("n1", "n2")
    poll(log, WELL, WELL)
    poll(log, WELL, {"remap_failed": 1}, seconds=4)
    assert named(log) == ["gpu/n1/0000:1c:00.0"]
    assert (log.last.fault_class, log.last.signature) == ("gpu.memory", "row_remap_failed")


def test_a_row_that_waits_for_a_reset_is_told_and_harms_nobody() -> None:
    log = cluster("n1", "n2")
    poll(log, WELL, WELL)
    poll(log, WELL, {"remap_pending": 1}, seconds=4)
    assert (log.last.fault_class, log.last.signature) == ("gpu.memory", "row_remap_pending")


def links(log: Log, *trained: int) -> None:
    rows = [{"nvlink_recovery_count": each} for each in trained]
    log.told("device_state", DeviceStateRead, "n1", gpu_count=2, gpu=gpu_state_block(*rows))
    log.tick(1)


def test_nvlinks_that_are_trained_anew_count_from_the_second_time_on() -> None:
    log = cluster("n1", "n2")
    for trained in (7, 7, 8):
        links(log, trained, 0)
    log.tick(5)
    assert not log.verdicts
    links(log, 9, 0)
    log.tick(5)
    assert (log.last.fault_class, named(log)) == ("nvlink", [FIRST])


def test_a_link_that_is_trained_anew_while_packets_are_sent_again_is_in_trouble() -> None:
    log = cluster("n1", "n2")
    poll(log, WELL, WELL)
    links(log, 0, 0)
    poll(log, {"nvlink_replay_count": 500}, WELL)
    links(log, 1, 0)
    log.tick(5)
    assert (log.last.fault_class, named(log)) == ("nvlink", [FIRST])


def test_packets_that_are_sent_again_count_where_they_are_many_and_often() -> None:
    for replays, names in (
        ((5, 12, 40), []),
        ((500, 500, 500), []),
        ((500, 1_500, 1_500), [FIRST]),
    ):
        log = cluster("n1", "n2")
        poll(log, WELL, WELL)
        for each in replays:
            poll(log, {"nvlink_replay_count": each}, WELL, seconds=2)
        log.tick(5)
        assert list(dict.fromkeys(named(log))) == names


def test_a_rank_that_left_alone_is_named_once_its_node_was_read_and_shows_nothing() -> None:
    for read in (False, True):
        log = cluster("n1", "n2")
        poll(log, WELL, WELL)
        log.exited(1, exit_code=1)
        if read:
            poll(log, WELL, WELL, seconds=5)
        else:
            log.tick(5)
        assert named(log) == (["rank/llama/1"] if read else [])
        assert log.last.verdict == ("attributed" if read else "class-only")


def test_readings_of_another_gpu_after_a_recovery_are_of_another_fault() -> None:
    log = cluster("n1", "n2")
    poll(log, WELL, WELL)
    log.kernel(xid(79))
    recovered(log, log.last.incident, 0)
    poll(log, WELL, WELL, seconds=3)
    poll(log, WELL, {"dram_ue_count": 1})
    log.exited(1, exit_code=1)
    poll(log, WELL, {"dram_ue_count": 1}, seconds=25)
    assert named(log)[-1] == "gpu/n1/0000:1c:00.0"
