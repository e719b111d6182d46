"""Which nodes stand by for a job: they can take a role in it, and do not fail with it.

*Role*: what must lie together in a job (an NVLink domain, a leaf) must do so after a swap as well;
a spare elsewhere cannot take the place of a node in such a block. A spare that can take more places
comes first. *Failure domain*: what takes a leaf or a rack from the job is not to take its spares
too, nor two spares at once. Where both cannot be had, role comes before distance, and a spare that
is near is better than none.
"""

from collections.abc import Hashable, Mapping, Sequence

import msgspec

from nemesis.processors.parallelism.case import Case
from nemesis.processors.placement.ground import ground_of
from nemesis.processors.placement.ranks import able_pool, request_of
from nemesis.processors.topology.pool import Pool
from nemesis.processors.topology.told import NodePart


class Together(msgspec.Struct, frozen=True):
    """Neighbours in the row of a job's nodes that must be of one group."""

    size: int
    groups: Mapping[str, Hashable]
    """By node."""


def spares_of(
    count: int,
    row: Sequence[str],
    together: Sequence[Together],
    pool: Pool,
    told: Mapping[str, NodePart],
) -> tuple[tuple[str, ...], bool]:
    """Spares for a job on this row of nodes, and whether one shares a leaf or a rack with it."""
    working = set(row)
    free = [name for name in pool.whole_nodes if name not in working]
    used = {domain for name in row for domain in failure_domains(told.get(name))}
    found: list[str] = []
    near = False
    while len(found) < count and free:
        best = min(free, key=lambda name: (*_worth(name, row, together, used, told), name))
        near = near or not used.isdisjoint(failure_domains(told.get(best)))
        used |= failure_domains(told.get(best))
        free.remove(best)
        found.append(best)
    return tuple(found), near


def _worth(
    name: str,
    row: Sequence[str],
    together: Sequence[Together],
    used: set[str],
    told: Mapping[str, NodePart],
) -> tuple[int, int]:
    """(places that it cannot take, what it shares): the less, the better."""
    return len(row) - roles(name, row, together), len(used & failure_domains(told.get(name)))


def roles(name: str, row: Sequence[str], together: Sequence[Together]) -> int:
    """How many of a job's nodes this one could stand in for."""
    if all(each.size < 2 for each in together):
        return len(row)
    return sum(
        all(_joins(name, at, row, each) for each in together if each.size > 1)
        for at in range(len(row))
    )


def _joins(name: str, at: int, row: Sequence[str], each: Together) -> bool:
    """In the place of the node there, it is of the group of that node's neighbours."""
    first = at - at % each.size
    others = [*row[first:at], *row[at + 1 : first + each.size]]
    return all(each.groups[name] == each.groups[other] for other in others[:1])


def together_of(case: Case) -> list[Together]:
    """What must lie together in a job, by node of its pool."""
    assert case.pool is not None
    ground, _ = ground_of(able_pool(case))
    request = request_of(case, ground)
    above = len(ground.levels) - case.pool.depth - 1
    found: list[Together] = []
    for size, height in [
        (request.gang.segment, 0),
        *((block.nodes, block.height) for block in request.blocks),
    ]:
        tier = case.pool.tiers[max(0, height - above - 1)]
        rows = zip(case.pool.nodes, tier, case.pool.domains, strict=True)
        groups: dict[str, Hashable] = {
            name: (group, domain if height == 0 and above == 0 else -1)
            for name, group, domain in rows
        }
        found.append(Together(size, groups))
    return found


def failure_domains(part: NodePart | None) -> set[str]:
    """What takes a node with it when it fails."""
    if part is None:
        return set()
    return {*part.leaves, *([f"rack/{part.rack}"] if part.rack else [])}
