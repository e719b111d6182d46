"""Measures how often verdicts are right: `python -m tests.calibrate [--seeds N] [--write]`.

Runs the suites that rules may be fitted to, with seeds that no table of scores uses, and counts
verdicts by kind and claim. The share of right ones is drawn towards what that claim was worth in
all other kinds, and that towards the claim itself (Beta priors worth PRIOR_COUNT verdicts each), so
few verdicts move little; within a kind it never falls as the claim rises (isotonic regression by
pooling adjacent violators: Zadrozny and Elkan, KDD 2002). Prints the expected calibration error of
claims and of calibrated confidence on held-out suites, which the fit never sees; `--write`
puts the table into processors/attribution/calibration_table.py. `--runs FILE` counts runs that
`python -m tests.suite_misses --out FILE` kept in place of running anything. All is simulated.
"""

import argparse
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from nemesis.processors.attribution.calibration import (
    ANY_KIND,
    PPM,
    looked_up,
    read_off,
    verdict_kind,
)
from nemesis.processors.attribution.calibration_table import Measured
from nemesis.sim.params import DEFAULT
from nemesis.sim.suite import Options, folder_of, run_suite
from nemesis.sim.truth.calibration import calibration
from nemesis.sim.truth.score import FaultScore
from nemesis.sim.truth.suites import Suite, suites
from nemesis.streams.server import state_folder

TABLE: Final = Path(__file__).parent.parent / "processors/attribution/calibration_table.py"
FIT_SEED: Final = 3_000_001
"""The first of the fit; no suite's own seeds lie there."""
CHECK_SEED: Final = 4_000_001
"""The first of the check."""
PRIOR_COUNT: Final = 2
CONFIDENCE_PPM_MAX: Final = 990_000
"""A hundred right verdicts in simulation do not make the next one certain on a real cluster."""


Table = dict[str, tuple[Measured, ...]]


class Sample(NamedTuple):
    """One verdict about a fault."""

    kind: str
    claimed_ppm: int
    right: bool
    """The component named first is a right one; where nobody is named, the class is."""
    named: bool


class KeptFault(msgspec.Struct):
    """A fault of a run that tests.suite_misses kept."""

    score: FaultScore


class Kept(msgspec.Struct):
    """A run that tests.suite_misses kept."""

    suite: str
    faults: list[KeptFault]


class Pool(NamedTuple):
    """Verdicts that are taken together."""

    weight: float
    mean_ppm: float
    rows_count: int


def samples(faults: Iterable[FaultScore]) -> Iterator[Sample]:
    """What verdicts claimed, and whether they were right; of a decoy none is."""
    for each in faults:
        if each.claimed_ppm:
            yield Sample(
                kind=verdict_kind(each.fault_class, each.named),
                claimed_ppm=each.claimed_ppm,
                right=each.right_at == 0 if each.named else each.class_right,
                named=bool(each.named),
            )


def rising(shares: Sequence[tuple[float, float]]) -> list[float]:
    """Of (weight, mean): the nearest means that never fall, by pooling adjacent violators."""
    pools: list[Pool] = []
    for weight, mean in shares:
        pools.append(Pool(weight, mean, 1))
        while len(pools) > 1 and pools[-2].mean_ppm > pools[-1].mean_ppm:
            high, low = pools.pop(), pools.pop()
            total = low.weight + high.weight
            mean_ppm = (low.weight * low.mean_ppm + high.weight * high.mean_ppm) / total
            pools.append(Pool(total, mean_ppm, low.rows_count + high.rows_count))
    return [pool.mean_ppm for pool in pools for _ in range(pool.rows_count)]


