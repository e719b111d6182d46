"""Where a job's ranks would sit, judged from the ranks alone."""

from random import Random

import msgspec
import pytest
from msgspec.structs import replace

from nemesis.processors.mfu.fabric import Span
from nemesis.processors.mfu.planned import gpu_of, job_of
from nemesis.processors.parallelism.case import Case
from nemesis.processors.parallelism.check import check
from nemesis.processors.parallelism.layout import layout_of
from nemesis.processors.parallelism.model import published_models
from nemesis.processors.parallelism.parsing import parse
from nemesis.processors.placement.plan import Plan, plan_of
from nemesis.processors.placement.ranks import ranks_by_slot
from nemesis.processors.placement.reach import spans_of
from nemesis.processors.topology.pool import Pool
from tests.commands import nemesis
from tests.pools import nvl72, pool


def broken(case: Case, plan: Plan) -> list[str]:
    """Groups of ranks that are not together as their terms want it."""
    assert case.pool is not None
    layout, where = case.layout, case.pool
    bay = {name: at for at, name in reversed([*enumerate(where.nodes)])}
    home = {rank: bay[seat.node] for seat in plan.seats for rank in seat.ranks}
    assert sorted(home) == list(range(layout.gpu_count)), "every rank sits once"
    found: list[str] = []
    for _, term in case.wishes():
        assert term.fabric is not None
        stride, degree = layout.stride(term.dim), layout.degree(term.dim)
        for first in (r for r in range(layout.gpu_count) if r // stride % degree == 0):
            group = [home[first + at * stride] for at in range(degree)]
            keys = [where.domains] if term.fabric.kind == "NVL" else []
            keys += [where.tiers[term.fabric.tier - 1]] if term.fabric.tier else []
            if any(len({key[each] for each in group}) > 1 for key in keys):
                found.append(f"{term.dim} from rank {first}")
    return found


HGX = pool((6, 5, 8, 3, 4, 8, 2, 7), pods=(3, 3, 2))


@pytest.mark.parametrize(
    ("text", "where", "gpus"),
    [
        ("TP8_NVL18+PP4_IB2", HGX, 128),
        ("TP4_NVL18+PP2+DP*", HGX, 96),
        ("TP8_NVL18+PP4_IB@t1+DP*", HGX, 128),
        ("TP8_NVL18+DP4+PP2_IB@t1", HGX, 64),
        ("TP8_NVL18+DP4_IB@t2+PP2_IB@t1", HGX, 128),
        ("TP8_NVL18+PP2+DP8_IB@t2", HGX, 128),
        ("TP8_NVL18+CP2_IB@t1+PP2_IB@t2+DP*;order=tp-dp-pp-cp", HGX, 160),
        ("TP8_NVL18/d72+FSDP9_NVL18/d72+DPR3", nvl72(4), 216),
        ("TP16_NVL18+PP4+DP*", nvl72(4), 192),
    ],
)
def test_every_group_that_must_be_together_is(text: str, where: Pool, gpus: int) -> None:
    """On the whole cluster and on twenty that are partly taken: all together, or no place."""
    dice = Random(5)
    for tries in range(20):
        taken = dice.sample(where.nodes, k=tries % 9)
        case = Case(spec=parse(text), pool=where.without(taken), gpu_count=gpus)
        if check(case).outcome != "accepted":
            continue
        plan = plan_of(case)
        assert plan.seats or tries, "an empty cluster has room"
        assert not plan.seats or broken(case, plan) == []
        assert not {seat.node for seat in plan.seats} & set(taken)


def test_the_plan_is_never_worse_than_that_of_any_rule() -> None:
    dice = Random(6)
    for _ in range(40):
        free = HGX.without(dice.sample(HGX.nodes, k=12))
        plan = plan_of(Case(spec=parse("TP8_NVL18+DP*"), pool=free, gpu_count=8 * 17))
        held = [tuple(reversed(each.touched)) for each in plan.candidates if each.touched]
        assert tuple(reversed(plan.touched)) == min(held)
        assert all(n >= least for n, least in zip(plan.touched, plan.fewest, strict=True))


def test_a_node_that_lacks_what_the_job_needs_gets_no_rank() -> None:
    mixed = pool((8, 8), classes=("A100",) * 8 + ("H100",) * 8)
    plan = plan_of(Case(spec=parse("TP8_NVL18+DP8"), pool=mixed, gpu_count=64))
    assert {seat.node for seat in plan.seats} == set(mixed.nodes[8:])


def test_ranks_follow_the_order_of_the_row() -> None:
    layout = layout_of(parse("TP2+DP2+PP2"), 2)
    assert ranks_by_slot(layout, ("TP", "DP", "PP")) == [0, 1, 2, 3, 4, 5, 6, 7]
    assert ranks_by_slot(layout, ("TP", "PP", "DP")) == [0, 1, 4, 5, 2, 3, 6, 7]


LINGJUN = ("topology", "place", "TP8_NVL18+PP4_ROCE@t1", "--cluster", "lingjun-2023")


def test_the_command_shows_the_place_and_what_others_would_do() -> None:
    ran = nemesis(*LINGJUN, "--gpus", "512")
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert lines[0].startswith("64 nodes on 8 leaves (at least 8), 1 pod (at least 1): none can")
    assert lines[1] == "  ranks along the nodes, closest first: TP8 x PP4 x DP16"
    assert "  volcano         16 leaves, 1 pod" in lines
    assert "  subtree         8 leaves, 1 pod  <- taken" in lines


def test_programs_get_every_rank() -> None:
    found = msgspec.json.decode(nemesis(*LINGJUN, "--gpus", "64", "--json").stdout)
    assert found["outcome"] == "placed"
    assert [rank for seat in found["seats"] for rank in seat["ranks"]] == list(range(64))


@pytest.mark.parametrize(
    ("more", "code", "word"),
    [
        (("--gpus", "96"), 0, "12 nodes on"),
        (("--gpus", "50"), 1, "error W1"),
        (("--gpus", "32", "--taken", "n[001-847]"), 3, "error C1"),
    ],
)
def test_what_cannot_be_placed_is_told_as_the_checker_tells_it(
    more: tuple[str, ...], code: int, word: str
) -> None:
    ran = nemesis(*LINGJUN, *more)
    assert (ran.returncode, word in ran.stdout) == (code, True)


def tapered(where: Pool, *tapers: float) -> Pool:
    return replace(where, tapers=tapers)


def test_a_group_reaches_as_far_as_its_worst_member() -> None:
    """16 ranks on two nodes of a leaf; then on two pods, behind 1:2 and 1:3."""
    where = tapered(HGX, 1.0, 2.0, 3.0)
    layout = layout_of(parse("TP8+DP2"), 2)
    near = spans_of(layout, where, [0] * 8 + [1] * 8)
    assert (near.tp, near.dp) == (Span(8), Span(2, 2))
    far = spans_of(layout, where, [0] * 8 + [42] * 8)
    assert (far.tp, far.dp) == (Span(8), Span(2, 2, 1_000_000 + 5_000_000 // 2))
    torn = spans_of(layout, where, [0, 1] * 8)
    assert (torn.tp.domains, torn.dp.domains) == (2, 1)


def test_experts_take_neighbours_of_a_stage() -> None:
    where = pool((8,), gpus=2)
    layout = layout_of(parse("TP2+EP4+DP4+PP2"), 4)
    spans = spans_of(layout, where, [rank // 2 for rank in range(16)])
    assert (spans.ep, spans.expert_dp) == (Span(4, 2), Span(2, 2))
    whole = spans_of(layout, where, [0] * 16)
    assert (whole.ep, whole.dp, whole.pp) == (Span(4), Span(4), Span(2))


LLAMA = "TP8_NVL18+PP4+DP4;sp,gbs=64"


@pytest.mark.parametrize(("tapers", "gain"), [((1.0, 1.0, 1.0), False), ((1.0, 4.0, 7.0), True)])
def test_ranks_are_laid_so_that_the_step_is_shortest(tapers: tuple[float, ...], gain: bool) -> None:
    """Behind a taper gradients stay near and activations go far; without one nothing is won."""
    where = tapered(pool((4,) * 8, pods=(4, 4)), *tapers)
    case = Case(
        spec=parse(LLAMA), pool=where, gpu_count=128, model=published_models()["llama3-70b"]
    )
    plan = plan_of(case, job_of(case, *gpu_of(where)))
    steps = {each.rule: each.step_ns for each in plan.candidates if each.step_ns}
    assert 0 < plan.step_ns_least <= plan.step_ns == min(steps.values())
    assert (steps["by role"] < 0.99 * steps["subtree"]) == gain
    assert broken(case, plan) == []
    assert 0 < plan.mfu_ppm < 700_000


def test_the_command_tells_the_step_where_it_can() -> None:
    asked = ("topology", "place", LLAMA, "--cluster", "coreweave-rno2a", "--gpus", "128")
    told = nemesis(*asked, "--model", "llama3-70b")
    assert told.returncode == 0, told.stderr
    assert "of the peak (modelled)" in told.stdout
    assert "no step time: no model is said" in nemesis(*asked).stdout
