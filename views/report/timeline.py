"""The time line of a report as one drawing: a lane for each kind of fact, idle time collapsed.

Pure: moments in, SVG out; no style of its own, its classes are the page's.
"""

from collections.abc import Sequence
from html import escape
from itertools import pairwise
from statistics import median
from typing import Final

from nemesis.views.report.gather import LANES, Lane, Moment
from nemesis.views.report.spans import SECOND_NS, after, span

WIDTH: Final = 960
LEFT: Final = 96
RIGHT: Final = 24
LANE_HEIGHT: Final = 36
TOP: Final = 12
AXIS: Final = 46
BREAK_WIDTH: Final = 106.0  # a pause that was collapsed, with room on both sides
BREAKS_SHARE: Final = 0.6  # of the width, at most, however many there are
LABEL_WIDTH: Final = 60.0
APART: Final = 17.0  # two marks beside each other can still be read
IDLE_MIN_NS: Final = SECOND_NS
IDLE_TIMES: Final = 12  # a pause so many times as long as the usual one is idle


def timeline(moments: Sequence[Moment]) -> str:
    """An SVG of the moments, which are in order."""
    lanes: list[Lane] = [lane for lane in LANES if any(each.lane == lane for each in moments)]
    places, breaks = _places([each.at_ns for each in moments])
    bottom = TOP + LANE_HEIGHT * len(lanes)
    parts = [
        f'<svg class="timeline" viewBox="0 0 {WIDTH} {bottom + AXIS}" role="img"'
        f' aria-label="Time line of {len(moments)} facts; the table below says the same">'
    ]
    for number, lane in enumerate(lanes):
        y = TOP + LANE_HEIGHT * number + LANE_HEIGHT / 2
        parts.append(f'<text class="lane" x="0" y="{y + 4:.0f}">{lane}</text>')
        parts.append(f'<line class="rail" x1="{LEFT}" y1="{y}" x2="{WIDTH}" y2="{y}"/>')
    for x, width, pause_ns in breaks:
        parts.append(
            f'<rect class="idle" x="{x + width / 6:.1f}" y="{TOP}" width="{width * 2 / 3:.1f}"'
            f' height="{bottom - TOP}"/>'
        )
        if width >= LABEL_WIDTH:
            parts.append(
                f'<text class="pause" x="{x + width / 2:.1f}" y="{bottom + 14}">'
                f"{escape(span(pause_ns))}</text>"
            )
    is_roomy = all(b - a >= APART - 1 for a, b in pairwise(places))
    parts += _attempts(moments, places, lanes)
    for number, (moment, x) in enumerate(zip(moments, places, strict=True), 1):
        y = _height(moment.lane, lanes)
        mark = f'<circle cx="{x:.1f}" cy="{y}" r="{8 if is_roomy else 4}"/>'
        if is_roomy:
            mark += f'<text class="number" x="{x:.1f}" y="{y + 3.5}">{number}</text>'
        says = f"{after(moment.at_ns - moments[0].at_ns)} {moment.fact}: {moment.text}"
        parts.append(f'<g class="{moment.lane}"><title>{escape(says)}</title>{mark}</g>')
    parts += _axis(moments, places, breaks, bottom)
    return "".join([*parts, "</svg>"])


def _places(times_ns: Sequence[int]) -> tuple[list[float], list[tuple[float, float, int]]]:
    """Where each moment lies, and (place, width, length) of each pause that was collapsed."""
    gaps = [later - sooner for sooner, later in pairwise(times_ns)]
    busy = [gap for gap in gaps if gap > 0]
    idle_ns = max(IDLE_MIN_NS, int(IDLE_TIMES * median(busy))) if busy else IDLE_MIN_NS
    pauses_count = sum(gap > idle_ns for gap in gaps)
    steps_count = len(gaps) - pauses_count
    room = WIDTH - LEFT - RIGHT - 16.0
    width = min(BREAK_WIDTH, BREAKS_SHARE * room / pauses_count) if pauses_count else 0.0
    room -= pauses_count * width
    least = min(APART, room / steps_count) if steps_count else 0.0
    total_ns = sum(gap for gap in gaps if gap <= idle_ns)
    per_ns = (room - least * steps_count) / total_ns if total_ns else 0.0
    x = LEFT + 16.0
    places, breaks = [x], []
    for gap in gaps:
        if gap > idle_ns:
            breaks.append((x, width, gap))
            x += width
        else:
            x += least + gap * per_ns
        places.append(x)
    return places, breaks


def _attempts(
    moments: Sequence[Moment], places: Sequence[float], lanes: Sequence[Lane]
) -> list[str]:
    """A bar from the beginning of each attempt to its end."""
    begun: dict[str, float] = {}
    bars = []
    for moment, x in zip(moments, places, strict=True):
        if moment.lane != "done" or not moment.decision:
            continue
        if moment.begins:
            begun[moment.decision] = x
        elif (start := begun.pop(moment.decision, None)) is not None:
            y = _height("done", lanes)
            bars.append(f'<line class="attempt" x1="{start:.1f}" y1="{y}" x2="{x:.1f}" y2="{y}"/>')
    return bars


def _axis(
    moments: Sequence[Moment],
    places: Sequence[float],
    breaks: Sequence[tuple[float, float, int]],
    bottom: int,
) -> list[str]:
    """Times at the ends of each stretch, as far as they do not write over each other."""
    edges = {0, len(moments) - 1}
    for x, _, _ in breaks:
        before = max(at for at, place in enumerate(places) if place <= x)
        edges |= {before, before + 1}
    parts, last_x = [], float("-inf")
    for at in sorted(edges):
        x = places[at]
        parts.append(
            f'<line class="tick" x1="{x:.1f}" y1="{bottom}" x2="{x:.1f}" y2="{bottom + 20}"/>'
        )
        if x - last_x >= 64:
            text = after(moments[at].at_ns - moments[0].at_ns)
            anchor = "end" if x > WIDTH - 60 else "middle"
            parts.append(
                f'<text class="time" text-anchor="{anchor}" x="{x:.1f}" y="{bottom + 34}">'
                f"{escape(text)}</text>"
            )
            last_x = x
    return parts


def _height(lane: Lane, lanes: Sequence[Lane]) -> float:
    return TOP + LANE_HEIGHT * lanes.index(lane) + LANE_HEIGHT / 2
