"""What it costs a step, in nanoseconds, to tear a group over more domains or switches.

A placement that minimises invented spread can win a leaf and lose a step; one that weighs groups by
these numbers minimises time. A ring over P equal groups of a tier crosses that tier with a share of
1 - 1/P of its edges if its members lie anywhere, so that share of the taper is felt.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from nemesis.processors.mfu.fabric import MILLION, Span
from nemesis.processors.mfu.planned import Dim
from nemesis.processors.mfu.step import Job, predict


def felt_ppm(taper_ppm: int, groups: int) -> int:
    """What a ring over so many groups of a tier feels of its oversubscription."""
    return MILLION + max(0, taper_ppm - MILLION) * (groups - 1) // max(1, groups)


def torn(job: Job, dim: Dim, domains: int, taper_ppm: int = MILLION) -> Job:
    """The job with the groups of one dim over so many NVLink domains, and a tapered way between."""
    span: Span = getattr(job.spans, dim)
    over = max(1, min(domains, span.members))
    changed = {dim: Span(span.members, over, taper_ppm)}
    return replace(job, spans=replace(job.spans, **changed))


def tapered(job: Job, taper_ppm: int) -> Job:
    """The job with every way between domains oversubscribed that much."""
    spans = {
        name: replace(getattr(job.spans, name), taper_ppm=taper_ppm)
        for name in job.spans.__struct_fields__
    }
    return replace(job, spans=replace(job.spans, **spans))


def tear_ns(job: Job, dim: Dim, domains: int, taper_ppm: int = MILLION) -> int:
    """Nanoseconds a step that the job loses where the groups of a dim are torn so."""
    return predict(torn(job, dim, domains, taper_ppm)).step_ns - predict(job).step_ns


def weights_ns(job: Job, tapers_ppm: Sequence[int]) -> tuple[int, ...]:
    """By tier from below: nanoseconds a step that lying in two of its groups costs, at least 1.

    `tapers_ppm`: oversubscription of the way between the groups of each tier.
    """
    least = predict(job).step_ns
    return tuple(
        max(1, predict(tapered(job, felt_ppm(taper, 2))).step_ns - least) for taper in tapers_ppm
    )
