"""A place as somebody advised, if it is as good as a place must be; else the rules' own.

Advice may move a job to other nodes and choose its spares. It may not make it much slower, spread
it over more switches, leave it without its spares, or put these where a failure of its own takes
them too while others are free.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from nemesis.processors.parallelism.case import Case
from nemesis.processors.placement.named import named
from nemesis.processors.scheduler.placing import Place, placed
from nemesis.processors.scheduler.spares import failure_domains, roles, together_of
from nemesis.processors.scheduler.state import Advised
from nemesis.processors.topology.pool import Pool
from nemesis.processors.topology.told import NodePart

MILLION: Final = 1_000_000
SLOWER_MAX_PPM: Final = 50_000
"""An advised place may cost so much of a step: what it is good for, no model knows. A choice."""


class Broken(msgspec.Struct, frozen=True):
    """A rule that does not let an act pass."""

    rule: str
    why: str


def followed(
    case: Case,
    own: Place,
    advised: Advised,
    *,
    spare_pool: Pool,
    told: Mapping[str, NodePart],
    waited_s: int,
) -> Place | Broken:
    """The place that was advised, or the rule that it breaks; `own`: the one of the rules."""
    place = own
    if advised.nodes:
        named_case, placement = named(case, advised.nodes)
        if len(advised.nodes) != len(own.nodes):
            told_count = f"{len(advised.nodes)} nodes, the job needs {len(own.nodes)}"
            return Broken("nodes", told_count)
        if not placement:
            return Broken("not_free", "not all of these nodes are to be had")
        found = placed(
            named_case,
            spare_pool=spare_pool,
            told=told,
            waited_s=waited_s,
            proposed=("advisor", placement),
        )
        if found is None:
            return Broken("shape", "the job's groups cannot lie on them as its description says")
        if worse := _worse(own, found):
            return Broken("worse", worse)
        place = replace(found, advice=advised.advice)
    if advised.spares:
        broken = _bad_spares(case, place, advised.spares, spare_pool, told)
        if broken is not None:
            return broken
        near = _near(place.nodes, advised.spares, told)
        place = replace(place, spares=advised.spares, spares_near=near, advice=advised.advice)
    return place


def _worse(own: Place, other: Place) -> str:
    """Why a place is too much worse than the rules' own, "" where it is not."""
    if len(other.relaxed) > len(own.relaxed):
        return f"it does not grant {' and '.join(other.relaxed)}"
    mine, its = own.quality, other.quality
    if mine.step_ns and its.step_ns:
        if its.step_ns * MILLION > mine.step_ns * (MILLION + SLOWER_MAX_PPM):
            told = f"{its.step_ns / 1e9:.3f} s in place of {mine.step_ns / 1e9:.3f} s"
            return f"a step is predicted to take {told}"
        return ""
    if other.touched[::-1] > own.touched[::-1]:
        level, more, less = next(
            (name, a, b)
            for name, a, b in reversed([*zip(own.levels, other.touched, own.touched, strict=True)])
            if a != b
        )
        return f"it touches {more} groups of the level {level}, and {less} are enough"
    return ""


def _bad_spares(
    case: Case,
    place: Place,
    spares: tuple[str, ...],
    pool: Pool,
    told: Mapping[str, NodePart],
) -> Broken | None:
    if len(spares) != case.spec.spares:
        return Broken("spares", f"{len(spares)} nodes, the description says {case.spec.spares}")
    columns = zip(pool.nodes, pool.gpu_counts, pool.free_counts, strict=True)
    taken = {name for name, gpus, free in columns if free < gpus}
    known = set(pool.nodes)
    for name in spares:
        if name not in known or name in taken or name in place.nodes:
            return Broken("not_free", f"{name[:60]} is not to be had as a spare")
    together = together_of(case)
    mine = sum(roles(name, place.row, together) for name in place.spares)
    its = sum(roles(name, place.row, together) for name in spares)
    if its < mine:
        return Broken("spares_role", f"they can take {its} places in the job, others {mine}")
    if not place.spares_near and _near(place.nodes, spares, told):
        return Broken("spares_near", "one shares a leaf or a rack with the job, others do not")
    return None


def _near(nodes: tuple[str, ...], spares: tuple[str, ...], told: Mapping[str, NodePart]) -> bool:
    used = {domain for name in nodes for domain in failure_domains(told.get(name))}
    return any(not used.isdisjoint(failure_domains(told.get(name))) for name in spares)
