"""Where the groups of a job lie when its ranks fill NVLink domains one after the other."""

from typing import Literal

import msgspec

from nemesis.processors.mfu.fabric import MILLION, Span
from nemesis.processors.mfu.layout import Layout

Order = Literal["tp-cp-dp-pp", "tp-cp-pp-dp"]
"""From neighbours to the farthest: Megatron-LM's default, and Llama 3's."""


class Spans(msgspec.Struct, frozen=True, kw_only=True):
    """The groups of a job, each at its worst place."""

    tp: Span
    cp: Span
    ep: Span
    pp: Span
    """The stages; a hop is to the next one."""
    dp: Span
    """Replicas of a dense parameter, context ranks among them."""
    expert_dp: Span
    """Replicas of an expert."""


def packed(
    layout: Layout, domain: int, order: Order = "tp-cp-dp-pp", taper_ppm: int = MILLION
) -> Spans:
    """Ranks laid densely over domains of that width, in that order.

    `taper_ppm` is for the way between domains; a placement that knows more has its own spans.
    """
    inner = layout.tp * layout.cp
    dp_stride = inner * (layout.pp if order == "tp-cp-pp-dp" else 1)
    pp_stride = inner * (1 if order == "tp-cp-pp-dp" else layout.dp)

    def span(members: int, stride: int) -> Span:
        here = 1 if stride >= domain else max(1, min(members, domain // stride))
        if members * stride <= domain:
            here = members
        return Span(members, -(-members // here), taper_ppm)

    replicas = layout.dp * layout.cp
    experts = max(1, replicas * layout.tp // (layout.ep * layout.etp))
    dp_own = span(layout.dp, dp_stride)
    inside = min(replicas, max(1, domain // layout.tp)) if dp_stride == inner else layout.cp
    whole = -(-replicas // inside) if dp_stride == inner else dp_own.domains
    return Spans(
        tp=span(layout.tp, 1),
        cp=span(layout.cp, layout.tp),
        ep=span(layout.ep, layout.etp),
        pp=span(layout.pp, pp_stride),
        dp=Span(replicas, whole, taper_ppm),
        expert_dp=span(experts, layout.ep * layout.etp),
    )
