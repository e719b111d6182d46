"""What schedulers got wrong in the field, as their users reported it: each with its numbers."""

from collections import Counter
from pathlib import Path
from random import Random

from msgspec.structs import replace

from nemesis.processors.mfu.planned import gpu_of, job_of
from nemesis.processors.parallelism.case import Case
from nemesis.processors.parallelism.check import check
from nemesis.processors.parallelism.model import published_models
from nemesis.processors.parallelism.parsing import parse
from nemesis.processors.placement.baselines.kubernetes import Host, Pod, kubernetes
from nemesis.processors.placement.ground import Gang, ground_of
from nemesis.processors.placement.plan import Plan, plan_of
from nemesis.processors.placement.subtree import best_fit
from nemesis.processors.topology.pool import Pool
from nemesis.schemas.scheduled import JobQueued
from nemesis.sim.topology.cluster_file import load_cluster
from nemesis.sim.topology.pool import pool_of
from tests.pools import nvl72, pool
from tests.scheduler_cell import Cell
from tests.test_plans import broken

SEGMENTS = "TP8_NVL18/d72+FSDP9_NVL18/d72+DPR{}"
"""As many segments of 18 trays, each a whole NVLink domain of 72 GPUs."""


def planned(text: str, where: Pool, gpus: int) -> tuple[Case, Plan]:
    """The plan of a job that the checker accepts."""
    case = Case(spec=parse(text), pool=where, gpu_count=gpus)
    assert check(case).outcome == "accepted"
    plan = plan_of(case)
    assert plan.seats
    assert broken(case, plan) == []
    return case, plan


def racks_of(plan: Plan, where: Pool) -> Counter[int]:
    """By NVLink domain, nodes of the plan."""
    domain = dict(zip(where.nodes, where.domains, strict=True))
    return Counter(domain[seat.node] for seat in plan.seats)


def test_jobs_that_need_no_domain_go_where_domains_are_broken_already() -> None:
    """marin#8249: 64 nodes over 9 of 12 domains, three of them whole: 29 gangs had no place."""
    racks = nvl72(12).without(
        [f"n{18 * rack + tray:03}" for rack in range(7) for tray in range(1, 9)]
    )
    ground, _ = ground_of(racks)
    for _ in range(64):
        ground = ground.less(best_fit(ground, Gang(1)))
    assert ground.free == (0, 0, 0, 0, 0, 0, 6, 18, 18, 18, 18, 18)
    assert best_fit(ground, Gang(5 * 18, segment=18))
    _, plan = planned("TP4_NVL18+DP64", nvl72(12), 256)
    assert len(racks_of(plan, racks)) == 4, (
        "one job of 64 nodes breaks no domain more than it needs"
    )


def test_who_waits_for_a_large_leaf_is_told_the_two_that_there_are() -> None:
    """marin#6950: of fifteen leaves two hold a gang of eight hosts."""
    cell = Cell((1, 1, 2, 2, 2, 3, 3, 3, 5, 5, 6, 6, 6, 8, 11))
    for job in ("first", "second", "third"):
        cell.submit(job, "TP8_NVL18+DP8_IB@t1")
    assert cell.nodes_of("first") == tuple(f"n{at:03}" for at in range(46, 54))
    assert set(cell.nodes_of("second")) < {f"n{at:03}" for at in range(54, 65)}
    (queued,) = cell.told(JobQueued)
    assert (queued.job, queued.code) == ("third", "capacity")
    wanted = (
        "room on switch/leaf14 or switch/leaf15: no other holds the 8 nodes that must lie together"
    )
    assert wanted in queued.helps


