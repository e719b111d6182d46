"""Whether there is room: now, with what other jobs have, and ever, with all GPUs free."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from nemesis.processors.parallelism.case import Case, Finding
from nemesis.processors.parallelism.fabric import able_bays, hard_unit, tier_need
from nemesis.processors.topology.pool import TIER_NAMES, Pool, sums

NAMED_MAX: Final = 4
"""Domains that a sentence lists; the rest is counted."""


def g1(case: Case) -> Iterator[Finding]:
    """One replica runs on GPUs of one class; replicas of several are as slow as the slowest."""
    pool = _pool(case)
    if len(set(pool.gpu_classes)) == 1:
        return
    by_class: dict[str, int] = {}
    for bay in able_bays(case):
        name = pool.gpu_classes[bay]
        by_class[name] = by_class.get(name, 0) + pool.gpu_counts[bay]
    world = case.world
    if len(by_class) < 2 or world <= max(by_class.values()) or world > sum(by_class.values()):
        return
    replica = world // case.layout.replicas
    counts = ", ".join(f"{count} {name}" for name, count in sorted(by_class.items()))
    if sum(count // replica for count in by_class.values()) < case.layout.replicas:
        text = f"a replica of {replica} GPUs would mix classes: {counts}"
        yield Finding(code="G1", text=text)
    else:
        text = f"{world} GPUs take more than one class: {counts}; all wait for the slowest"
        yield Finding(code="G1", severity="warning", part=case.part("DP"), text=text)


def c1(case: Case) -> Iterator[Finding]:
    """Domains have room for as many whole units as the job needs."""
    pool, need = _pool(case), hard_unit(case)
    units = -(-case.world // need)
    bays = able_bays(case)
    room = _room(pool, bays, [pool.domains[bay] for bay in bays], need=need, units=units)
    if not room.enough:
        what = f"{units} units of {need} GPUs" if need > 1 else f"{units} GPUs"
        yield _lacking(room, what, "C1", "")
    elif case.spec.spares:
        yield from _spares(case)


def _spares(case: Case) -> Iterator[Finding]:
    """Nodes that are to be held ready are whole, and not the job's."""
    pool, count = _pool(case), case.spec.spares
    fits = [
        len(whole) >= count and gpus - sum(whole[:count]) >= case.world
        for whole, gpus in ((pool.whole, pool.gpu_count), (pool.whole_free, pool.free_count))
    ]
    if all(fits):
        return
    what = f"{count} spare nodes beside {case.world} GPUs"
    text = f"{what}: never, the whole cluster has {len(pool.whole)} nodes, {pool.gpu_count} GPUs"
    if fits[0]:
        text = f"{what}: not now, {len(pool.whole_free)} nodes and {pool.free_count} GPUs are free"
    yield Finding(code="C1", part="spares", text=text, waits=fits[0])


def c2(case: Case) -> Iterator[Finding]:
    """Below the switches of a tier there is room for what must lie together there."""
    pool = _pool(case)
    for part, term in case.wishes():
        fabric = term.fabric
        if not fabric or not fabric.tier or fabric.force == "soft":
            continue
        if fabric.tier > pool.depth or case.layout.degree(term.dim) == 1:
            continue
        need = tier_need(case, term)
        units = -(-case.world // need)
        bays, tier = able_bays(case), pool.tiers[fabric.tier - 1]
        groups = [tier[bay] for bay in bays]
        room = _room(pool, bays, groups, need=need, units=units, whole=hard_unit(case))
        if not room.enough:
            name = TIER_NAMES[min(fabric.tier, len(TIER_NAMES)) - 1]
            what = f"{units} times {need} GPUs below one {name} for {term.dim}"
            yield _lacking(room, what, "C2", part)


def _pool(case: Case) -> Pool:
    assert case.pool is not None, "rules of this phase run where there is a pool"
    return case.pool


class _Room(NamedTuple):
    """By group: GPUs that could hold something, now and with no other job; and whose they are."""

    need: int
    units: int
    now: Mapping[int, int]
    ever: Mapping[int, int]
    groups: Sequence[int]
    nodes: Sequence[str]
    """By bay, beside its group."""

    @property
    def enough(self) -> bool:
        """The job fits, as far as counts say."""
        return sum(count // self.need for count in self.now.values()) >= self.units

    def first(self, group: int) -> str:
        """The first node of a group."""
        return self.nodes[self.groups.index(group)]


def _room(
    pool: Pool,
    bays: Sequence[int],
    groups: Sequence[int],
    *,
    need: int,
    units: int,
    whole: int = 1,
) -> _Room:
    """Of these bays, each with its group; GPUs of a domain count by `whole` ones only."""
    found: list[Mapping[int, int]] = []
    for counts in (pool.free_counts, pool.gpu_counts):
        own = [counts[bay] for bay in bays]
        if whole > 1:
            found.append(_by_whole(groups, [pool.domains[bay] for bay in bays], own, whole))
        else:
            found.append(sums(groups, own))
    return _Room(need, units, found[0], found[1], groups, [pool.nodes[bay] for bay in bays])


def _by_whole(
    groups: Sequence[int], domains: Sequence[int], counts: Sequence[int], whole: int
) -> Mapping[int, int]:
    """By group, its GPUs in whole ones of each of its domains."""
    parts: dict[tuple[int, int], int] = {}
    for pair, count in zip(zip(groups, domains, strict=True), counts, strict=True):
        parts[pair] = parts.get(pair, 0) + count
    found: dict[int, int] = {}
    for (group, _), count in parts.items():
        found[group] = found.get(group, 0) + count // whole * whole
    return found


def _lacking(room: _Room, what: str, code: str, part: str) -> Finding:
    """What is missing, whether for ever, and around whom too little is free."""
    ever = sum(count // room.need for count in room.ever.values())
    if ever < room.units:
        return Finding(code=code, part=part, text=f"{what}: never, the whole cluster holds {ever}")
    have = sum(count // room.need for count in room.now.values())
    short = [group for group, count in room.now.items() if 0 < count < room.need]
    names = [f"{room.first(group)} ({room.now[group]})" for group in short[:NAMED_MAX]]
    more = f" and {len(short) - NAMED_MAX} more" if len(short) > NAMED_MAX else ""
    blocked = f"; too few are free in the groups of {', '.join(names)}{more}" if short else ""
    text = f"{what}: not now, there is room for {have}{blocked}"
    return Finding(code=code, part=part, text=text, waits=True)
