"""Whichever degrees of parallelism: whole replicas stay or go, the rest makes its groups anew."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemesis.processors.healer.ladder import Choice, Fault, JobView, choose
from nemesis.schemas.layout import KINDS, Degrees
from nemesis.schemas.operated import JobSubmitted
from nemesis.schemas.policy import Policy
from nemesis.schemas.rank_ranges import parse_ranks
from nemesis.sim.jobs.layout import Layout

SMALL = st.integers(1, 4)
DEGREES = st.builds(Degrees, tp=SMALL, cp=st.integers(1, 3), pp=st.integers(1, 3), ep=SMALL)
REPLICAS = st.integers(1, 4)
SHRINKS = Policy(mode="act", playbooks={"unknown": ("shrink",)})
SWAPS = Policy(mode="act", playbooks={"unknown": ("swap_node", "shrink")})


@given(degrees=DEGREES, count=REPLICAS)
def test_replicas_are_equal_parts_of_the_world_and_peers_one_rank_of_each(
    degrees: Degrees, count: int
) -> None:
    world = degrees.replica_size * count
    of = [degrees.replica_of(rank, world) for rank in range(world)]
    assert [of.count(each) for each in range(count)] == [degrees.replica_size] * count
    for rank in range(world):
        groups = degrees.groups_of(rank, world)
        assert all(rank in groups[kind] for kind in KINDS)
        assert [of[peer] for peer in groups["peers"]] == list(range(count))
        for kind in ("tp", "cp", "pp", "mp", "ep"):
            assert {of[each] for each in groups[kind]} == {of[rank]}, kind


@given(degrees=DEGREES, count=REPLICAS)
def test_groups_of_a_kind_split_the_world(degrees: Degrees, count: int) -> None:
    world = degrees.replica_size * count
    sizes = {
        "world": world,
        "peers": count,
        "dp": world // (degrees.tp * degrees.pp),
        "tp": degrees.tp,
        "cp": degrees.cp,
        "pp": degrees.pp,
        "mp": degrees.tp * degrees.pp,
        "ep": degrees.ep,
        "edp": world // (degrees.tp * degrees.pp * degrees.ep),
    }
    for kind in KINDS:
        made = {degrees.groups_of(rank, world)[kind] for rank in range(world)}
        assert sorted(each for group in made for each in group) == list(range(world))
        assert {len(group) for group in made} == {sizes[kind]}


@given(degrees=DEGREES.map(lambda each: Degrees(each.tp, each.cp, each.pp)), count=REPLICAS)
def test_the_simulated_job_has_the_same_groups(degrees: Degrees, count: int) -> None:
    world = degrees.replica_size * count
    simulated = Layout(world, tp=degrees.tp, cp=degrees.cp, pp=degrees.pp)
    for rank in range(world):
        groups = degrees.groups_of(rank, world)
        for kind, theirs in {"tp": "tp", "cp": "cp", "pp": "pp", "dp": "dp_cp"}.items():
            assert groups[kind] == simulated.group_of(rank, theirs).ranks  # type: ignore[index,arg-type]
        assert sorted(groups["mp"]) == sorted(simulated.group_of(rank, "mp").ranks)
        assert degrees.replica_of(rank, world) == simulated.replicas[rank]


@given(degrees=DEGREES, count=st.integers(2, 4), data=st.data())
def test_who_is_left_makes_the_groups_of_a_smaller_world_which_are_the_old_ones_without_the_lost(
    degrees: Degrees, count: int, data: st.DataObject
) -> None:
    world = degrees.replica_size * count
    lost = data.draw(st.sets(st.integers(0, world - 1), min_size=1, max_size=3))
    left = degrees.without(lost, range(world), world)
    gone = {degrees.replica_of(rank, world) for rank in lost}
    assert len(left) == degrees.replica_size * (count - len(gone))
    for position, rank in enumerate(left):
        after = degrees.groups_of(position, len(left))
        before = degrees.groups_of(rank, world)
        for kind in KINDS:
            named = tuple(left[each] for each in after[kind])
            assert named == tuple(each for each in before[kind] if each in left), kind


@given(
    degrees=DEGREES,
    count=REPLICAS,
    world_min=st.integers(1, 40),
    spares=st.sets(st.sampled_from(["s0", "s1", "s2"])),
    swaps=st.booleans(),
    data=st.data(),
)
def test_a_lost_rank_takes_its_replica_along_or_a_spare_comes_and_the_smallest_world_holds(
    *,
    degrees: Degrees,
    count: int,
    world_min: int,
    spares: set[str],
    swaps: bool,
    data: st.DataObject,
) -> None:
    world = degrees.replica_size * count
    per_node = data.draw(st.sampled_from([n for n in (1, 2, 3, 4) if world % n == 0]))
    job = JobSubmitted(
        at_ns=0,
        by="ann",
        reason="",
        job="llama",
        nodes=tuple(f"n{at}" for at in range(world // per_node)),
        ranks_per_node=per_node,
        tp=degrees.tp,
        cp=degrees.cp,
        pp=degrees.pp,
        ep=degrees.ep,
        world_min=world_min,
    )
    view = JobView(
        submitted=job, members=frozenset(range(world)), moved={}, spares=tuple(sorted(spares))
    )
    dead = frozenset(data.draw(st.sets(st.integers(0, world - 1), min_size=1, max_size=3)))
    fault = Fault(fault_class="unknown", target="job/llama", dead=dead)
    hurt = {degrees.replica_of(rank, world) for rank in dead}
    whole = set(degrees.without(dead, range(world), world))
    choice = choose(fault, view, SWAPS if swaps else SHRINKS)
    match choice:
        case Choice(action="shrink"):
            assert set(choice.members) == whole
            assert set(choice.removed) == set(range(world)) - whole
            assert len(whole) >= max(1, world_min)
        case Choice(action="swap_node"):
            assert choice.members == tuple(range(world))
            assert dead <= set(choice.started)
            assert set(choice.joined) <= spares
            assert len({each.node for each in choice.placements}) == len(choice.joined)
            moved = {rank for each in choice.placements for rank in parse_ranks(each.ranks)}
            assert moved == set(choice.started)
            assert len(hurt) < count  # somebody has the state
        case _:
            assert len(whole) < max(1, world_min)


@pytest.mark.parametrize(
    ("degrees", "world"), [(Degrees(tp=2), 3), (Degrees(tp=0), 4), (Degrees(cp=2, ep=3), 8)]
)
def test_degrees_that_do_not_divide_a_world_split_nothing_and_say_so(
    degrees: Degrees, world: int
) -> None:
    assert degrees.without([0], range(world), world) == []
    with pytest.raises(ValueError, match=f"tp {degrees.tp}.*do not divide {world}"):
        degrees.groups_of(0, world)
