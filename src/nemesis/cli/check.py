"""`nemesis check`: one line and an exit status for a monitoring system or a health check."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import msgspec
import typer

from nemesis.cli.cell import (
    CellOption,
    ContextOption,
    CredsOption,
    ServerOption,
    open_log,
    shown_name,
)
from nemesis.cli.check_formats import EXIT, Finding, Format, Measure, State, shown, worst_of
from nemesis.cli.interrupts import run_on_loop
from nemesis.cli.output import JsonOption

if TYPE_CHECKING:
    from nemesis.views.standing import Status

T = TypeVar("T")
# a tick is due each second; the runner alarms after 5 s, so does this
_CLOCK_CRITICAL_NS = 5_000_000_000
# producers halve their rate at 80 % and send kernel facts only at 90 % (docs/log.md)
_FILL_WARNING_PPM, _FILL_CRITICAL_PPM = 800_000, 900_000
_LAG_WARNING_NS, _LAG_CRITICAL_NS = 10_000_000_000, 60_000_000_000


def check(
    *,
    here: Annotated[
        bool,
        typer.Option("--here", help="Only the parts on this machine; asks no server."),
    ] = False,
    how: Annotated[
        Format,
        typer.Option("--format", help="nagios: with measures; prometheus: a textfile's."),
    ] = "text",
    cell: CellOption = "local",
    server: ServerOption = "",
    context: ContextOption = "",
    credentials: CredsOption = None,
    json: JsonOption = False,
) -> None:
    """Say in one line whether a cell works. Exit: 0 ok, 1 warning, 2 critical, 3 unknown.

    Clock, fill level and lag of every processor as the log tells them; with --here, whether the
    parts that run on this machine under this cell's name live and reach their log.
    """
    findings = _parts(cell) if here else _log(cell, server, context, credentials)
    from nemesis.schemas.printable import one_line

    for line in shown(findings, "json" if json else how).split("\n"):
        typer.echo(one_line(line))
    raise typer.Exit(EXIT[worst_of(findings)])


def _log(cell: str, server: str, context: str, credentials: Path | None) -> list[Finding]:
    from nemesis.schemas.errors import NemesisError
    from nemesis.streams.contexts import NoCellError
    from nemesis.views.standing import measure

    async def run() -> "Status":
        async with await open_log(cell, server, context, credentials) as log:
            return await measure(log, shown_name(cell, server, context))

    try:
        return judge(run_on_loop(run()))
    except NoCellError as error:
        return [Finding("unknown", str(error))]
    except NemesisError as error:
        return [Finding("critical", str(error))]


def judge(now: "Status") -> list[Finding]:
    """What the log says of itself and of its processors."""
    clock_ns = now.clock_age_ns
    clock = Finding("critical", "no tick ever")
    if clock_ns is not None:
        clock = Finding(
            "ok" if clock_ns <= _CLOCK_CRITICAL_NS else "critical",
            f"last tick {clock_ns / 1e9:.1f} s ago",
            Measure("clock", max(0, clock_ns) / 1e9, "s", _CLOCK_CRITICAL_NS / 1e9),
        )
    fill = Finding(
        _above(now.fill_ppm, _FILL_WARNING_PPM, _FILL_CRITICAL_PPM),
        f"log {now.fill_ppm / 10_000:.1f} % full",
        Measure("fill", now.fill_ppm / 1e4, "%", _FILL_CRITICAL_PPM / 1e4, _FILL_WARNING_PPM / 1e4),
    )
    lags = [
        Finding(
            _above(each.lag_ns, _LAG_WARNING_NS, _LAG_CRITICAL_NS),
            f"{each.name} {each.lag_ns / 1e9:.1f} s behind",
            Measure(
                f"lag_{each.name}", each.lag_ns / 1e9, "s",
                _LAG_CRITICAL_NS / 1e9, _LAG_WARNING_NS / 1e9,
            ),
        )
        for each in now.processors
    ]  # fmt: skip
    return [clock, fill, *(lags or [Finding("critical", "no processor has a position")])]


def _above(value: int, warning: int, critical: int) -> State:
    if value >= critical:
        return "critical"
    return "warning" if value >= warning else "ok"


def _parts(cell: str) -> list[Finding]:
    """Every part that says on this machine that it lives."""
    from nemesis.streams.pulse import Pulse, pulses_folder
    from nemesis.streams.server import state_folder
    from nemesis.streams.status import CopyStatus, copies_folder

    folder = state_folder(cell)
    found = []
    for path in sorted(copies_folder(folder).glob("*.json")):
        copy = _read(path, CopyStatus)
        if copy is not None:
            why = copy.problem or ("the log is full" if copy.log_full else "")
            found.append(_part(path, f"{copy.name} {copy.stage}", why))
    for path in sorted(pulses_folder(folder).glob("*.json")):
        pulse = _read(path, Pulse)
        if pulse is not None:
            found.append(
                _part(path, pulse.part, "" if pulse.connected else "does not reach its log")
            )
    return found or [Finding("unknown", f"no part of cell {cell!r} runs on this machine")]


def _read(path: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None  # a part that ends at this moment, or a file of another release


def _part(path: Path, name: str, problem: str) -> Finding:
    from nemesis.streams.pulse import STALE_S

    try:
        age_s = max(0.0, time.time() - path.stat().st_mtime)
    except FileNotFoundError:
        return Finding("critical", f"{name} ended")
    if age_s > STALE_S:
        return Finding("critical", f"{name} not heard of for {age_s:.0f} s")
    return Finding("critical" if problem else "ok", f"{name}: {problem}" if problem else name)
