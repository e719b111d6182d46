"""How well the MFU model predicts published rows: `python -m tests.mfu_table [options]`.

Leaves out one source after the other, fits the constants to all others and predicts the one that
was left out (two minutes); prints errors by source and by class of GPU, and the worst rows by name.

    --fit           fit to all rows, and write processors/mfu/constants.json
    --shipped       predict with the constants of this release instead (a second, no fit)
    --rows FILE     rows of another file in the same columns, with the constants of this release
    --every         print every row
    --json          one JSON document
    --write         put the tables between the marks of docs/mfu.md, and what nine in ten rows stay
                    within into processors/mfu/doubt.json
"""

import argparse
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from nemesis.processors.mfu.constants import Constants, Doubt, constants
from tests.mfu_fit import PRIORS, errors, fit
from tests.mfu_rows import Row, read

ROOT = Path(__file__).parent.parent
CONSTANTS = ROOT / "processors" / "mfu" / "constants.json"
DOUBT = CONSTANTS.with_name("doubt.json")
PAGE = ROOT / "docs" / "mfu.md"
BEGIN, END = "<!-- mfu -->", "<!-- /mfu -->"
WORST = 12
WITHIN = 0.15


@dataclass(frozen=True)
class Judged:
    """One row and its error, the logarithm of predicted over measured."""

    row: Row
    error: float

    @property
    def relative(self) -> float:
        return math.exp(self.error) - 1

    @property
    def name(self) -> str:
        row = self.row
        degrees = "".join(
            f" {word}{row.degree(column)}"
            for word, column in (("TP", "tp"), ("CP", "cp"), ("PP", "pp"), ("EP", "ep"))
            if row.degree(column) > 1
        )
        return (
            f"{row.source} {row.text('system')}: {row.text('model')} on {row.text('gpus')} "
            f"{row.gpu.name}{degrees} seq {row.text('seq_len')} batch {row.text('gbs')} "
            f"{row.text('precision')}"
        )


def dense(row: Row) -> bool:
    return not row.shape.experts


def cut(row: Row) -> bool:
    """TP or PP above 1."""
    return row.degree("tp") > 1 or row.degree("pp") > 1


def sharded(row: Row) -> bool:
    return row.source in ("llm_foundry_mpt", "torchtitan_benchmarks")


GOALS: tuple[tuple[str, Callable[[Row], bool], float, float], ...] = (
    (
        "dense BF16, TP or PP > 1",
        lambda row: dense(row) and cut(row) and row.text("precision") == "BF16",
        9.0,
        6.0,
    ),
    (
        "the same without MegaScale's changed models",
        lambda row: (
            dense(row)
            and cut(row)
            and row.text("precision") == "BF16"
            and not row.software.parallel_block
        ),
        9.0,
        6.0,
    ),
    (
        "dense BF16 and FP16, TP or PP > 1",
        lambda row: dense(row) and cut(row) and row.sixteen_bit,
        9.0,
        6.0,
    ),
    (
        "FSDP (llm-foundry, torchtitan), BF16",
        lambda row: sharded(row) and row.sixteen_bit,
        6.0,
        0.0,
    ),
    ("FSDP (llm-foundry, torchtitan), FP8 too", sharded, 6.0, 0.0),
    ("dense FP8", lambda row: dense(row) and not row.sixteen_bit, 0.0, 0.0),
    ("experts", lambda row: not dense(row), 0.0, 0.0),
)
"""Name, which rows, and the goals for mean and median error in %; 0: none."""


def left_out(rows: Sequence[Row], told: Callable[[str], None]) -> list[Judged]:
    """Each source predicted with constants that never saw it."""
    found: list[Judged] = []
    for source in sorted({row.source for row in rows}):
        told(f"without {source}")
        fitted = fit([row for row in rows if row.source != source])
        own = [row for row in rows if row.source == source]
        found += judged(own, fitted)
    return found


def judged(rows: Sequence[Row], fitted: Constants) -> list[Judged]:
    return [Judged(row, error) for row, error in zip(rows, errors(rows, fitted), strict=True)]


