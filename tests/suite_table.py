"""The table of all suites: `python -m tests.suite_table [--seeds N] [--jobs N] [--write]`.

Runs what is not done yet, prints Markdown, and with `--write` puts it between the marks in
docs/suites.md and README.md. Everything is simulated; held-out suites are only ever scored.
"""

import argparse
import os
import re
import sys
from pathlib import Path

from nemesis.sim.params import DEFAULT, load_params
from nemesis.sim.suite import Options, folder_of, run_suite
from nemesis.sim.truth.report import Report, report
from nemesis.sim.truth.report_text import percent
from nemesis.sim.truth.suites import Suite, suites
from nemesis.streams.server import state_folder

ROOT = Path(__file__).parent.parent
MARK = "suites"
HEAD = (
    "| suite | runs | faults | attributable | top-1 | of attributable | top-3 | class right | "
    "wrong blame | abstained or silent | action right | false alarms per 1,000 GPU-days | ECE |"
)


def row(suite: Suite, found: Report) -> str:
    """One line of the table."""
    alarms = found.alarms
    rate = alarms.per_1000_gpu_days_milli
    shares = (
        found.attributable,
        found.top1,
        found.top1_of_attributable,
        found.top3,
        found.class_right,
        found.wrong_blame,
        found.abstained,
        found.action_right,
    )
    cells = [
        f"`{suite.name}`{' (held out)' if suite.held_out else ''}",
        str(found.runs_count),
        str(found.faults_count),
        *(percent(each) for each in shares),
        f"{alarms.count}: {'-' if rate is None else f'{rate / 1e3:,.0f}'}",
        f"{found.calibration.ece_ppm / 1e4:.1f} %" if found.calibration.count else "-",
    ]
    return f"| {' | '.join(cells)} |"


def table(seeds_count: int, jobs_count: int) -> str:
    """All suites."""
    lines = [HEAD, "|---" * HEAD.count(" |") + "|"]
    version = ""
    for suite in suites():
        options = Options(
            suite=suite,
            folder=folder_of(suite, DEFAULT, state_folder("suites")),
            seeds_count=seeds_count or suite.seeds_count,
        )
        found = report(list(run_suite(options, jobs_count=jobs_count)))
        version = found.nemesis_version
        lines.append(row(suite, found))
        print(lines[-1], file=sys.stderr, flush=True)
    about = (
        f"Simulated, by NEMESIS {version} with parameters `{load_params().sha256[:12]}`"
        f"{f', {seeds_count} seeds a suite' if seeds_count else ''}."
    )
    return "\n".join([*lines, "", about])


def write(path: Path, mark: str, text: str) -> None:
    """Put a table between the marks of a file that has them."""
    begin, end = f"<!-- {mark} -->", f"<!-- /{mark} -->"
    before = path.read_text()
    if begin in before:
        pattern = f"{re.escape(begin)}.*?{re.escape(end)}"
        put = f"{begin}\n{text}\n{end}"
        path.write_text(re.sub(pattern, lambda _: put, before, flags=re.DOTALL))


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=0, help="of each suite; 0: as it says")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--write", action="store_true", help="into docs/suites.md and README.md")
    asked = parser.parse_args()
    text = table(asked.seeds, asked.jobs)
    print(text)
    if asked.write:
        for path in (ROOT / "docs" / "suites.md", ROOT / "README.md"):
            write(path, MARK, text)


if __name__ == "__main__":
    main()
