"""An integer program as data: what a solver is asked, in whole numbers."""

from collections.abc import Sequence
from typing import Final

import msgspec

UNBOUNDED: Final = 1 << 40
"""More nodes than there are."""


class Row(msgspec.Struct, frozen=True):
    """low <= sum of value x variable <= high."""

    low: int
    high: int
    columns: tuple[int, ...]
    values: tuple[int, ...]


class Mip(msgspec.Struct, frozen=True):
    """Minimise the sum of cost x variable; every variable is a whole number from 0 up."""

    costs: tuple[int, ...]
    uppers: tuple[int, ...]
    rows: tuple[Row, ...]


class Building:
    """A program that grows; `variable` and `row` say what each means where they are called."""

    def __init__(self) -> None:
        self._costs: list[int] = []
        self._uppers: list[int] = []
        self._rows: list[Row] = []

    def variable(self, upper: int, cost: int = 0) -> int:
        """A new variable's number."""
        self._costs.append(cost)
        self._uppers.append(upper)
        return len(self._costs) - 1

    def row(
        self,
        columns: Sequence[int],
        values: Sequence[int],
        *,
        low: int = -UNBOUNDED,
        high: int = UNBOUNDED,
    ) -> None:
        """A new condition."""
        self._rows.append(Row(low, high, tuple(columns), tuple(values)))

    def built(self) -> Mip:
        """The program."""
        return Mip(tuple(self._costs), tuple(self._uppers), tuple(self._rows))
