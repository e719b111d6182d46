"""How many faults of each suite are attributable: `python -m tests.suite_shares [NAME...]`.

By dry runs alone, of the suites' own seeds: no processor runs, so nobody learns how well any of
them would do. What a held-out suite may be asked before it is scored. Ends with 1 if a share lies
outside the bounds. With `--kinds` by kind of fault as well; not for held-out suites.
"""

import argparse
import os
import sys
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from nemesis.sim.dry_run import weighed
from nemesis.sim.faults.courses import plan_faults
from nemesis.sim.offline import START_NS
from nemesis.sim.params import load_params
from nemesis.sim.suite import QUANTUM_NS
from nemesis.sim.truth.drawn import draw
from nemesis.sim.truth.report import ATTRIBUTABLE_PPM
from nemesis.sim.truth.suites import suite_named, suites


def known(name: str, seed: int) -> list[tuple[str, bool]]:
    """Each fault of a run that is one: its kind, and whether it is attributable."""
    suite = suite_named(name)
    params = suite.assumed(load_params())
    drawn = draw(suite, seed, params)
    lasts_s = drawn.scenario.duration_s
    faults = plan_faults(drawn.cluster, drawn.scenario.faults, seed, lasts_s=lasts_s)
    with tempfile.TemporaryDirectory() as folder:
        found = weighed(
            drawn.cluster,
            faults,
            drawn.defects,
            params,
            seed=seed,
            folder=Path(folder),
            start_ns=START_NS,
            quantum_ns=QUANTUM_NS,
        )
    return [(each.kind, each.attributable) for each in found if each.attributable is not None]


def main() -> int:
    """Count and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="suites; default: all with faults")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--kinds", action="store_true", help="by kind of fault as well")
    asked = parser.parse_args()
    outside = False
    with ProcessPoolExecutor(asked.jobs) as pool:
        for suite in [each for each in suites() if each.name in asked.names or not asked.names]:
            seeds = range(suite.first_seed, suite.first_seed + suite.seeds_count)
            runs = pool.map(partial(known, suite.name), seeds, chunksize=4)
            found = [each for run in runs for each in run]
            if not found:
                continue
            count = sum(attributable for _, attributable in found)
            low, high = ATTRIBUTABLE_PPM
            inside = low <= count * 1_000_000 // len(found) <= high
            outside |= not inside
            print(
                f"{suite.name:<22} {count:>4} of {len(found):>4} faults attributable, "
                f"{100 * count / len(found):.1f} %{'' if inside else '  OUTSIDE'}",
                flush=True,
            )
            if asked.kinds:
                of = Counter(kind for kind, _ in found)
                yes = Counter(kind for kind, attributable in found if attributable)
                for kind, total in of.most_common():
                    print(f"    {kind:<24} {yes[kind]:>3} of {total:>3}")
    return int(outside)


if __name__ == "__main__":
    sys.exit(main())
