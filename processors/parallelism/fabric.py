"""What a description asks of a fabric, in GPUs: units that must be whole, and who may hold them.

A *unit* is the number of GPUs that have to share one NVLink domain: the product of the dims that
ask for NVL and are hard, for a group of one of them is made of groups of those inside it. Experts
take their ranks out of the same ones: EP x ETP that ask for NVL join as a common multiple.
"""

from collections.abc import Sequence
from math import lcm, prod
from typing import Final

from nemesis.processors.parallelism.case import Case
from nemesis.processors.parallelism.layout import EXPERT
from nemesis.processors.parallelism.spec import Dim, Fabric, Term
from nemesis.processors.topology.pool import Pool

TRANSPORTS: Final = {"IB": "infiniband", "ROCE": "roce", "EFA": "efa"}
"""What a pool calls the network that a fabric is."""


def degree_of(case: Case, dim: Dim) -> int:
    """Members of a dim's group."""
    return case.layout.degree(dim)


def unit(case: Case, terms: Sequence[Term]) -> int:
    """GPUs that share an NVLink domain if these terms are to have it."""
    dense = prod(degree_of(case, each.dim) for each in terms if each.dim not in EXPERT)
    experts = 1
    if any(each.dim in EXPERT for each in terms):
        experts = case.layout.expert_parallel * case.layout.expert_tensor
    return lcm(dense, experts)


def nvl_terms(case: Case, *, hard_only: bool) -> list[tuple[str, Term, Fabric]]:
    """(part, term, fabric) of those that ask for NVL, innermost first; single members need none."""
    return [
        (part, term, term.fabric)
        for part, term in case.wishes()
        if term.fabric
        and term.fabric.kind == "NVL"
        and degree_of(case, term.dim) > 1
        and not (hard_only and term.fabric.force == "soft")
    ]


def hard_unit(case: Case) -> int:
    """GPUs that must share an NVLink domain."""
    return unit(case, [term for _, term, _ in nvl_terms(case, hard_only=True)])


def able(pool: Pool, bay: int, fabrics: Sequence[Fabric]) -> bool:
    """A bay has what these fabrics ask of it: the same for all of its class and rails."""
    for fabric in fabrics:
        if fabric.kind == "NVL":
            links = pool.gpu_class(bay).nvlinks
            known = pool.gpu_classes[bay] != ""
            if known and links < max(1, fabric.link_count):
                return False
        elif fabric.kind in TRANSPORTS:
            if pool.transport not in ("", TRANSPORTS[fabric.kind]):
                return False
            if pool.rail_counts[bay] < fabric.link_count:
                return False
    return True


def hard_fabrics(case: Case) -> list[Fabric]:
    """All fabrics that the job must have."""
    return [t.fabric for _, t in case.wishes() if t.fabric and t.fabric.force == "hard"]


def able_bays(case: Case) -> list[int]:
    """The bays that have what the job must have."""
    assert case.pool is not None
    pool, fabrics = case.pool, hard_fabrics(case)
    kinds = [*zip(pool.gpu_classes, pool.rail_counts, strict=True)]
    first = {kind: bay for bay, kind in reversed([*enumerate(kinds)])}
    fit = {kind for kind, bay in first.items() if able(pool, bay, fabrics)}
    bays = [bay for bay, kind in enumerate(kinds) if kind in fit]
    wanted = {fabric.width for fabric in fabrics} - {0}
    if not wanted:
        return bays
    return [bay for bay in bays if {pool.domain_widths[pool.domains[bay]]} == wanted]


def tier_need(case: Case, term: Term) -> int:
    """GPUs that must lie below one switch of the tier that a term names.

    The whole group, each member with the unit that it is in, unless its dim is part of the unit. Of
    a pipeline too: in a tree, stages whose every hop stays below one switch are all below it.
    """
    inside = any(term is own for _, own, _ in nvl_terms(case, hard_only=True))
    return hard_unit(case) if inside else degree_of(case, term.dim) * hard_unit(case)
