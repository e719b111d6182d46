"""`python -m tests.mutation [healer|runner|FILE...]`: break each line, see whether a test notices.

The files and tests are named in pyproject.toml, [tool.mutmut]. Exit 1: a mutant lived that
survivors.toml does not explain; it is printed as an entry to complete.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

from tests.mutation import survivors

ROOT = Path(__file__).parent.parent.parent
WORK = ROOT / "mutants"
PARTS = {"healer": "processors/healer/", "runner": "streams/"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", help="healer, runner or files; both by default")
    parser.add_argument("--again", action="store_true", help="only those that lived the last time")
    parser.add_argument("--report", action="store_true", help="only what the last run found")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at a time")
    arguments = parser.parse_args()
    os.chdir(ROOT)
    paths = mutated(arguments.what or list(PARTS))
    if not paths:
        parser.error(f"nothing to break: name {', '.join(PARTS)} or a file of [tool.mutmut]")
    began = time.monotonic()
    if not arguments.report:
        mutate(paths, jobs=arguments.jobs, again=arguments.again)
    unexplained = report(paths)
    print(f"{time.monotonic() - began:.0f} s")
    return 1 if unexplained else 0


def mutated(what: list[str]) -> list[str]:
    """The files to break, as mutmut knows them: through the links in src."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mutmut"]
    beginnings = tuple(f"src/nemesis/{PARTS.get(name, name)}" for name in what)
    return [path for path in settings["only_mutate"] if path.startswith(beginnings)]


def mutate(paths: list[str], *, jobs: int, again: bool) -> None:
    """Make the mutants and try each on the tests that reach it; raises where mutmut gives up."""
    names = [f"{path[len('src/') : -len('.py')].replace('/', '.')}.x*" for path in paths]
    if again:
        names = survivors.alive(paths)
        (WORK / "mutmut-stats.json").unlink(missing_ok=True)  # which tests reach what may be new
    elif WORK.exists():
        shutil.rmtree(WORK)
    if not names:
        return
    script = Path(__file__).parent / "mutate.py"
    # nothing but mutants/ is imported; a few seeds notice what many notice, in less time
    environment = os.environ | {"PYTHONPATH": "", "NEMESIS_FAULT_SEEDS": "4"}
    command = [sys.executable, str(script), "run", "--max-children", str(jobs), *names]
    log = ROOT / "mutants.log"
    with log.open("w") as output:
        done = subprocess.run(
            command, env=environment, stdout=output, stderr=subprocess.STDOUT, check=False
        )
    if done.returncode:
        raise SystemExit(f"mutmut gave up with exit code {done.returncode}: read {log.name}")


def report(paths: list[str]) -> list[survivors.Change]:
    """Print what became of the mutants, a line a file, then each survivor without a reason."""
    why = survivors.explained()
    left: list[survivors.Change] = []
    seen: set[survivors.Change] = set()
    print(
        f"{'file':32} {'mutants':>8} {'killed':>8} {'timeouts':>8} {'explained':>10} {'alive':>8}"
    )
    for path in paths:
        verdicts = survivors.verdicts_of(path)
        alive = [change for change in verdicts.survivors if change not in why]
        known = len(verdicts.survivors) - len(alive)
        total = verdicts.killed + verdicts.timeouts + len(verdicts.survivors)
        print(
            f"{verdicts.file:32} {total:8} {verdicts.killed:8} {verdicts.timeouts:8}"
            f" {known:10} {len(alive):8}"
        )
        left += alive
        seen.update(verdicts.survivors)
        for change in why:
            if change.file == verdicts.file and change not in seen:
                print(f"  no longer alive: {change.function}: {change.now or change.was}")
    if left:
        print(f"\n{len(left)} mutants that no test notices, not in {survivors.EXPLAINED.name}:\n")
        print(survivors.as_toml(left))
    return left


if __name__ == "__main__":
    sys.exit(main())
