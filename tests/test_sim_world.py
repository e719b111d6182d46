"""Promises of the simulated cluster: the seed decides all, counters only rise, faults look real."""

from pathlib import Path

import numpy as np
import pytest

from nemesis.schemas.channels import ABSENT, GPU_CHANNELS, NIC_CHANNELS
from nemesis.sim.faults.courses import plan_faults
from nemesis.sim.faults.symptoms import GpuCounted, GpuLost, KernelLine, NodeLost, RankDies
from nemesis.sim.telemetry.loads import Load
from nemesis.sim.telemetry.world import World
from nemesis.sim.topology.cluster_file import DEFAULT, BadClusterError, load_cluster
from tests.planned import planned

SECOND = 1_000_000_000
CLUSTER = load_cluster()
COUNTERS = [name for name in GPU_CHANNELS if name.endswith("_count")]


def test_the_cluster_of_the_release_has_sixteen_nodes_of_eight_gpus() -> None:
    assert len(CLUSTER.node_names) == 16
    assert CLUSTER.world == 112
    assert CLUSTER.ranks_of("n014") == tuple(range(104, 112))
    assert CLUSTER.ranks_of("n015") == ()
    assert {len(CLUSTER.gpus_of(node)) for node in CLUSTER.node_names} == {8}


def test_jobs_get_their_nodes_in_order_and_the_rest_are_spares(tmp_path: Path) -> None:
    text = DEFAULT.read_text().replace("nodes = 14", "nodes = 9").replace("= 64", "= 40")
    text = text.replace("[job]", "[[job]]")
    second = (
        text[text.index("[[job]]") :].replace("llama", "mixtral").replace("nodes = 9", "nodes = 5")
    )
    path = tmp_path / "cluster.toml"
    path.write_text(text + second)
    cluster = load_cluster(path)
    llama, mixtral = cluster.jobs
    assert cluster.nodes_of(llama) == cluster.job_nodes == cluster.node_names[:9]
    assert cluster.nodes_of(mixtral) == cluster.node_names[9:14]
    assert cluster.spares == ("n015", "n016")
    assert (cluster.world_of(mixtral), cluster.ranks_of("n010")) == (40, tuple(range(8)))
    assert [cluster.job_on(node) for node in ("n009", "n014", "n015")] == [llama, mixtral, None]


def test_no_two_devices_share_a_name() -> None:
    uuids = [gpu.uuid for node in CLUSTER.node_names for gpu in CLUSTER.gpus_of(node)]
    ports = [nic.switch_port for node in CLUSTER.node_names for nic in CLUSTER.nics_of(node)]
    assert len(set(uuids)) == len(uuids) == 128
    assert len(set(ports)) == len(ports) == 128


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("nodes = 16", "job.nodes must be"),
        ("world_min = 64", "world_min"),
        ('name = "llama"', "name"),
    ],
)
def test_a_cluster_file_that_cannot_be_simulated_is_refused(
    tmp_path: Path, change: str, says: str
) -> None:
    text = DEFAULT.read_text()
    broken = {"nodes = 16": "nodes = 3", "world_min = 64": "world_min = 999"}.get(change, "")
    path = tmp_path / "cluster.toml"
    path.write_text(text.replace(change, broken, 1))
    with pytest.raises(BadClusterError, match=says):
        load_cluster(path)


def test_a_cluster_file_that_is_not_there_is_named() -> None:
    with pytest.raises(BadClusterError, match="/no/such"):
        load_cluster(Path("/no/such"))


def blocks(seed: int) -> list[bytes]:
    world = World(CLUSTER, seed)
    seen: list[bytes] = []
    for _ in range(5):
        world.advance(SECOND, dict.fromkeys(CLUSTER.job_nodes, "training"))
        for node in CLUSTER.node_names:
            load: Load = "training" if node in CLUSTER.job_nodes else "idle"
            seen.append(world[node].gpu_block(load).tobytes())
            seen.append(world[node].nic_block().tobytes())
            seen.append(world[node].host_block(load).tobytes())
    return seen


def test_one_seed_makes_one_world() -> None:
    assert blocks(7) == blocks(7)
    assert blocks(7) != blocks(8)


