"""Whether what proves a fault really reached the log: the fault is attributable if it did.

Why: a processor that names nobody where nothing names anybody is right, and only the simulator
knows where that is. How: the ledger expects evidence of each fault; every fact that is delivered is
held against it, within a window from when it should show. A fault is attributable if at least one
decisive piece arrives in time. Slowness shows in rounds of a job's steps: of a job that stops soon
after, or is polled twice a step, seconds say nothing. Reads what producers told alone, before any
processor runs.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from nemesis.schemas.channels import ABSENT
from nemesis.schemas.observed import Observation, SampleTaken
from nemesis.schemas.registry import BY_STRUCT
from nemesis.sim.faults.causal import Expected
from nemesis.sim.faults.symptoms import Fault
from nemesis.sim.params import TruthParams
from nemesis.sim.truth.readings import Reading, column, readings

SECOND_NS: Final = 1_000_000_000
PER_MILLE: Final = 1_000


class Weighing(msgspec.Struct, frozen=True):
    """What of a fault's evidence was delivered."""

    delivered: tuple[int, ...]
    """Which of its evidence, by place."""
    attributable: bool | None
    """None of a decoy, and where no evidence is expected."""


class _Watch(msgspec.Struct):
    """One piece of evidence that is waited for."""

    fault: int
    place: int
    expected: Expected
    since_ns: int
    until_ns: int
    first: dict[str, int] = {}
    """A counter's first reading, by whose it is."""
    hits_count: int = 0
    step: int = ABSENT
    """The newest step in which it was seen."""


