"""Every scenario with many seeds: `python -m tests.scenarios [--seeds 10] [NAME...]`.

Offline by default: virtual time, real processors, no server (sim/offline.py); every log is replayed
and compared byte for byte. With `--speed N` the same on the wire, with a server and processes, at N
times real time. With `--vary` scenarios that each seed draws anew, on a cluster that it draws too
(vary.py). All is simulated. Ends with 1 if a run did not pass.
"""

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import msgspec

from nemesis.replay.capture import capture
from nemesis.replay.reader import Recording
from nemesis.replay.verify import verify
from nemesis.replay.versions import maker
from nemesis.sim.cell import Options, running_cell
from nemesis.sim.faults.scenario import scenario_named, scenarios
from nemesis.sim.offline import run_offline
from nemesis.sim.run import judge
from nemesis.sim.topology.cluster_file import load_cluster
from tests.varied_runs import run_varied


class FaultRow(msgspec.Struct):
    """What is shown of one fault; a subset of sim.score.FaultScore."""

    named: list[str]
    wrong_blame: list[str]
    culprit_right: bool
    class_right: bool
    action: str
    action_right: bool
    to_verdict_ms: int | None
    to_resume_ms: int | None
    is_decoy: bool
    fault_class: str
    predicted_ms: int | None = None


class ScoreRow(msgspec.Struct):
    """What is shown of one run; a subset of sim.score.Score."""

    faults: list[FaultRow]
    false_alarms: list[str]
    broken: list[str]


class Row(msgspec.Struct):
    """One run."""

    scenario: str
    seed: int
    passed: bool
    score: ScoreRow
    replay: str
    """equal, different or unverified."""

    @property
    def faults(self) -> list[FaultRow]:
        """The real ones."""
        return [each for each in self.score.faults if not each.is_decoy]

    @property
    def is_right(self) -> bool:
        """Every culprit is named, or nothing where nothing is wrong."""
        return all(each.culprit_right for each in self.faults) and not self.score.false_alarms

    @property
    def wrong_blame(self) -> list[str]:
        """Everything that was blamed and is innocent."""
        return [name for each in self.faults for name in each.wrong_blame]


def offline(name: str, seed: int) -> Row:
    """One run in virtual time."""
    with tempfile.TemporaryDirectory() as folder:
        run = run_offline(load_cluster(), scenario_named(name), seed=seed, folder=Path(folder))
    return Row(
        scenario=name,
        seed=seed,
        passed=run.score.passed,
        score=msgspec.convert(msgspec.to_builtins(run.score), ScoreRow),
        replay=run.replay().verdict,
    )


def on_the_wire(name: str, seed: int, speed: float) -> Row:
    """One run with a server and processes, its log recorded and replayed."""
    options = Options(
        cluster=load_cluster(), scenario=scenario_named(name), seed=seed, speed=speed, cell="wire"
    )
    with tempfile.TemporaryDirectory() as state:
        os.environ["NEMESIS_STATE_DIR"] = state
        return asyncio.run(_on_the_wire(options, Path(state) / "run.ndjson"))


async def _on_the_wire(options: Options, path: Path) -> Row:
    async with running_cell(options, lambda lines: None, lambda standing: None) as cell:
        await cell.watcher.until_over(cell.stage.simulation, options.scenario)
        outcome = await judge(options, cell, 0.0)
        async with await cell.server.connect("reader") as log:
            last_seq = (await log.bounds()).last_seq
            await capture(log, path, from_seq=1, to_seq=last_seq, cell=options.cell)
    recording = Recording(path)
    report = verify(recording, maker(recording.header.nemesis_version))
    return Row(
        scenario=options.scenario.name,
        seed=options.seed,
        passed=outcome.score.passed,
        score=msgspec.convert(msgspec.to_builtins(outcome.score), ScoreRow),
        replay=report.verdict,
    )


def rows(names: list[str], seeds: int, speed: float) -> Iterator[Row]:
    """All runs, in order."""
    runs = [(name, seed) for name in names for seed in range(1, seeds + 1)]
    if speed:
        yield from (on_the_wire(name, seed, speed) for name, seed in runs)
        return
    with ProcessPoolExecutor() as pool:
        yield from pool.map(offline, *zip(*runs, strict=True))


def table(done: list[Row]) -> str:
    """One line a scenario, and below it what went wrong."""
    lines = [
        f"{'scenario':<18} {'runs':>4} {'passed':>6} {'right':>5} {'wrong blame':>11} "
        f"{'alarms':>6} {'verdict':>8} {'resumed':>8} {'replays':>7}   (times simulated, median)"
    ]
    for name in dict.fromkeys(row.scenario for row in done):
        mine = [row for row in done if row.scenario == name]
        faults = [fault for row in mine for fault in row.faults]
        verdict = _median([each.to_verdict_ms for each in faults])
        resumed = _median([each.to_resume_ms for each in faults])
        lines.append(
            f"{name:<18} {len(mine):>4} {sum(row.passed for row in mine):>6} "
            f"{sum(row.is_right for row in mine):>5} "
            f"{sum(len(row.wrong_blame) for row in mine):>11} "
            f"{sum(len(row.score.false_alarms) for row in mine):>6} {verdict:>8} {resumed:>8} "
            f"{sum(row.replay == 'equal' for row in mine):>7}"
        )
        lines += [f"    seed {row.seed}: {_why(row)}" for row in mine if not row.passed]
    return "\n".join(lines)


def _why(row: Row) -> str:
    said = [
        f"said {each.fault_class or 'nothing'} {','.join(each.named) or '-'}"
        f" -> {each.action or 'no action'}"
        for each in row.faults
    ]
    blamed = [f"wrong blame {name}" for name in row.wrong_blame]
    return "; ".join([*said, *blamed, *row.score.false_alarms, *row.score.broken])


def _median(times_ms: list[int | None]) -> str:
    known = sorted(ms for ms in times_ms if ms is not None)
    if not known:
        return "-"
    share = "" if len(known) == len(times_ms) else "*"
    return f"{share}{known[len(known) // 2] / 1000:.1f} s"


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="scenarios; default: all")
    parser.add_argument("--seeds", type=int, default=10, help="runs of each, seeds 1 to N")
    parser.add_argument("--speed", type=float, default=0.0, help="on the wire, N times real time")
    parser.add_argument("--vary", action="store_true", help="scenarios drawn by each seed")
    parser.add_argument("--first-seed", type=int, default=1, help="with --vary")
    asked = parser.parse_args()
    if asked.vary:
        return run_varied(asked.first_seed, asked.seeds)
    names = asked.names or [each.name for each in scenarios()]
    done = list(rows(names, asked.seeds, asked.speed))
    print(table(done))
    return 0 if all(row.passed and row.replay == "equal" for row in done) else 1


if __name__ == "__main__":
    sys.exit(main())
