"""How often what breaks: published distributions, and faults drawn from them.

Pure but for the reading of its table, `sim/rates.toml`. A fault comes after an exponential time, as
often per node-day as was published, and is of a row as likely as that was counted.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from nemesis.schemas.errors import NemesisError
from nemesis.streams.documents import BadDocumentError, explained, read_toml

TABLE: Final = Path(__file__).parent.parent / "rates.toml"
DAY_S: Final = 86_400.0

Positive = Annotated[int, msgspec.Meta(ge=1)]


class BadRatesError(NemesisError):
    """Rates that nothing can be drawn from."""

    exit_code = 2


class Row(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """One published count."""

    what: str
    """As its source calls it; of a trace, `class/description`."""
    count: Positive
    kinds: tuple[str, ...] = ()
    """Kinds of faults that stand for it, drawn evenly; none: it is not simulated."""


class Distribution(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """What one source counted."""

    source: str
    node_days: Positive
    """Over which it was counted."""
    rows: Annotated[tuple[Row, ...], msgspec.Meta(min_length=1)] = msgspec.field(name="row")

    @property
    def simulated(self) -> tuple[Row, ...]:
        """Rows that kinds of faults stand for."""
        return tuple(row for row in self.rows if row.kinds)

    @property
    def per_node_day(self) -> float:
        """How often a node breaks, by what is simulated."""
        return sum(row.count for row in self.simulated) / self.node_days


class Arrival(NamedTuple):
    """Something breaks."""

    at_s: float
    row: Row
    kind: str


@cache
def distributions(path: Path = TABLE) -> dict[str, Distribution]:
    """By name.

    Raises:
        BadRatesError: no such file, not TOML, or a field that is missing, unknown or wrong.
    """
    document: dict[str, Any] = {}
    try:
        document = read_toml(path)
        return msgspec.convert(document, dict[str, Distribution])
    except BadDocumentError as error:
        raise BadRatesError(error.message) from error
    except msgspec.ValidationError as error:
        raise BadRatesError(f"{path}: {explained(error, document)}") from error


def distribution_named(name: str) -> Distribution:
    """The distribution of that name.

    Raises:
        BadRatesError: there is none.
    """
    known = distributions()
    if name not in known:
        raise BadRatesError(f"no rates {name!r}, expected one of: {', '.join(known)}")
    return known[name]


def draw_kind(distribution: Distribution, random: Random) -> tuple[Row, str]:
    """A row, as likely as it was counted, and a kind that stands for it."""
    rows = distribution.simulated
    (row,) = random.choices(rows, [each.count for each in rows])
    return row, random.choice(row.kinds)


def arrivals(
    distribution: Distribution, *, nodes_count: int, lasts_s: float, random: Random
) -> Iterator[Arrival]:
    """What breaks among so many nodes in so many seconds: a Poisson process."""
    per_s = distribution.per_node_day * nodes_count / DAY_S
    at_s = random.expovariate(per_s)
    while at_s < lasts_s:
        row, kind = draw_kind(distribution, random)
        yield Arrival(at_s, row, kind)
        at_s += random.expovariate(per_s)
