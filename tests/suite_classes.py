"""Top-1 by class of fault: `python -m tests.suite_classes [--each N] [--write]`.

A suite draws kinds of faults evenly, so of a class with a single kind forty runs hold one or none.
Here the held-out suites draw from seeds that none of them has (`--first`), and a run is made only
if what was drawn for it, before anything runs, holds a class of which fewer than `--each`
attributable faults were seen; all faults of a run count. Prints what went wrong, then the table;
`--write` puts that into docs/suites.md. `--out FILE` keeps runs as tests.suite_misses does.
"""

import argparse
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final

import msgspec

from nemesis import __version__
from nemesis.sim.params import load_params
from nemesis.sim.truth.drawn import REAL_KINDS, draw, fault_of
from nemesis.sim.truth.suites import Suite, suites
from tests.suite_misses import Run, run, show
from tests.suite_table import write

FIRST: Final = 6_000_000
"""Far from the seeds of every suite, and of the other measurements."""
ROUND: Final = 5
"""Seeds of each suite between two looks at what is still wanted."""
SEEDS_MAX: Final = 5_000
MARK: Final = "classes"
DOCUMENT: Final = Path(__file__).parent.parent / "docs" / "suites.md"
HEAD: Final = "| class | faults | attributable | of these named first | wrong blame |"


def class_of(kind: str) -> str:
    """The class that faults of a kind are of."""
    answer = fault_of(kind).answer
    return "" if answer == "nothing" else answer.classes[0]


CLASSES: Final = tuple(sorted({class_of(kind) for kind in REAL_KINDS}))


def classes_in(suite: Suite, seed: int) -> set[str]:
    """Of which classes the faults of a run are; nothing of it runs."""
    drawn = draw(suite, seed, suite.assumed(load_params()))
    return {class_of(each.kind) for each in drawn.scenario.faults} - {""}


def seen_of(runs: Sequence[Run]) -> Counter[str]:
    """How many attributable faults of each class there were."""
    faults = (fault.score for each in runs for fault in each.faults)
    return Counter(score.true_class for score in faults if score.attributable)


def rounds(names: Sequence[Suite], first: int) -> Iterator[list[tuple[Suite, int]]]:
    """The seeds of all suites, some at a time."""
    for start in range(first, first + SEEDS_MAX, ROUND):
        yield [(suite, seed) for seed in range(start, start + ROUND) for suite in names]


def runs_of(first: int, each_count: int, jobs_count: int, out: Path | None) -> list[Run]:
    """Runs until every class was seen so often, or no seed is left."""
    done: dict[tuple[str, int], Run] = {}
    if out and out.exists():
        lines = (msgspec.json.decode(line, type=Run) for line in out.read_bytes().splitlines())
        done.update(((each.suite, each.seed), each) for each in lines)
    made: list[Run] = []
    with ProcessPoolExecutor(jobs_count) as pool:
        for some in rounds([each for each in suites() if each.held_out], first):
            seen = seen_of(made)
            wanted = {name for name in CLASSES if seen[name] < each_count}
            if not wanted:
                break
            chosen = [(s.name, seed) for s, seed in some if classes_in(s, seed) & wanted]
            todo = [each for each in chosen if each not in done]
            for one in pool.map(run, [name for name, _ in todo], [seed for _, seed in todo]):
                done[one.suite, one.seed] = one
                if out:
                    with out.open("ab") as file:
                        file.write(msgspec.json.encode(one) + b"\n")
            made += [done[each] for each in chosen]
            print(f"{len(made)} runs, {len(wanted)} classes wanted", file=sys.stderr, flush=True)
    return made


def table(runs: Sequence[Run], about: str) -> str:
    """A line a class, and one of all."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for fault in (fault for each in runs for fault in each.faults):
        for name in (fault.score.true_class, "all"):
            count = counts[name]
            count["faults"] += 1
            count["attributable"] += fault.score.attributable is True
            count["right"] += fault.score.attributable is True and not fault.missed
            count["blamed"] += bool(fault.score.wrong_blame)
    lines = [HEAD, "|---" * (HEAD.count("|") - 1) + "|"]
    for name in (*sorted(counts.keys() - {"all"}), "all"):
        count = counts[name]
        of = count["attributable"]
        share = f", {100 * count['right'] / of:.1f} %" if of else ""
        shown = f"`{name}`" if name != "all" else name
        named = f"{count['right']}{share}"
        lines.append(f"| {shown} | {count['faults']} | {of} | {named} | {count['blamed']} |")
    return "\n".join([*lines, "", about])


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=FIRST, help="the first seed")
    parser.add_argument("--each", type=int, default=20, help="attributable faults of a class")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--write", action="store_true", help="into docs/suites.md")
    asked = parser.parse_args()
    runs = runs_of(asked.first, asked.each, asked.jobs, asked.out)
    for each in runs:
        if each.noteworthy():
            show(each)
    about = (
        f"Simulated, by NEMESIS {__version__} with parameters `{load_params().sha256[:12]}`:"
        f" {len(runs)} runs of the held-out suites, seeds from {asked.first:,} on."
    )
    text = table(runs, about)
    print(f"\n{text}")
    if asked.write:
        write(DOCUMENT, MARK, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
