"""How far the groups of a placed job reach: the domains and switches that each is spread over.

A step waits for its slowest group, so of each dim the worst one counts. Between groups of a tier a
ring feels that tier's oversubscription with the share of its edges that cross it
(`marginal.felt_ppm`); who crosses a pod has crossed its leaves too.
"""

from collections.abc import Sequence
from itertools import accumulate
from operator import mul

import numpy as np
from numpy.typing import NDArray

from nemesis.processors.mfu.fabric import MILLION, Span
from nemesis.processors.mfu.marginal import felt_ppm
from nemesis.processors.mfu.spans import Spans
from nemesis.processors.parallelism.layout import Layout
from nemesis.processors.parallelism.spec import Dim
from nemesis.processors.topology.pool import Pool

Ranks = NDArray[np.int64]

REPLICAS: tuple[Dim, ...] = ("CP", "DP", "DPR")
"""Ranks that hold the same dense parameters."""


def spans_of(layout: Layout, pool: Pool, bays: Sequence[int]) -> Spans:
    """The groups of a job whose rank r sits in bay `bays[r]`."""
    home = np.array(bays)
    ways = ways_of(pool)
    keys = [np.array(pool.domains)[home]]
    keys += [np.array(tier)[home] for tier in pool.tiers[:-1]]

    def worst(groups: Ranks) -> Span:
        domains, *switches = (_most(key[groups]) for key in keys)
        felt = (felt_ppm(way, most) for way, most in zip(ways[1:], switches, strict=True))
        return Span(groups.shape[1], domains, max(MILLION, *felt))

    stages = _groups(layout, ("TP", *REPLICAS))
    tensor, experts = layout.expert_tensor, layout.expert_parallel
    units = stages.reshape(-1, experts, tensor)
    copies = stages.reshape(len(stages), -1, experts * tensor)
    return Spans(
        tp=worst(_groups(layout, ("TP",))),
        cp=worst(_groups(layout, ("CP",))),
        pp=worst(_groups(layout, ("PP",))),
        dp=worst(_groups(layout, REPLICAS)),
        ep=worst(units.transpose(0, 2, 1).reshape(-1, experts)),
        expert_dp=worst(copies.transpose(0, 2, 1).reshape(-1, copies.shape[1])),
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


def _groups(layout: Layout, dims: Sequence[Dim]) -> Ranks:
    """[group, member]: ranks that differ in these dims alone, each group in the order of ranks."""
    inside = outside = np.zeros(1, np.int64)
    for dim, degree in layout.dense:
        steps = np.arange(degree)[:, None] * layout.stride(dim)
        if dim in dims or (dim == "FSDP" and "DP" in dims):
            inside = (steps + inside).ravel()
        else:
            outside = (steps + outside).ravel()
    return outside[:, None] + inside


def ways_of(pool: Pool) -> list[int]:
    """By tier, the oversubscription in ppm of the way between the groups of the tier below it."""
    tapers = accumulate(pool.tapers, mul)
    return [round(taper * MILLION) for taper in tapers]


def _most(keys: Ranks) -> int:
    """The most different values that a row has."""
    ordered = np.sort(keys, axis=1)
    return int((ordered[:, 1:] != ordered[:, :-1]).sum(axis=1).max()) + 1
