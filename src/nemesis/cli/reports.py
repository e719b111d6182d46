"""What `nemesis score` and `nemesis suite` have in common: a bar while they work, and a report."""

import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import msgspec

from nemesis.cli.output import print_json, say

if TYPE_CHECKING:
    from rich.progress import Progress

    from nemesis.sim.truth.report import Report
    from nemesis.sim.truth.scored import ScoredRun


class RunBar:
    """A bar on a terminal that says how many runs are done; nothing where nobody looks."""

    def __init__(self, name: str, total_count: int) -> None:
        self._name = name
        self._total_count = total_count
        self._progress: Progress | None = None

    def __enter__(self) -> "RunBar":
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import Progress

            self._progress = Progress(console=Console(stderr=True), transient=True)
            self._progress.start()
            self._progress.add_task(self._name, total=self._total_count)
        return self

    def advance(self) -> None:
        """One more is done."""
        if self._progress is not None:
            self._progress.advance(self._progress.task_ids[0])

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._progress is not None:
            self._progress.stop()


def show(
    runs: "Sequence[ScoredRun]", *, json: bool, folder: Path | None = None, void: str = ""
) -> "Report":
    """Print what the runs say together; `void`: why it counts no more.

    Raises:
        MixedParametersError: not all were made with the same parameters.
    """
    from nemesis.sim.truth.report import report
    from nemesis.sim.truth.report_text import lines

    found = report(runs)
    if json:
        document = msgspec.to_builtins(found)
        print_json({**document, "void": void, "folder": str(folder) if folder else ""})
        return found
    for line in lines(found, void=void):
        say(line)
    if folder is not None:
        say(f"\nruns are kept in {folder}")
    return found


def ended_with(report: "Report", *, void: str = "") -> int:
    """The exit status of a report: 1 where it does not count."""
    return int(bool(void) or not report.attributable_in_bounds)