def test_small_jobs_on_thirty_three_racks_leave_whole_racks_to_training() -> None:
    """kueue#10406: 2,376 GPUs, inference scattered over all racks."""
    ground, _ = ground_of(nvl72(33))
    dice = Random(1)
    sizes = [dice.choice((1, 1, 2, 4)) for _ in range(100)]
    for size in sizes:
        (part,) = best_fit(ground, Gang(size))
        ground = ground.less((part,))
    used = -(-sum(sizes) // 18)
    assert sum(free == 18 for free in ground.free) >= 33 - used - 1
    assert best_fit(ground, Gang(18 * (33 - used - 1), segment=18))


def test_groups_of_sixteen_lie_inside_groups_of_forty_eight() -> None:
    """kueue#9046: 96 replicas, groups of 16 below a leaf, of 48 below a pod."""
    where = pool((17, 40, 9, 30, 20, 16, 16, 33), pods=(3, 2, 3))
    _, plan = planned("TP8_NVL18+CP16_IB@t1+PP3_IB@t2+DP2", where, 768)
    rows = [where.nodes.index(seat.node) for seat in plan.seats]
    for tier, size in ((0, 16), (1, 48)):
        groups = [
            {where.tiers[tier][row] for row in rows[at : at + size]} for at in range(0, 96, size)
        ]
        assert all(len(group) == 1 for group in groups)


def test_a_hundred_subgroups_of_ten_nodes_get_a_hypernode_each() -> None:
    """volcano#4899: 1,000 nodes; dry runs of every subgroup in every HyperNode took too long."""
    where = pool((10,) * 100, pods=(10,) * 10)
    _, plan = planned("TP8_NVL18+DP100+PP10_IB@t1", where, 8000)
    assert plan.optimal
    assert plan.touched == (100, 10, 1)


def test_six_and_two_free_of_two_domains_are_no_place_for_eight() -> None:
    """volcano#5751: a server of two domains of eight; a group across both costs what it costs."""
    halves = pool((8,), gpus=8, domain_nodes=1)
    servers = replace(halves, nodes=tuple(f"n{at // 2:03}" for at in range(8)))
    taken = replace(servers, free_counts=(6, 2) + (0,) * 6)
    assert check(Case(spec=parse("TP8_NVL18"), pool=taken, gpu_count=8)).outcome == "waits"
    assert not plan_of(Case(spec=parse("TP8_NVL18"), pool=taken, gpu_count=8)).seats
    planned("TP8_NVL18+DP8", servers, 64)
    model = published_models()["llama3-8b"]
    case = Case(spec=parse("TP16+DP4;gbs=64"), pool=servers, gpu_count=64, model=model)
    whole = replace(servers, domains=tuple(at // 2 for at in range(8)))
    job = job_of(case, *gpu_of(servers))
    wide = replace(case, pool=whole)
    assert plan_of(case, job).step_ns > plan_of(wide, job).step_ns


def test_a_gang_goes_where_all_of_it_fits_and_not_where_its_first_pod_does() -> None:
    """nvcf#598: pinned to the fullest clique, the follower stayed pending beside an empty one."""
    cell = Cell((2, 2))
    cell.submit("one", "TP8_NVL18")
    cell.submit("gang", "TP8_NVL18+PP2_IB@t1")
    assert cell.nodes_of("one") == ("n001",)
    assert cell.nodes_of("gang") == ("n003", "n004")
    cell.submit("late", "TP8_NVL18+PP2_IB@t1")
    assert cell.nodes_of("late") == (), "no half of it holds the node that is free"


def test_segments_of_eighteen_trays_are_whole_racks() -> None:
    """NVIDIA-NeMo/RL#2612: segment_size 18, one NVLink domain each."""
    where = nvl72(6).without(["n001", "n060"])
    _, plan = planned(SEGMENTS.format(4), where, 288)
    assert sorted(racks_of(plan, where).items()) == [(1, 18), (2, 18), (4, 18), (5, 18)]
    five = Case(spec=parse(SEGMENTS.format(5)), pool=where, gpu_count=360)
    assert check(five).outcome == "waits"


def test_an_nvlink_domain_is_not_split_over_cabinets_as_by_default() -> None:
    """dra-driver-nvidia-gpu#804: pods of one domain landed in different cabinets; #377: in two."""
    where = nvl72(33)
    hosts = [Host(gpus_free=4, cpu_milli=144_000, memory_mib=960_000) for _ in where.nodes]
    pods = [Pod(gpus=4, cpu_milli=128_000, memory_mib=800_000)] * 18
    by_default = kubernetes(hosts, pods, Random(1).randrange)
    assert len({where.domains[node] for node in by_default.nodes}) > 11
    _, plan = planned(SEGMENTS.format(1), where, 72)
    assert len(racks_of(plan, where)) == 1


def test_pipelines_of_four_hosts_fit_the_real_leaves_of_lingjun() -> None:
    """alibaba-lingjun-dataset-2023: 119 leaves of 2 to 8 hosts hold 183 of them, no more."""
    where = pool_of(load_cluster(Path("lingjun-2023")))
    sizes = Counter(Counter(where.tiers[0]).values())
    assert sizes == {8: 68, 7: 23, 6: 15, 5: 7, 4: 2, 3: 1, 2: 3}
    most = 183
    assert sum(size // 4 * count for size, count in sizes.items()) == most
    planned(f"TP8_NVL18+PP4_ROCE@t1+DP{most}", where, 32 * most)
    case = Case(spec=parse("TP8_NVL18+PP4_ROCE@t1"), pool=where, gpu_count=32 * (most + 1))
    assert check(case).outcome == "rejected"
