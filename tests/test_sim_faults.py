"""Promises of what each fault looks like: in counters, in kernel logs, in steps, at both ends."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from nemesis.schemas.channels import (
    ABSENT,
    GPU_CHANNELS,
    HOST_CHANNELS,
    NIC_CHANNELS,
    STEP_CHANNELS,
)
from nemesis.schemas.observed import (
    CollectiveRecorded,
    FabricSampled,
    KernelLineLogged,
    ProcessExited,
    SampleTaken,
)
from nemesis.sim.faults.planned_network import NicDead
from nemesis.sim.faults.scenario import scenario_named
from nemesis.sim.offline import OfflineRun, run_offline
from nemesis.sim.truth.ledger import FaultInjected
from tests.scenario_runs import CLUSTER, NAMES, column, observed, run_of, second

COUNTED_GPU = [at for at, name in enumerate(GPU_CHANNELS) if name.endswith("_count")]
COUNTED_NIC = [
    at for at, name in enumerate(NIC_CHANNELS) if name.endswith(("_count", "_bytes", "_us"))
]
HEALTHY_SPREAD = 1.05


def fault(run: OfflineRun) -> FaultInjected:
    return next(each for each in run.truths if isinstance(each, FaultInjected))


def gpu(run: OfflineRun, node: str, channel: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    return column(run, node, lambda s: (s.gpu, s.gpu_count), GPU_CHANNELS.index(channel))


def nic(run: OfflineRun, node: str, channel: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    return column(run, node, lambda s: (s.nic, s.nic_count), NIC_CHANNELS.index(channel))


def host(run: OfflineRun, node: str, channel: str) -> NDArray[np.int64]:
    return column(run, node, lambda s: (s.host, 1), HOST_CHANNELS.index(channel))[1][:, 0]


def own_ns(run: OfflineRun, step: int) -> dict[int, tuple[int, int]]:
    """(own_ns, step_ns) of each rank in a step."""
    found = {}
    for sample in observed(run, SampleTaken):
        if sample.step_count:
            rows = np.frombuffer(sample.steps, "<i8").reshape(sample.step_count, -1)
            for row in rows[rows[:, STEP_CHANNELS.index("step")] == step].tolist():
                named = dict(zip(STEP_CHANNELS, row, strict=True))
                found[named["rank"]] = (named["own_ns"], named["step_ns"])
    return found


def nic_index(name: str) -> int:
    """The row of a NIC in samples."""
    _, node, nic = name.split("/")
    return [each.name for each in CLUSTER.nics_of(node)].index(nic)


def last_step(run: OfflineRun) -> int:
    """The last step of which every rank that runs has told: nodes are polled one after another."""
    told: dict[int, set[int]] = {}
    for sample in observed(run, SampleTaken):
        if sample.step_count:
            rows = np.frombuffer(sample.steps, "<i8").reshape(sample.step_count, -1)
            for rank, step in rows[:, :2].tolist():
                told.setdefault(step, set()).add(rank)
    world = max(len(ranks) for ranks in told.values())
    return max(step for step, ranks in told.items() if len(ranks) == world)


def lines(run: OfflineRun, words: str) -> list[KernelLineLogged]:
    return [each for each in observed(run, KernelLineLogged) if words in each.text]


@pytest.mark.parametrize("name", NAMES)
def test_counters_only_rise_whatever_happens(name: str) -> None:
    before: dict[str, NDArray[np.int64]] = {}
    ports: dict[str, tuple[int, ...]] = {}
    run = run_of(name)
    for sample in observed(run, SampleTaken):
        blocks = (
            ("gpu", sample.gpu, sample.gpu_count, COUNTED_GPU),
            ("nic", sample.nic, sample.nic_count, COUNTED_NIC),
        )
        for kind, data, count, counted in blocks:
            block = np.frombuffer(data, "<i8").reshape(count, -1)[:, counted]
            earlier = before.get(f"{kind}/{sample.node}", block)
            assert ((block >= earlier) | (block == ABSENT)).all()
            before[f"{kind}/{sample.node}"] = block
    for poll in observed(run, FabricSampled):
        for port in poll.ports:
            counters = (port.symbol_error_count, port.crc_error_count, port.link_downed_count)
            assert counters >= ports.get(port.port, counters)
            ports[port.port] = counters
    assert len(before) == 32
    assert len(ports) == 128


def test_every_port_of_a_leaf_switch_says_what_is_plugged_into_it() -> None:
    polls = list(observed(run_of("quiet-day"), FabricSampled))
    assert {(poll.node, poll.switch) for poll in polls} == {
        (leaf, f"switch/{leaf}") for leaf in CLUSTER.leaves
    }
    plugged = {port.peer: port.port for poll in polls for port in poll.ports}
    assert plugged == {
        f"nic/{node}/{nic.name}": nic.switch_port
        for node in CLUSTER.node_names
        for nic in CLUSTER.nics_of(node)
    }


def test_all_ranks_of_a_healthy_job_take_equally_long_and_enter_in_their_own_time() -> None:
    seen = own_ns(run_of("quiet-day"), 40)
    assert len(seen) == 112
    assert len({step for _, step in seen.values()}) == 1
    owns = [own for own, _ in seen.values()]
    assert max(owns) <= HEALTHY_SPREAD * min(owns)
    assert all(own < step for own, step in seen.values())


def test_a_throttled_gpu_is_hot_slow_and_says_why_and_only_its_rank_is_late() -> None:
    run = run_of("thermal-straggler")
    broken = fault(run)
    index = CLUSTER.gpus_of(broken.node)
    at = next(n for n, each in enumerate(index) if broken.culprit.endswith(each.pci))
    times, clocks = gpu(run, broken.node, "sm_clock_mhz")
    _, heat = gpu(run, broken.node, "temp_c")
    _, reasons = gpu(run, broken.node, "clock_event_reasons")
    hot, cool = times > second(broken.over_ns), times < second(broken.began_ns)
    others = np.delete(np.arange(8), at)
    assert clocks[hot, at].max() < 0.8 * clocks[cool, at].min()
    assert clocks[:, others].min() > 1900
    assert heat[hot, at].min() >= 86 > heat[hot][:, others].max()
    assert set(reasons[hot, at].tolist()) == {0x20 | 0x8 | 0x40}
    assert not reasons[:, others].any()
    assert set(np.diff(np.unique(clocks[~hot & ~cool, at])) > 0) == {True}  # gradually
    seen = own_ns(run, last_step(run))
    (late,) = [rank for rank, (own, _) in seen.items() if own > 1.2 * seen[0][0]]
    assert f"rank/llama/{late}" in broken.harmless
    assert max(own for rank, (own, _) in seen.items() if rank != late) < 1_000_000_000


def test_a_host_without_cpus_makes_all_its_ranks_late_and_its_gpus_show_nothing() -> None:
    run = run_of("host-contention")
    broken = fault(run)
    assert host(run, broken.node, "cpu_pressure_ppm")[-1] > 500_000
    assert host(run, broken.node, "run_queue_wait_ppm")[-1] > 250_000
    assert host(run, broken.node, "cpu_steal_ppm")[-1] > 100_000
    assert host(run, "n001", "cpu_pressure_ppm").max() < 50_000
    _, reasons = gpu(run, broken.node, "clock_event_reasons")
    assert not reasons.any()
    seen = own_ns(run, last_step(run))
    late = {rank for rank, (own, _) in seen.items() if own > 1.1 * seen[0][0]}
    assert late == set(CLUSTER.ranks_of(broken.node))


def test_a_flapping_link_is_told_by_both_ends_and_the_kernel_and_carries_nothing_while_down() -> (
    None
):
    run = run_of("nic-flap")
    broken = fault(run)
    at = nic_index(broken.culprit)
    times, up = nic(run, broken.node, "port_up")
    assert set(up[:, at].tolist()) == {0, 1}
    assert np.delete(up, at, axis=1).min() == 1
    assert nic(run, broken.node, "link_downed_count")[1][-1, at] == 3
    assert nic(run, broken.node, "symbol_error_count")[1][-1, at] >= 3 * 40
    _, moved = nic(run, broken.node, "xmit_bytes")
    down = np.flatnonzero((up[:-1, at] == 0) & (up[1:, at] == 0))
    assert (np.diff(moved[:, at])[down] == 0).all()
    assert len(down) > 6
    said = [each.text.rpartition(" ")[2] for each in lines(run, ": Link ")]
    assert said == ["down", "up"] * 3
    ports = [
        port
        for poll in observed(run, FabricSampled)
        for port in poll.ports
        if port.peer == broken.culprit
    ]
    assert {port.up for port in ports} == {True, False}
    assert ports[-1].link_downed_count == 3
    assert ports[-1].symbol_error_count == 0
    assert 0 < times[0] < 1


def test_a_port_that_fails_counts_its_errors_at_the_switch_and_not_at_the_nic() -> None:
    run = run_of("leaf-port-down")
    broken = fault(run)
    last = {port.port: port for poll in observed(run, FabricSampled) for port in poll.ports}
    seen = last.pop(broken.culprit)
    assert not seen.up
    assert min(seen.symbol_error_count, seen.crc_error_count, seen.link_downed_count) > 0
    assert all(port.up and not port.symbol_error_count for port in last.values())
    node, at = seen.peer.split("/")[1], nic_index(seen.peer)
    assert nic(run, node, "port_up")[1][-1, at] == 0
    assert nic(run, node, "symbol_error_count")[1][-1, at] == 0
    (line,) = lines(run, "Link down")
    assert line.node == node


def test_a_nic_dies_quietly_and_others_cry_out_first() -> None:
    run = run_of("cascade")
    broken = fault(run)
    exits = [each for each in observed(run, ProcessExited) if each.signal == 6]
    (told,) = lines(run, "device's health compromised")
    assert told.node == broken.node
    assert len(exits) == 3
    assert max(each.at_ns for each in exits) < told.at_ns
    assert broken.node not in {each.node for each in exits}
    loud = [each for each in observed(run, KernelLineLogged) if "NVRM: Xid" in each.text]
    assert {each.text.split("): ")[1][:2] for each in loud} == {"43", "45"}
    at = nic_index(broken.culprit)
    times, moved = nic(run, broken.node, "xmit_bytes")
    silent = times > second(broken.at_ns) + 1
    assert len(set(moved[silent, at].tolist())) == 1
    assert nic(run, broken.node, "port_up")[1].min() == 1


def test_ranks_that_wait_no_more_give_up_nothing(tmp_path: Path) -> None:
    """The NIC's driver tells at once, and the job has gone on without it by then."""
    cascade = scenario_named("cascade")
    (dead,) = cascade.faults
    assert isinstance(dead, NicDead)
    early = msgspec.structs.replace(dead, line_after_s=0.2, loud_after_s=20.0)
    told = msgspec.structs.replace(cascade, faults=(early,))
    run = run_offline(CLUSTER, told, seed=7, folder=tmp_path)
    assert not [each for each in observed(run, ProcessExited) if each.signal == 6]
    assert run.score.recovered


