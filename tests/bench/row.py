"""A row of Table 1: what was measured, the goal, and whether it was met."""

import statistics
from collections.abc import Sequence

import msgspec


class AtLeast(msgspec.Struct, frozen=True):
    """A goal that is met by this much or more."""

    value: float

    def __str__(self) -> str:
        return f"≥ {self.value:g}"

    def met_by(self, measured: float) -> bool:
        """Whether the goal is met."""
        return measured >= self.value


class AtMost(msgspec.Struct, frozen=True):
    """A goal that is met by this much or less."""

    value: float

    def __str__(self) -> str:
        return f"≤ {self.value:g}"

    def met_by(self, measured: float) -> bool:
        """Whether the goal is met."""
        return measured <= self.value


class Row(msgspec.Struct):
    """One figure."""

    id: str
    """P1 to P5, see the README; S1 on: the simulator."""
    what: str
    value: float
    unit: str
    how: str
    """How it was measured, and whether anything in it is simulated."""
    goal: AtLeast | AtMost | None = None

    @property
    def verdict(self) -> str:
        """met, MISSED, or nothing where there is no goal."""
        if self.goal is None:
            return ""
        return "met" if self.goal.met_by(self.value) else "MISSED"


def median(values: Sequence[float]) -> float:
    """The middle value."""
    return statistics.median(values)


def percentile(values: Sequence[float], percent: int) -> float:
    """The value below which `percent` of all lie, nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]