def test_counters_only_rise() -> None:
    world = World(CLUSTER, 1)
    node = world["n001"]
    before_gpu, before_nic = node.gpu_block("training"), node.nic_block()
    for at in range(200):
        world.advance(SECOND, {"n001": "training" if at % 3 else "stalled"})
        if at == 100:
            node.suffer(GpuCounted(2, (("dram_ue_count", 1),)))
        gpu, nic = node.gpu_block("training"), node.nic_block()
        for name in COUNTERS:
            column = GPU_CHANNELS.index(name)
            assert (gpu[:, column] >= before_gpu[:, column]).all()
        for name in ("xmit_bytes", "rcv_bytes", "link_downed_count"):
            column = NIC_CHANNELS.index(name)
            assert (nic[:, column] >= before_nic[:, column]).all()
        before_gpu, before_nic = gpu, nic
    assert before_gpu[2, GPU_CHANNELS.index("dram_ue_count")] == 1
    assert before_nic[0, NIC_CHANNELS.index("xmit_bytes")] > 10**11


@pytest.mark.parametrize(
    ("load", "watts", "celsius"),
    [("training", (570, 650), (45, 66)), ("idle", (60, 75), (24, 34))],
)
def test_readings_stay_in_the_published_range(
    load: Load, watts: tuple[int, int], celsius: tuple[int, int]
) -> None:
    world = World(CLUSTER, 3)
    for _ in range(60):
        world.advance(SECOND, {"n001": load})
    block = world["n001"].gpu_block(load)
    power = block[:, GPU_CHANNELS.index("power_mw")]
    heat = block[:, GPU_CHANNELS.index("temp_c")]
    assert (power >= watts[0] * 1000).all()
    assert (power <= watts[1] * 1000).all()
    assert (heat >= celsius[0]).all()
    assert (heat <= celsius[1]).all()


def test_a_gpu_off_the_bus_answers_nothing_and_its_neighbours_go_on() -> None:
    world = World(CLUSTER, 3)
    world["n001"].suffer(GpuLost(4))
    block = world["n001"].gpu_block("training")
    assert (block[4] == ABSENT).all()
    assert (np.delete(block, 4, axis=0) != ABSENT).all()


def lines(kind: str) -> list[str]:
    (fault,) = plan_faults(CLUSTER, [planned(kind, node="n006", gpu=4)], seed=1)
    return [each.effect.text for each in fault.symptoms if isinstance(each.effect, KernelLine)]


def test_xid_79_prints_what_the_driver_prints_and_its_fallout_on_the_switches() -> None:
    seen = lines("xid79")
    assert (
        "NVRM: Xid (PCI:0000:9d:00): 79, pid='<unknown>', name=<unknown>, "
        "GPU has fallen off the bus." in seen
    )
    assert sum("SXid" in line and "20034" in line for line in seen) == 4


def test_xid_48_comes_with_171_63_and_154_in_that_order() -> None:
    codes = [line.split("): ")[1].split(",")[0] for line in lines("xid48")]
    assert codes == ["48", "171", "63", "154"]


def test_a_rank_exit_leaves_no_trace_in_any_kernel_log() -> None:
    assert lines("rank-exit") == []


def test_a_lost_node_takes_its_ranks_and_says_nothing() -> None:
    plan = planned("node-lost", after_s=2.5, node="n006")
    (fault,) = plan_faults(CLUSTER, [plan], seed=1)
    assert fault.lost_ranks == tuple(range(40, 48))
    assert [each.effect for each in fault.symptoms] == [NodeLost()]
    assert fault.onset_ns == 2_500_000_000


def test_a_target_that_is_not_named_is_drawn_by_the_seed() -> None:
    plan = [planned("xid79")]
    culprits = {plan_faults(CLUSTER, plan, seed)[0].culprit for seed in range(40)}
    assert len(culprits) > 20
    assert plan_faults(CLUSTER, plan, 7) == plan_faults(CLUSTER, plan, 7)


def test_the_rank_of_a_broken_gpu_dies_after_the_line_that_tells_why() -> None:
    for kind in ("xid79", "xid48"):
        (fault,) = plan_faults(CLUSTER, [planned(kind, node="n001", gpu=0)], seed=1)
        died = [s.after_ns for s in fault.symptoms if isinstance(s.effect, RankDies)]
        told = [s.after_ns for s in fault.symptoms if isinstance(s.effect, KernelLine)]
        assert len(died) == 1
        assert died[0] > min(told)
