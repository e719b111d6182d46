"""Counters of one component at one moment become a `counters` fact."""

from collections.abc import Iterable

from nemesis.producers.origin import Origin
from nemesis.schemas.observed import CountersRead


def counters_of(
    origin: Origin, at_ns: int, *, component: str, counters: Iterable[tuple[str, int]]
) -> CountersRead:
    """The fact of one reading; `component` by its canonical name, names in lower case."""
    return CountersRead(
        **origin.stamp("counters", at_ns), component=component, counters=tuple(counters)
    )
