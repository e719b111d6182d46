"""Why a job waits, what blocks it, and what would help: asked of the rules that did not place it.

An explanation is a counterfactual: with its wish given up, with the nodes that are out of work,
with the spares of others, with the jobs that run over, would it start? The first that says yes is
the reason.
"""

from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec.structs import replace

from nemesis.processors.parallelism.case import Case
from nemesis.processors.parallelism.spec import printed
from nemesis.processors.placement.ground import ground_of
from nemesis.processors.placement.ranks import Request, able_pool, request_of
from nemesis.processors.scheduler.admission import spec_of
from nemesis.processors.scheduler.placing import next_relaxation_s
from nemesis.processors.scheduler.queue import Delay, Ground, fitted
from nemesis.processors.scheduler.settings import SECOND_NS
from nemesis.processors.scheduler.state import State, Waiting
from nemesis.schemas.node_ranges import format_nodes, parse_nodes
from nemesis.schemas.scheduled import WaitCode

NAMED_MAX: Final = 8
"""Nodes, groups or jobs that one explanation lists."""
FOR_EVER_S: Final = 10**9
"""No wish is waited for that long."""


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job waits."""

    code: WaitCode
    reason: str
    blocked: tuple[str, ...] = ()
    helps: tuple[str, ...] = ()
    start_ns: int = 0


def why(state: State, ground: Ground, delay: Delay, now_ns: int) -> Why:
    """What keeps a job from starting, and what would let it."""
    waiting = state.queue[delay.name]
    own = delay.reservation
    if not ground.whole.nodes:
        return Why(code="inventory", reason="no node has told yet what it is made of")
    if delay.for_advice:
        return Why(code="advice", reason="it has a place, and waits a moment for advice")
    if own is not None and own.name != delay.name and _fits(state, ground, waiting, now_ns):
        return Why(
            code="turn",
            reason=f"what is free is kept for {own.name}, which stands before it",
            blocked=(own.name,),
            helps=(f"{own.name} starts", "a stated runtime that ends before it does"),
            start_ns=own.start_ns,
        )
    start_ns = own.start_ns if own is not None and own.name == delay.name else 0
    helps = [*_ends(delay), *_large_enough(state, delay), *_smaller(delay)]
    if (wished := _wish(state, ground, waiting, now_ns)) is not None:
        return replace(wished, helps=(*wished.helps, *helps), start_ns=start_ns)
    if (held := _nodes(state, ground, waiting, now_ns)) is not None:
        return replace(held, helps=(*held.helps, *helps), start_ns=start_ns)
    if (spared := _spares(state, ground, waiting, now_ns)) is not None:
        more = [each for each in spared.helps if not any(help.startswith(each) for help in helps)]
        return replace(spared, helps=(*more, *helps), start_ns=start_ns)
    texts = [f"{each.code}: {each.text}" for each in delay.admission.findings]
    if delay.admission.outcome == "accepted":
        reason = "enough is free, and no rule finds a place that holds what must lie together"
        return Why(
            code="shape",
            reason=reason,
            blocked=_short_groups(state, delay),
            helps=tuple(helps),
            start_ns=start_ns,
        )
    return Why(
        code="capacity",
        reason=texts[0] if texts else "other jobs have what it needs",
        blocked=_short_groups(state, delay),
        helps=tuple(helps),
        start_ns=start_ns,
    )


def _fits(state: State, ground: Ground, waiting: Waiting, now_ns: int) -> bool:
    return fitted(state, ground, waiting, (), now_ns) is not None


def _wish(state: State, ground: Ground, waiting: Waiting, now_ns: int) -> Why | None:
    """It would start if it did not wait for a soft wish."""
    waited_s = max(0, now_ns - waiting.since_ns) // SECOND_NS
    if not next_relaxation_s(spec_of(waiting.job), waited_s):
        return None
    patient = replace(waiting, since_ns=now_ns - FOR_EVER_S * SECOND_NS)
    found = fitted(state, ground, patient, (), now_ns)
    if found is None:
        return None
    spec, relaxed = found[0].spec, found[1].relaxed
    left_s = next_relaxation_s(spec, waited_s) - waited_s
    return Why(
        code="wish",
        reason=f"it waits for {' and '.join(relaxed) or printed(spec)}, {left_s} s more",
        blocked=relaxed,
        helps=(f"in {left_s} s it starts without",),
    )


def _nodes(state: State, ground: Ground, waiting: Waiting, now_ns: int) -> Why | None:
    """It would start if nodes that are out of work could be had."""
    out = {**ground.doubtful, **ground.barred}
    if not out:
        return None
    found = fitted(state, replace(ground, barred={}, doubtful={}), waiting, (), now_ns)
    if found is None:
        return None
    _, place = found
    missing = [node for node in (*place.nodes, *place.spares) if node in out]
    named = missing[:NAMED_MAX]
    more = f" and {len(missing) - len(named)} more" if len(missing) > len(named) else ""
    return Why(
        code="nodes",
        reason=f"{len(missing)} nodes that would do are out of work: "
        + ", ".join(f"{node} ({out[node]})" for node in named)
        + more,
        blocked=tuple(named),
        helps=tuple(f"{node} works again" for node in named),
    )


def _spares(state: State, ground: Ground, waiting: Waiting, now_ns: int) -> Why | None:
    """It would start if it could have what is idle as spares of jobs that run."""
    kept = {
        node: name
        for name, running in sorted(state.running.items())
        for node in parse_nodes(running.job.spares)
        if node in running.nodes
    }
    taken = set(ground.taken) - kept.keys()
    found = fitted(state, replace(ground, taken=taken), waiting, (), now_ns) if kept else None
    if found is None:
        return None
    _, place = found
    missing = sorted({*place.nodes, *place.spares} & kept.keys())
    whose = sorted({kept[node] for node in missing})
    return Why(
        code="capacity",
        reason=f"{_listed(frozenset(missing))} would do and are kept as spares of "
        + ", ".join(whose[:NAMED_MAX]),
        blocked=tuple(missing[:NAMED_MAX]),
        helps=tuple(f"the end of {name}" for name in whose[:NAMED_MAX]),
    )


def _ends(delay: Delay) -> Iterator[str]:
    """Jobs whose end lets it start."""
    own = delay.reservation
    if own is not None and own.name == delay.name and own.waits_for:
        named = own.waits_for[:NAMED_MAX]
        more = f" and {len(own.waits_for) - len(named)} more" if len(own.waits_for) > 8 else ""
        yield f"the end of {', '.join(named)}{more}: it then has {_listed(own.nodes)}"


def _listed(nodes: frozenset[str]) -> str:
    return ", ".join(format_nodes(sorted(nodes)))[:200]


def _smaller(delay: Delay) -> Iterator[str]:
    """How many replicas would start now."""
    for case in delay.admission.cases[:1]:
        replica = case.world // case.layout.replicas
        room = _room(case)
        count = min(case.layout.replicas - 1, room // replica)
        if count > 0:
            gpus = count * replica
            yield f"{count} replicas of {case.layout.replicas} would fit now, {gpus} GPUs"


def _room(case: Case) -> int:
    """GPUs in whole segments that are free."""
    ground, _ = ground_of(able_pool(case))
    request = request_of(case, ground)
    size = request.gang.segment
    return sum(free // size * size for free in ground.free) * request.node_gpus


def _large_enough(state: State, delay: Delay) -> Iterator[str]:
    """The few leaves or domains that hold what must lie together once they are free."""
    for case in delay.admission.cases[:1]:
        assert case.pool is not None
        empty = replace(case, pool=replace(case.pool, free_counts=case.pool.gpu_counts))
        ground, names = ground_of(able_pool(empty))
        need = _together(request_of(empty, ground))
        fit = [each for free, each in zip(ground.free, names, strict=True) if free >= need]
        if len(fit) < len(names) and len(fit) <= NAMED_MAX:
            where = " or ".join(_where(state, members[0]) for members in fit)
            if where:
                yield f"room on {where}: no other holds the {need} nodes that must lie together"


def _short_groups(state: State, delay: Delay) -> tuple[str, ...]:
    """Leaves or domains with free nodes and no room for what must lie together there."""
    found: list[str] = []
    for case in delay.admission.cases[:1]:
        ground, names = ground_of(able_pool(case))
        need = _together(request_of(case, ground))
        for free, members in zip(ground.free, names, strict=True):
            if 0 < free < need:
                found.append(f"{_where(state, members[0])} ({free} free)")
    return tuple(found[:NAMED_MAX])


def _together(request: Request) -> int:
    """Nodes that must lie on one shelf."""
    return max(request.gang.segment, *(b.nodes for b in request.blocks if not b.height), 1)


def _where(state: State, node: str) -> str:
    """The leaf of a node, or itself where none is known."""
    leaves = state.told.nodes[node].leaves
    return leaves[0] if leaves else node
