"""A job that arrives: who wants how much, when and for how long."""

from collections.abc import Sequence

import msgspec

from nemesis.schemas.errors import NemesisError


class BadTraceError(NemesisError):
    """No arrival trace, or none that can be run."""

    exit_code = 2


class Arrival(msgspec.Struct, frozen=True):
    """One job of a trace."""

    job: str
    team: str
    gpu_count: int
    submitted_s: int
    """Seconds of whatever clock the trace has."""
    run_s: int
    """How long it ran, 1 at least."""

    def nodes(self, size: int) -> int:
        """Whole nodes of so many GPUs that hold it."""
        return -(-self.gpu_count // size)


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs in the order of their submission, and what of a file is not among them."""

    source: str
    """Where they are from, in words."""
    arrivals: tuple[Arrival, ...]
    no_gpu_count: int = 0
    """Jobs that asked for no GPU."""
    never_ran_count: int = 0
    later_count: int = 0
    """Jobs behind the last that was to be looked at."""
    small_count: int = 0
    """Jobs with fewer GPUs than were to be looked at, before it."""
    small_share: float = 0.0
    """Theirs of the GPU time of both."""


def first(trace: Trace, jobs: int, *, least: int, most: int) -> Trace:
    """The first so many jobs of `least` GPUs or more; what is left out is counted.

    Raises:
        BadTraceError: none is as large, or none of them has at most `most`.
    """
    large = [each for each in trace.arrivals if each.gpu_count >= least]
    kept = large[:jobs]
    if not any(each.gpu_count <= most for each in kept):
        sizes = [each.gpu_count for each in kept or trace.arrivals]
        raise BadTraceError(
            f"no job {trace.source} has {least} to {most} GPUs, they have "
            f"{min(sizes)} to {max(sizes)}",
            hint="a larger --cluster, or a lower --least",
        )
    until_s = kept[-1].submitted_s
    small = [
        each for each in trace.arrivals if each.gpu_count < least and each.submitted_s <= until_s
    ]
    small_s, kept_s = _gpu_s(small), _gpu_s(kept)
    return msgspec.structs.replace(
        trace,
        arrivals=tuple(kept),
        later_count=len(large) - len(kept),
        small_count=len(small),
        small_share=small_s / (small_s + kept_s),
    )


def _gpu_s(arrivals: Sequence[Arrival]) -> int:
    return sum(each.gpu_count * each.run_s for each in arrivals)