def summary(found: Iterable[Judged]) -> dict[str, float]:
    """Errors in %: mean and median of the absolute, the mean, the share within 15 %, the worst."""
    signed = [each.relative for each in found]
    sizes = sorted(abs(each) for each in signed)
    middle = (sizes[(len(sizes) - 1) // 2] + sizes[len(sizes) // 2]) / 2
    return {
        "rows": len(sizes),
        "mape": 100 * sum(sizes) / len(sizes),
        "median": 100 * middle,
        "bias": 100 * sum(signed) / len(signed),
        "within_15": 100 * sum(each <= WITHIN for each in sizes) / len(sizes),
        "worst": 100 * sizes[-1],
    }


def grouped(found: Sequence[Judged], key: Callable[[Row], str]) -> dict[str, dict[str, float]]:
    names = sorted({key(each.row) for each in found})
    return {name: summary(each for each in found if key(each.row) == name) for name in names}


def kind(row: Row) -> str:
    return "experts" if not dense(row) else "16 bit" if row.sixteen_bit else "FP8"


def table(title: str, groups: dict[str, dict[str, float]]) -> list[str]:
    lines = [
        f"| {title} | rows | MAPE % | median % | bias % | within 15 % | worst % |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, each in groups.items():
        lines.append(
            f"| {name} | {each['rows']:.0f} | {each['mape']:.1f} | {each['median']:.1f} | "
            f"{each['bias']:+.1f} | {each['within_15']:.0f} | {each['worst']:.1f} |"
        )
    return [*lines, ""]


def goals(found: Sequence[Judged]) -> dict[str, dict[str, float]]:
    groups: dict[str, dict[str, float]] = {}
    for name, chosen, mape, median in GOALS:
        own = [each for each in found if chosen(each.row)]
        if not own:
            continue
        result = summary(own)
        met = result["mape"] <= mape and (not median or result["median"] <= median)
        goal = f"MAPE {mape:.0f}" + (f", median {median:.0f}" if median else "")
        verdict = f" (goal {goal}: {'met' if met else 'MISSED'})" if mape else ""
        groups[name + verdict] = result
    return groups


def points(found: Sequence[Judged], source: str) -> list[str]:
    """MFU printed and predicted, in points, by the source's own numerator."""
    lines = ["| row | printed MFU % | predicted % |", "|---|---|---|"]
    for each in found:
        if each.row.source == source and (printed := each.row.number("mfu_pct")):
            predicted = printed * (1 + each.relative)
            lines.append(f"| {each.name} | {printed:.1f} | {predicted:.1f} |")
    return [*lines, ""]


def constants_table(fitted: Constants) -> list[str]:
    lines = ["| constant | fitted | prior | of the prior |", "|---|---|---|---|"]
    for name, (value, _, reason) in PRIORS.items():
        own = getattr(fitted, name) / 1e6
        lines.append(f"| `{name}` | {own:.3f} | {value:.2f} | {reason} |")
    return [*lines, ""]


def report(found: Sequence[Judged]) -> list[str]:
    worst = sorted(found, key=lambda each: -abs(each.error))
    lines = table("rows", goals(found))
    lines += table("source", grouped(found, lambda row: f"{row.source}, {kind(row)}"))
    lines += table("GPU", grouped(found, lambda row: f"{row.gpu.name}, {kind(row)}"))
    if any(each.row.source.startswith("llama3") for each in found):
        lines += points(found, "llama3_2407.21783")
    lines += ["| worst rows without experts | error % |", "|---|---|"]
    plain = [each for each in worst if dense(each.row)]
    lines += [f"| {each.name} | {100 * each.relative:+.1f} |" for each in plain[:WORST]]
    return [*lines, ""]


def document(found: Sequence[Judged]) -> dict[str, object]:
    return {
        "goals": goals(found),
        "rows": [
            {"row": each.name, "measured": each.row.measured, "error_pct": 100 * each.relative}
            for each in found
        ],
    }


def doubtful(found: Sequence[Judged]) -> Doubt:
    """What nine in ten rows stay within."""

    def most(chosen: Callable[[Row], bool]) -> int:
        sizes = sorted(abs(each.relative) for each in found if chosen(each.row))
        return round(1e6 * sizes[-(-9 * len(sizes) // 10) - 1])

    return Doubt(
        dense=most(lambda row: dense(row) and row.sixteen_bit),
        dense_fp8=most(lambda row: dense(row) and not row.sixteen_bit),
        experts=most(lambda row: not dense(row)),
    )


def write(lines: Sequence[str]) -> None:
    """Put the tables between the marks of the page."""
    before = PAGE.read_text()
    put = "\n".join([BEGIN, "", *lines, END])
    pattern = re.escape(BEGIN) + ".*" + re.escape(END)
    PAGE.write_text(re.sub(pattern, lambda _: put, before, flags=re.DOTALL))


def asked(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mfu_table")
    for option in ("fit", "shipped", "every", "json", "write"):
        parser.add_argument(f"--{option}", action="store_true")
    parser.add_argument("--rows", type=Path)
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """Exit status 0: all goals met; 1: one was missed; 2: a file that cannot be read."""
    options = asked(words)
    try:
        rows = read(options.rows) if options.rows else read()
    except OSError as error:
        print(f"{options.rows}: {error.strerror}; expected a CSV file", file=sys.stderr)
        return 2
    if not rows:
        print(f"{options.rows}: no row that can be predicted", file=sys.stderr)
        return 2
    if options.fit:
        fitted = fit(rows)
        CONSTANTS.write_bytes(msgspec.json.format(msgspec.json.encode(fitted), indent=1) + b"\n")
        return 0
    if options.rows or options.shipped:
        found = judged(rows, constants())
    else:
        found = left_out(rows, lambda line: print(line, file=sys.stderr))
    if options.json:
        print(json.dumps(document(found)))
        return 0
    lines = report(found)
    if options.every:
        lines += [f"{100 * each.relative:+6.1f} %  {each.name}" for each in found]
    print("\n".join(lines))
    if options.write:
        write([*lines, *constants_table(constants())])
        DOUBT.write_bytes(msgspec.json.encode(doubtful(found)) + b"\n")
    return int(any("MISSED" in name for name in goals(found)))


if __name__ == "__main__":
    sys.exit(main())
