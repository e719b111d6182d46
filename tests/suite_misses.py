"""What is missed of suites, and on which evidence: `python -m tests.suite_misses [SUITE ...]`.

Draws seeds that no suite has (`--first`), runs each with today's processors and prints a line for
each attributable fault that was not named first, for each wrong blame and each false alarm: kind,
culprit, what was delivered of its evidence, and the last word of each incident. At the end counts
by suite, class and kind, and how long it took to name what stopped a job, from its first symptom in
simulated time. `--out FILE` keeps what was found, a JSON line a run; runs that the file
holds are read and not run again, so name another file after a change of code.
"""

import argparse
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final

import msgspec

from nemesis.schemas.inferred import FaultAttributed
from nemesis.sim.offline import START_NS
from nemesis.sim.params import load_params
from nemesis.sim.suite import run_drawn
from nemesis.sim.truth.ledger import FaultInjected
from nemesis.sim.truth.report import outcome_of, times_of
from nemesis.sim.truth.report_text import spelled
from nemesis.sim.truth.score import FaultScore
from nemesis.sim.truth.suites import suite_named, suites

FIRST: Final = 5_000_000
"""Far from the seeds of every suite."""
LATE_MS: Final = 30_000


class Judged(msgspec.Struct):
    """A fault and what became of it."""

    score: FaultScore
    delivered: list[str]
    """What of its evidence reached the log; what names the culprit is marked."""

    @property
    def missed(self) -> bool:
        """Attributable and not named first."""
        return self.score.attributable is True and self.score.right_at != 0


class Run(msgspec.Struct):
    """A run of a suite."""

    suite: str
    seed: int
    cluster: str
    faults: list[Judged]
    words: list[str]
    """The last word of each incident."""
    alarms: tuple[str, ...]

    def noteworthy(self) -> bool:
        """Whether anything of it went wrong."""
        wrong = any(each.missed or each.score.wrong_blame for each in self.faults)
        return wrong or bool(self.alarms)


def told(fault: FaultInjected) -> list[str]:
    """What of a fault's evidence was delivered."""
    evidence = [fault.evidence[place] for place in fault.delivered]
    return [
        f"{'*' if each.decisive else ''}{each.told}:{each.sign or each.shows}@{each.by}"
        for each in evidence
    ]


def run(name: str, seed: int) -> Run:
    """One run of today's processors."""
    suite = suite_named(name)
    drawn, found = run_drawn(suite, seed, suite.assumed(load_params()))
    injected = [each for each in found.truths if isinstance(each, FaultInjected)]
    words: dict[str, str] = {}
    for fact in found.facts:
        if isinstance(fact.data, FaultAttributed):
            data = fact.data
            names = " ".join(culprit.id for culprit in data.culprits) or "-"
            at_s = (fact.at_ns - START_NS) / 1e9
            words[data.incident] = (
                f"{at_s:.1f}s {data.verdict} {data.fault_class} {data.confidence_ppm // 10_000}%"
                f" {names}: {data.reason}"
            )
    cluster = drawn.cluster
    shape = (
        f"{cluster.cluster.name} poll {cluster.cluster.sample_period_ms} ms,"
        f" step {cluster.job.step_ms} ms, {cluster.job.nodes} nodes,"
        f" tp{cluster.job.tp} pp{cluster.job.pp} cp{cluster.job.cp} ep{cluster.job.ep}"
    )
    return Run(
        suite=name,
        seed=seed,
        cluster=shape,
        faults=[
            Judged(score, told(fault))
            for score, fault in zip(found.score.faults, injected, strict=True)
            if not score.is_decoy
        ],
        words=list(words.values()),
        alarms=found.score.false_alarms,
    )


def show(each: Run) -> None:
    """Print what went wrong in a run."""
    print(f"\n{each.suite} {each.seed}: {each.cluster}")
    for fault in each.faults:
        score = fault.score
        marks = "MISSED" if fault.missed else "" if score.attributable else "not attributable"
        blamed = f" BLAMED {' '.join(score.wrong_blame)}" if score.wrong_blame else ""
        print(
            f"  {score.kind} ({score.true_class}) {score.culprit}: {outcome_of(score)} {marks}"
            f"{blamed}; delivered {', '.join(fault.delivered) or 'nothing'}"
        )
    for alarm in each.alarms:
        print(f"  FALSE ALARM {alarm}")
    for word in each.words:
        print(f"    {word}")


def summary(runs: Sequence[Run]) -> None:
    """Counts by suite, class and kind."""
    known: dict[str, Counter[str]] = defaultdict(Counter)
    for each in runs:
        for fault in each.faults:
            score = fault.score
            for key in (f"0 {each.suite}", f"1 {score.true_class}", f"2 {score.kind}", "3 all"):
                count = known[key]
                count["faults"] += 1
                count["blamed"] += bool(score.wrong_blame)
                count["attributable"] += score.attributable is True
                count["right"] += score.attributable is True and not fault.missed
                late = score.stalls and (score.to_attribute_ms or 0) > LATE_MS
                count["late"] += late and score.attributable is True
        known[f"0 {each.suite}"]["alarms"] += len(each.alarms)
        known["3 all"]["alarms"] += len(each.alarms)
    columns = ("faults", "attributable", "right", "late", "blamed", "alarms")
    print(f"\n{'':<34}{''.join(f'{name:>14}' for name in columns)}")
    for key, count in sorted(known.items()):
        of = count["attributable"]
        percent = f"{100 * count['right'] / of:8.1f} %" if of else ""
        print(f"{key[2:]:<34}{''.join(f'{count[name]:>14}' for name in columns)}{percent}")
    scores = (fault.score for each in runs for fault in each.faults)
    hard = [score for score in scores if score.stalls and score.attributable]
    print(f"\nto name a hard fault: {spelled(times_of(each.to_attribute_ms for each in hard))}")


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="SUITE", help="default: all with faults")
    parser.add_argument("--first", type=int, default=FIRST, help="the first seed")
    parser.add_argument("--seeds", type=int, default=10, help="of each suite")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    names = asked.names or [each.name for each in suites() if each.faults.counts != (1,)]
    done: dict[tuple[str, int], Run] = {}
    if asked.out and asked.out.exists():
        lines = asked.out.read_bytes().splitlines()
        for each in (msgspec.json.decode(line, type=Run) for line in lines):
            done[each.suite, each.seed] = each
    seeds = range(asked.first, asked.first + asked.seeds)
    wanted = [(name, seed) for seed in seeds for name in names]
    todo = [each for each in wanted if each not in done]
    with ProcessPoolExecutor(asked.jobs) as pool:
        for made in pool.map(run, [name for name, _ in todo], [seed for _, seed in todo]):
            done[made.suite, made.seed] = made
            if asked.out:
                with asked.out.open("ab") as file:
                    file.write(msgspec.json.encode(made) + b"\n")
    runs = [done[each] for each in wanted]
    for each in runs:
        if each.noteworthy():
            show(each)
    summary(runs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
