"""Free nodes below switches, made or drawn for a test."""

from hypothesis import strategies as st

from nemesis.processors.placement.ground import Gang, Ground, Placement


def ground(free: tuple[int, ...], pods: tuple[int, ...] = ()) -> Ground:
    """Shelves with so many free nodes; `pods`: shelves of each."""
    own = pods or (len(free),)
    pod = tuple(at for at, size in enumerate(own) for _ in range(size))
    return Ground(free, (pod, (0,) * len(free)))


@st.composite
def grounds(draw: st.DrawFn, nodes_max: int = 12) -> Ground:
    """Up to so many free nodes below one or two pods."""
    free: list[int] = []
    while sum(free) < nodes_max and len(free) < 6 and (not free or draw(st.booleans())):
        free.append(draw(st.integers(0, min(5, nodes_max - sum(free)))))
    cut = draw(st.integers(0, len(free)))
    return ground(tuple(free), tuple(size for size in (cut, len(free) - cut) if size))


gangs = st.builds(
    lambda segment, count: Gang(segment * count, segment), st.integers(1, 3), st.integers(1, 6)
)


def nodes(placement: Placement) -> dict[int, int]:
    """By shelf."""
    found: dict[int, int] = {}
    for part in placement:
        found[part.shelf] = found.get(part.shelf, 0) + part.nodes
    return found