def shares(seen: Iterable[Sample], prior: Sequence[Measured]) -> list[Measured]:
    """By claim: the share of right ones, drawn towards the prior and rising with the claim."""
    counts: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for each in seen:
        counts[each.claimed_ppm][0] += each.right
        counts[each.claimed_ppm][1] += 1
    found = [(claim, *counts[claim]) for claim in sorted(counts)]
    drawn = [
        (count + PRIOR_COUNT, (right * PPM + PRIOR_COUNT * read_off(prior, claim)))
        for claim, right, count in found
    ]
    means = rising([(weight, total / weight) for weight, total in drawn])
    return [
        Measured(claim, right, count, min(CONFIDENCE_PPM_MAX, round(mean)))
        for (claim, right, count), mean in zip(found, means, strict=True)
    ]


def fitted(seen: Sequence[Sample]) -> Table:
    """The table: by kind, what each claim was worth."""
    table: Table = {ANY_KIND: tuple(shares(seen, ()))}
    for kind in sorted({each.kind for each in seen}):
        others = shares((each for each in seen if each.kind != kind), ())
        table[kind] = tuple(shares((each for each in seen if each.kind == kind), others))
    return table


def runs_of(suite: Suite, first_seed: int, seeds_count: int, jobs_count: int) -> list[FaultScore]:
    """What became of every fault and decoy of a suite's runs; what is done already is read."""
    seeded = replace(suite, first_seed=first_seed)
    folder = folder_of(seeded, DEFAULT, state_folder("suites"))
    options = Options(suite=seeded, folder=folder, seeds_count=seeds_count)
    runs = run_suite(options, jobs_count=jobs_count)
    return [each for run in runs for each in run.score.faults]


def line(name: str, seen: Sequence[Sample], table: Table) -> str:
    """One line of the report: the error of claims, and that of calibrated confidence."""
    named = [each for each in seen if each.named]
    before = calibration((each.claimed_ppm, each.right) for each in named)
    after = calibration(
        (looked_up(table, each.kind, each.claimed_ppm), each.right) for each in named
    )
    return (
        f"{name:<24} {len(named):>5} named, {sum(each.right for each in named):>5} right, "
        f"ECE {before.ece_ppm / 1e4:>5.1f} % -> {after.ece_ppm / 1e4:>4.1f} %"
    )


def write(table: Table) -> None:
    """Put the table into its module."""
    lines = ["MEASURED: Final[Mapping[str, tuple[Measured, ...]]] = {"]
    for kind, rows in table.items():
        told = [f"Measured({', '.join(f'{each:_}' for each in row)})," for row in rows]
        if len(told) == 1:
            lines.append(f'    "{kind}": ({told[0]}),')
            continue
        lines += [f'    "{kind}": (', *(f"        {each}" for each in told), "    ),"]
    before, _, _ = TABLE.read_text().partition("MEASURED: Final")
    TABLE.write_text(before + "\n".join([*lines, "}"]) + "\n")


def main() -> None:
    """Fit, check, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="of each suite of the fit")
    parser.add_argument("--check-seeds", type=int, default=40, help="of each held-out suite")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--runs", type=Path, action="append", help="kept by tests.suite_misses")
    parser.add_argument("--write", action="store_true", help="into calibration_table.py")
    asked = parser.parse_args()
    of_suite: dict[str, list[Sample]] = defaultdict(list)
    for suite in () if asked.runs else suites():
        first, count = (
            (CHECK_SEED, asked.check_seeds) if suite.held_out else (FIT_SEED, asked.seeds)
        )
        of_suite[suite.name] += samples(runs_of(suite, first, count, asked.jobs))
    for path in asked.runs or ():
        for text in path.read_bytes().splitlines():
            run = msgspec.json.decode(text, type=Kept)
            of_suite[run.suite] += samples(each.score for each in run.faults)
    held_out = {suite.name for suite in suites() if suite.held_out}
    seen = [each for name, own in of_suite.items() if name not in held_out for each in own]
    table = fitted(seen)
    print(line("fit", seen, table))
    checked = {name: own for name, own in sorted(of_suite.items()) if name in held_out}
    for name, own in checked.items():
        print(line(name, own, table))
    print(line("all held out", [each for own in checked.values() for each in own], table))
    if asked.write:
        write(table)


if __name__ == "__main__":
    main()
