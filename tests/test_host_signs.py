"""Promises about hosts whose counters change while no kernel log tells why."""

import pytest

from tests.attribution_log import SECOND_NS, Log, cluster, host_block, xid


def poll(log: Log, seconds: int = 1, **readings: int) -> None:
    """The host of n1, each second."""
    for _ in range(seconds):
        log.sample("n1", host=host_block(**readings), period_ns=SECOND_NS)
        log.tick(1)


def named(log: Log) -> list[str]:
    return [each.id for each in log.last.culprits]


def test_an_error_beyond_correction_is_its_hosts_memory() -> None:
    log = cluster("n1", "n2")
    poll(log, dimm_ue_count=2)
    assert not log.verdicts
    poll(log, seconds=4, dimm_ue_count=3)
    assert (log.last.fault_class, named(log)) == ("host.memory", ["node/n1"])


def test_the_rank_that_died_of_it_is_not_blamed() -> None:
    log = cluster("n1", "n2")
    poll(log)
    log.exited(0, exit_code=0, signal=7)
    poll(log, seconds=4, dimm_ue_count=1)
    assert (log.last.fault_class, named(log)) == ("host.memory", ["node/n1"])


def test_a_kernel_log_that_names_the_module_outranks_the_counter() -> None:
    log = cluster("n1", "n2")
    poll(log)
    poll(log, dimm_ue_count=1)
    log.kernel(
        "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_Ha#0_Chan#2_DIMM#0 (channel:2 slot:0)"
    )
    log.tick(4)
    assert named(log) == ["dimm/n1/CPU_SrcID#0_Ha#0_Chan#2_DIMM#0"]


def test_errors_that_were_corrected_take_no_job_from_a_node_that_is_watched() -> None:
    log = cluster("n1", "n2")
    poll(log)
    log.kernel("EDAC MC0: 40 CE memory read error on CPU_SrcID#0_Ha#0_Chan#2_DIMM#0 (channel:2)")
    poll(log, seconds=4)
    assert not log.verdicts


@pytest.mark.parametrize(
    ("exit_code", "signal", "culprit"), [(0, 9, "rank/llama/0"), (1, 0, "node/n1")]
)
def test_a_process_killed_for_memory_counts_with_the_end_of_a_rank(
    exit_code: int, signal: int, culprit: str
) -> None:
    log = cluster("n1", "n2")
    poll(log)
    poll(log, seconds=2, oom_kill_count=1)
    assert not log.verdicts
    log.exited(0, exit_code=exit_code, signal=signal)
    log.tick(4)
    assert (log.last.fault_class, named(log)) == ("host.oom", [culprit])


def test_a_gpu_that_broke_explains_a_rank_that_ended_beside_a_killed_process() -> None:
    log = cluster("n1", "n2")
    poll(log)
    poll(log, oom_kill_count=1)
    log.kernel(xid(79))
    log.exited(0, exit_code=1)
    log.tick(4)
    assert log.last.fault_class == "gpu.off_bus"


def test_a_rank_that_its_own_host_killed_is_no_consequence_of_what_stopped_its_job() -> None:
    log = cluster("n1", "n2", "n3")
    poll(log)
    log.kernel(xid(79), "n2")
    log.tick(3)
    log.exited(0, exit_code=1)
    log.tick(3)
    poll(log, seconds=4, oom_kill_count=1)
    last = {each.incident: [c.id for c in each.culprits] for each in log.verdicts}
    assert ["node/n1"] in last.values()
    assert len(last) == 2
