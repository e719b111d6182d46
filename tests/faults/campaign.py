"""`make campaign`: every cut fifty times, servers killed by the hundred, thousands of seeds.

Then all that can happen to four ranks that change their group (membership_model.py), real ranks
killed and stopped at random (training/runs.py), scenarios that nobody wrote (vary.py), 2,500 quiet
node-days (quiet.py), 20,000 GPU-days under the failure model (needless_days.py), then mutants.
Hours on two cores, so each part can be run alone (`--only seeds`), and `--quick` shows in minutes
that the campaign works.
"""

import argparse
import asyncio
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.faults import test_simulated
from tests.membership_model import BrokenPromiseError, Budget, begin, explore
from tests.training.cell import has_torch
from tests.training.runs import runs
from tests.varied_runs import run_varied

PARTS = ("seeds", "faults", "membership", "training", "scenarios", "quiet", "needless", "mutants")
LARGE = (
    (2, Budget(kills=2, predictions=1, breaks=1)),
    (3, Budget(kills=1, breaks=1, steps=1)),
    (3, Budget(kills=1, predictions=1, steps=1)),
    (3, Budget(kills=0, breaks=1, rivals=1, zombies=1, steps=1)),
    (4, Budget(kills=2, steps=1)),
    (4, Budget(kills=0, suspicions=1, zombies=1, steps=1)),
    (4, Budget(kills=0, predictions=1, steps=1)),
)
ROOT = Path(__file__).parent.parent.parent
REAL = [
    "tests/faults/test_cuts.py",
    "tests/faults/test_disasters.py",
    "tests/faults/test_log_loss.py",
]


def real(repeats: int, kills: int) -> int:
    """The tests with real processes, with more repetitions than CI has time for."""
    environment = os.environ | {
        "NEMESIS_FAULT_REPEATS": str(repeats),
        "NEMESIS_FAULT_KILLS": str(kills),
    }
    command = [sys.executable, "-m", "pytest", "-p", "no:randomly", *REAL]
    return subprocess.run(command, env=environment, cwd=ROOT, check=False).returncode


def seeds(first: int, count: int) -> int:
    """Simulated runs; prints each seed that fails, to be run again alone."""
    logging.disable(logging.WARNING)
    failed = 0
    began = time.monotonic()
    for seed in range(first, first + count):
        for play in (
            test_simulated.test_copies_killed_at_any_await_and_answers_lost_change_nothing,
            test_simulated.test_floods_crashes_upgrades_full_and_older_stores_change_nothing,
            test_simulated.test_a_store_that_ends_inside_a_batch_is_built_upon_and_says_each_thing_once,
        ):
            with tempfile.TemporaryDirectory() as folder:
                try:
                    play(seed, Path(folder))
                except Exception as error:
                    failed += 1
                    print(f"seed {seed} {play.__name__}: {str(error)[:300]}", flush=True)
    print(f"{3 * count} simulated runs in {time.monotonic() - began:.0f} s, {failed} failed")
    return failed


def membership(*budgets: tuple[int, Budget]) -> int:
    """Explore budgets whole; prints how a promise was broken."""
    failed = 0
    for ranks, budget in budgets:
        began = time.monotonic()
        try:
            found = f"{explore(begin(ranks, budget)).worlds_count} worlds, none of them wrong"
        except BrokenPromiseError as error:
            failed, found = failed + 1, str(error)
        print(f"{ranks} ranks, {budget}: {found}, {time.monotonic() - began:.0f} s", flush=True)
    return failed


def training(first: int, count: int) -> int:
    """Real ranks killed and stopped at random, each run compared with one without faults."""
    if not has_torch():
        print("training: not run, there is no torch (NEMESIS_TORCH_PYTHON)")
        return 0
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        failed = asyncio.run(runs(Path(folder), range(first, first + count)))
    took_s = time.monotonic() - began
    print(
        f"{count} runs with real faults in {took_s:.0f} s, {len(failed)} failed", *failed, sep="\n"
    )
    return len(failed)


def quiet(node_days: int) -> int:
    """Healthy clusters with decoys: nothing may be blamed."""
    command = [sys.executable, "-m", "tests.quiet", "--node-days", str(node_days)]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def needless(gpu_days: int) -> int:
    """Healthy GPUs under the shipped failure model: how many would be taken out?"""
    command = [sys.executable, "-m", "tests.needless_days", "--gpu-days", str(gpu_days)]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def mutants(*what: str) -> int:
    """Mutation testing of healer and runner, or of these files."""
    command = [sys.executable, "-m", "tests.mutation", *what]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="minutes instead of hours")
    parser.add_argument("--first-seed", type=int, default=1000)
    parser.add_argument("--only", choices=PARTS, action="append", help="default: all, in order")
    arguments = parser.parse_args()
    first_seed, quick = arguments.first_seed, arguments.quick
    parts: dict[str, Callable[[], int]] = {
        "seeds": lambda: seeds(first_seed, 20 if quick else 2000),
        "faults": lambda: real(*((2, 5) if quick else (50, 200))),
        "membership": lambda: membership(*(LARGE[:1] if quick else LARGE)),
        "training": lambda: training(first_seed, 5 if quick else 200),
        "scenarios": lambda: run_varied(first_seed, 20 if quick else 1000),
        "quiet": lambda: quiet(30 if quick else 2500),
        "needless": lambda: needless(200 if quick else 20_000),
        "mutants": lambda: mutants(*(["processors/healer/replicas.py"] if quick else [])),
    }
    failed = sum(parts[name]() for name in arguments.only or PARTS)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
