"""Make processors/mfu/curves.json, what the MFU model reads, from the measured NCCL curves.

Times between two measured sizes are interpolated on logarithmic axes here, eight to an octave, so
that the model itself only has integers and straight lines.
Run `python data/nccl_busbw/make_tables.py` after a change of the curves; `--check` says by its exit
status whether the table is up to date.
"""

import csv
import json
import math
import sys
from itertools import pairwise
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
TABLE: Final = HERE.parent.parent / "processors" / "mfu" / "curves.json"
POINTS_MIN: Final = 20
"""Curves with fewer sizes say nothing of the way from latency to bandwidth."""
STEPS_AN_OCTAVE: Final = 8
RINGS: Final = {
    "hopper": ("h200_1n_16G_all_reduceNVLS", "h200_1n_16G_all_gatherRing"),
    "blackwell": ("b200_1n_8g_auto", "b200_1n_8g_ring"),
}
"""All-reduce in the switch and a ring in one domain, of each architecture that has both."""
P2P: Final = "i290"


def rows() -> list[dict[str, str]]:
    with (HERE / "nccl_busbw_curves.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def resampled(points: list[tuple[int, float]]) -> list[list[int]]:
    """Bytes and ns, log-log between the measured ones.

    No size takes longer than a larger one: a first call that sets up what later ones use is longer.
    """
    least = [min(ns for _, ns in points[at:]) for at in range(len(points))]
    rising = [(size, ns) for (size, _), ns in zip(points, least, strict=True)]
    found: list[list[int]] = []
    for (size, ns), (next_size, next_ns) in pairwise(rising):
        steps = max(1, round(STEPS_AN_OCTAVE * math.log2(next_size / size)))
        for step in range(steps):
            at = step / steps
            found.append([round(size * (next_size / size) ** at), round(ns * (next_ns / ns) ** at)])
    found.append([rising[-1][0], round(rising[-1][1])])
    return found


def table() -> dict[str, object]:
    curves: dict[str, list[dict[str, str]]] = {}
    for row in rows():
        if row["collective"] == "all_reduce" and float(row["time_us"] or 0) > 0:
            curves.setdefault(row["curve_id"], []).append(row)
    kept: dict[str, object] = {}
    for name, measured in curves.items():
        if len(measured) < POINTS_MIN or measured[0]["gpu"] == "unknown":
            continue
        times = {int(r["size_bytes"]): 1000 * float(r["time_us"]) for r in measured}
        points = sorted(times.items())
        first = measured[0]
        kept[name] = {
            "source": first["source"],
            "gpu": first["gpu"],
            "members": int(first["n_gpus"]),
            "domains": int(first["n_nodes"]),
            "points": resampled(points),
        }
    busbw = {row["curve_id"]: float(row["busbw_GBps"]) for row in rows()}
    return {
        "curves": kept,
        "ring_ppm": {
            architecture: round(1e6 * busbw[ring] / busbw[switched])
            for architecture, (switched, ring) in RINGS.items()
        },
        "p2p_rail_ppm": round(1e6 * busbw[P2P] / 50),
    }


def main() -> int:
    text = json.dumps(table(), separators=(",", ":")) + "\n"
    if "--check" in sys.argv:
        return int(not TABLE.exists() or TABLE.read_text() != text)
    TABLE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