def test_one_rank_alone_enqueued_another_collective_and_every_recorder_is_there() -> None:
    run = run_of("desync")
    broken = fault(run)
    seen = {
        each.rank: each.groups[0].first_unfinished for each in observed(run, CollectiveRecorded)
    }
    assert len(seen) == 112
    odd = {rank for rank, each in seen.items() if each is not None and each.op != "all_reduce"}
    assert {f"rank/llama/{rank}" for rank in odd} == {broken.culprit}
    assert len({each.seq for each in seen.values() if each is not None}) == 1
    assert not lines(run, "NVRM")


def test_memory_announces_that_it_fails_in_counters_and_lines_before_it_does() -> None:
    run = run_of("ecc-precursor")
    broken = fault(run)
    at = next(n for n, g in enumerate(CLUSTER.gpus_of(broken.node)) if g.pci in broken.culprit)
    times, corrected = gpu(run, broken.node, "dram_ce_count")
    before = times < second(broken.at_ns)
    half = times < (second(broken.began_ns) + second(broken.at_ns)) / 2
    rise = corrected[before, at][-1]
    assert rise > 500
    assert corrected[half, at][-1] < rise / 2  # faster and faster
    assert gpu(run, broken.node, "remapped_rows_count")[1][before, at][-1] == 6
    assert gpu(run, broken.node, "banks_spare_low_count")[1][before, at][-1] == 3
    assert gpu(run, broken.node, "dram_ue_count")[1][before, at][-1] == 0
    codes = [each.text.split("): ")[1][:2] for each in lines(run, "NVRM: Xid")]
    assert codes[:7].count("63") == 6
    assert codes.index("92") < codes.index("48") == 7


def test_a_link_of_a_spare_stops_no_job() -> None:
    run = run_of("quiet-day")
    flap = [t for t in run.truths if isinstance(t, FaultInjected) and t.kind == "nic-flap"]
    assert [each.node in CLUSTER.spares for each in flap] == [True]
    assert last_step(run) >= 55
