"""Counts what is watched on the nodes and what is not, from the producers' `coverage` facts.

Coverage is telemetry and lies in the log for a day, so these counts begin at the exporter's start:
what a node tells first is where counting begins. Remembered of each node is only what is missing.
"""

from collections import Counter
from typing import Final

import msgspec

from nemesis.schemas.watched import CoverageReported
from nemesis.views.exporter.series import Series

NODES_MAX: Final = 100_000
SILENT_NS: Final = 180_000_000_000  # three facts are missing
_PPM: Final = 1_000_000
_SECOND_NS: Final = 1_000_000_000


class _Node(msgspec.Struct):
    heard_ns: int
    life_ns: int
    """When its producer's process began."""
    gaps: frozenset[tuple[str, str, str]]
    """(component, source, state) of what is not read."""
    missed: int
    dropped: int
    waiting: int
    late_ns: int
    cpu_ppm: int
    ended: bool


class Watching:
    """Feeds what is known of producers."""

    def __init__(self, series: Series) -> None:
        self._series: Final = series
        self._nodes: Final[dict[str, _Node]] = {}

    def see(self, data: CoverageReported, heard_ns: int) -> None:
        """Take in what a node's producer says of itself; `heard_ns`: when it was stored."""
        now = _Node(
            heard_ns=heard_ns,
            life_ns=data.start_ns,
            gaps=frozenset(
                (each.component, each.source, each.state)
                for each in data.probes
                if each.state != "read"
            ),
            missed=data.missed_lines_count,
            dropped=data.dropped_count,
            waiting=data.waiting_count,
            late_ns=data.late_ns,
            cpu_ppm=data.cpu_ppm,
            ended=data.ends,
        )
        before = self._nodes.get(data.node)
        if before is not None:
            self._count(before, now)
        elif len(self._nodes) >= NODES_MAX:
            return
        self._nodes[data.node] = now

    def _count(self, before: _Node, now: _Node) -> None:
        same_life = before.life_ns == now.life_ns
        for name, was, told in (
            ("producer_missed_lines", before.missed, now.missed),
            ("producer_dropped_facts", before.dropped, now.dropped),
        ):
            # what was told by a `spool` fact is not in the count any more: then it begins anew
            self._series.add(name, by=told - was if same_life and told >= was else told)
        for _, source, state in sorted(now.gaps - before.gaps):
            self._series.add("coverage_gaps_opened", source, state)

    def show(self, now_ns: int) -> None:
        """Set what is true at this moment."""
        series, nodes = self._series, self._nodes.values()
        live = [each for each in nodes if not each.ended and now_ns - each.heard_ns <= SILENT_NS]
        ended = sum(each.ended for each in nodes)
        for state, count in (
            ("reporting", len(live)),
            ("ended", ended),
            ("silent", len(self._nodes) - len(live) - ended),
        ):
            series.set("producers", state, to=count)
        gaps = Counter((source, state) for each in live for _, source, state in each.gaps)
        for values in series.numbers["coverage_gaps"]:
            series.numbers["coverage_gaps"][values] = 0.0
        for (source, state), count in gaps.items():
            series.add("coverage_gaps", source, state, by=count)
        series.set("producer_waiting_facts", to=sum(each.waiting for each in live))
        late_ns = max((each.late_ns for each in live), default=0)
        series.set("producer_late_seconds", to=late_ns / _SECOND_NS)
        cpu_ppm = max((each.cpu_ppm for each in live), default=0)
        series.set("producer_cpu_ratio", to=cpu_ppm / _PPM)