class Weigher:
    """Holds what is delivered against what is expected."""

    def __init__(self, faults: Sequence[Fault], params: TruthParams, *, start_ns: int) -> None:
        """`start_ns`: when the run began."""
        self._faults: Final = faults
        self._params: Final = params
        self._watches: Final = [
            _Watch(fault, place, each, at_ns, at_ns + params.window_s * SECOND_NS)
            for fault, planned in enumerate(faults)
            for place, each in enumerate(planned.evidence)
            for at_ns in [start_ns + planned.began_ns + each.after_ns]
        ]
        self._by_token: Final[dict[str, list[_Watch]]] = defaultdict(list)
        for watch in self._watches:
            if watch.expected.shows != "silent":
                self._by_token[watch.expected.told].append(watch)
        self._newest: Final[dict[str, dict[tuple[str, str], Any]]] = defaultdict(dict)
        """By sign: the newest reading of each (node, whose)."""
        self._heard: Final[dict[str, list[int]]] = defaultdict(list)
        """When each node was heard, while its silence is waited for."""
        self._quiet: Final = {
            watch.expected.by for watch in self._watches if watch.expected.shows == "silent"
        }

    @property
    def until_ns(self) -> int:
        """When the last window closes."""
        return max((watch.until_ns for watch in self._watches), default=0)

    def take(self, now_ns: int, fact: Observation) -> None:
        """A fact has reached the log."""
        if fact.node in self._quiet:
            self._heard[fact.node].append(now_ns)
        if now_ns - fact.at_ns > self._params.late_s * SECOND_NS:
            return
        for watch in self._by_token.get(BY_STRUCT[type(fact)].token, ()):
            self._hold(watch, now_ns, fact)

    def weighings(self) -> list[Weighing]:
        """Of each fault, in their order."""
        delivered: list[list[int]] = [[] for _ in self._faults]
        decisive = [False if each.evidence and each.components else None for each in self._faults]
        there = [self._is_there(watch) for watch in self._watches]
        slow: dict[int, bool] = {}
        for watch, seen in zip(self._watches, there, strict=True):
            if watch.expected.shows == "above_others":
                slow[watch.fault] = slow.get(watch.fault, False) or seen
        for watch, seen in zip(self._watches, there, strict=True):
            if seen and not (watch.expected.explains and not slow.get(watch.fault, True)):
                delivered[watch.fault].append(watch.place)
                if watch.expected.decisive and decisive[watch.fault] is not None:
                    decisive[watch.fault] = True
        return [
            Weighing(tuple(places), known)
            for places, known in zip(delivered, decisive, strict=True)
        ]

    def _hold(self, watch: _Watch, now_ns: int, fact: Observation) -> None:
        expected = watch.expected
        against_median = expected.shows in ("above_others", "below_others")
        compares = against_median or expected.shows == "differs"
        if fact.node != expected.by and not compares:
            return
        in_time = watch.since_ns <= now_ns <= watch.until_ns
        newest = self._newest[expected.sign]
        for reading in readings(fact, expected):
            if compares:
                if now_ns <= watch.until_ns:
                    newest[fact.node, reading.whose] = reading.value
            elif _is_about(expected, reading):
                first = watch.first.setdefault(reading.whose, reading.value)
                watch.hits_count += in_time and _shows(expected, reading.value, first)
        if against_median and in_time and fact.node == expected.by and self._stands_out(expected):
            watch.hits_count += _is_another_step(watch, fact)

    def _is_there(self, watch: _Watch) -> bool:
        match watch.expected.shows:
            case "silent":
                grace_ns = self._params.silent_s * SECOND_NS
                heard = self._heard[watch.expected.by]
                return not any(
                    watch.since_ns + grace_ns < at_ns <= watch.until_ns for at_ns in heard
                )
            case "differs":
                return self._differs(watch.expected)
            case "above_others" | "below_others":
                return watch.hits_count >= self._params.rounds_min
            case _:
                return watch.hits_count > 0

    def _stands_out(self, expected: Expected) -> bool:
        """Whether what is expected above or below the others' median is, by so many per mille."""
        own: list[int] = []
        others: list[int] = []
        for (node, whose), value in self._newest[expected.sign].items():
            mine = node == expected.by and expected.row in (-1, int(whose))
            (own if mine else others).append(value)
        if not own or not others:
            return False
        median = sorted(others)[len(others) // 2]
        if expected.shows == "below_others":
            return min(own) * PER_MILLE <= median * (PER_MILLE - expected.value)
        return max(own) * PER_MILLE >= median * (PER_MILLE + expected.value)

    def _differs(self, expected: Expected) -> bool:
        """Whether one of its readings is not what most of its like read."""
        by_kind: dict[str, list[tuple[bool, Any]]] = defaultdict(list)
        for (node, whose), value in self._newest[expected.sign].items():
            mine = node == expected.by and _is_about(expected, Reading(whose, value))
            by_kind[whose.partition("/")[2]].append((mine, value))
        for each in by_kind.values():
            others = Counter(repr(value) for mine, value in each if not mine)
            if others and any(
                mine and repr(value) != others.most_common(1)[0][0] for mine, value in each
            ):
                return True
        return False


def _is_another_step(watch: _Watch, fact: Observation) -> bool:
    """Whether the node's ranks have finished a step since it was seen last."""
    if not isinstance(fact, SampleTaken):
        return False
    step = max((each.value for each in column(fact, "steps.step")), default=ABSENT)
    if step <= watch.step:
        return False
    watch.step = step
    return True


def _is_about(expected: Expected, reading: Reading) -> bool:
    """Whether a reading is of the row, rank or port that is expected to show something."""
    if expected.told == "fabric":
        return reading.whose == expected.component
    if expected.told == "setting":
        return reading.whose == expected.component
    return expected.row < 0 or reading.whose.partition("/")[0] in ("", str(expected.row))


def _shows(expected: Expected, value: Any, first: Any) -> bool:
    match expected.shows:
        case "said":
            return bool(value == expected.value if expected.value else value is not None)
        case "unreadable":
            return bool(value == ABSENT)
        case "rises":
            known = ABSENT not in (value, first)
            return bool(known and value - first >= max(1, expected.value))
        case "at_least":
            return bool(value != ABSENT and value >= expected.value)
        case "at_most":
            return bool(value != ABSENT and value <= expected.value)
        case _:
            return False
