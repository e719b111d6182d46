"""How far the groups of a placed job reach: the domains and switches that each is spread over.

A step waits for its slowest group, so of each dim the worst one counts. Between groups of a tier a
ring feels that tier's oversubscription with the share of its edges that cross it
(`marginal.felt_ppm`); who crosses a pod has crossed its leaves too.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import mul

from nemesis.processors.mfu.fabric import MILLION, Span
from nemesis.processors.mfu.marginal import felt_ppm
from nemesis.processors.mfu.spans import Spans
from nemesis.processors.parallelism.layout import Layout
from nemesis.processors.parallelism.spec import Dim
from nemesis.processors.topology.pool import Pool

REPLICAS: tuple[Dim, ...] = ("CP", "DP", "DPR")
"""Ranks that hold the same dense parameters."""


def spans_of(layout: Layout, pool: Pool, bays: Sequence[int]) -> Spans:
    """The groups of a job whose rank r sits in bay `bays[r]`."""
    ways = ways_of(pool)

    def worst(groups: Iterable[Sequence[int]]) -> Span:
        return _worst([[bays[rank] for rank in group] for group in groups], pool, ways)

    stages = _groups(layout, ("TP", *REPLICAS))
    unit = layout.expert_tensor * layout.expert_parallel
    return Spans(
        tp=worst(_groups(layout, ("TP",))),
        cp=worst(_groups(layout, ("CP",))),
        pp=worst(_groups(layout, ("PP",))),
        dp=worst(_groups(layout, REPLICAS)),
        ep=worst(
            stage[at + first : at + unit : layout.expert_tensor]
            for stage in stages
            for at in range(0, len(stage), unit)
            for first in range(layout.expert_tensor)
        ),
        expert_dp=worst(stage[at::unit] for stage in stages for at in range(unit)),
    )


def least_spans(layout: Layout, width: int) -> Spans:
    """Every group as if it were alone on NVLink domains of that width, without a taper."""

    def alone(members: int) -> Span:
        return Span(members, -(-members // width))

    return Spans(
        tp=alone(layout.degree("TP")),
        cp=alone(layout.degree("CP")),
        pp=alone(layout.degree("PP")),
        dp=alone(layout.replicas * layout.degree("CP")),
        ep=alone(layout.expert_parallel),
        expert_dp=alone(max(1, layout.expert_replicas)),
    )


def _groups(layout: Layout, dims: Sequence[Dim]) -> list[list[int]]:
    """Ranks that differ in these dims alone, each group in the order of ranks."""
    inside, outside = [0], [0]
    for dim, degree in layout.dense:
        steps = [at * layout.stride(dim) for at in range(degree)]
        if dim in dims or (dim == "FSDP" and "DP" in dims):
            inside = [rank + step for step in steps for rank in inside]
        else:
            outside = [rank + step for step in steps for rank in outside]
    return [[first + rank for rank in inside] for first in outside]


def ways_of(pool: Pool) -> list[int]:
    """By tier, the oversubscription in ppm of the way between the groups of the tier below it."""
    tapers = accumulate(pool.tapers, mul)
    return [round(taper * MILLION) for taper in tapers]


def _worst(groups: Sequence[Sequence[int]], pool: Pool, ways: Sequence[int]) -> Span:
    """The group over most domains, and the worst way that any of them takes."""
    domains = taper = 1
    for group in groups:
        domains = max(domains, len({pool.domains[bay] for bay in group}))
        for tier, way in zip(pool.tiers[:-1], ways[1:], strict=True):
            if way > MILLION:
                taper = max(taper, felt_ppm(way, len({tier[bay] for bay in group})))
    return Span(len(groups[0]), domains, max(MILLION, taper))
