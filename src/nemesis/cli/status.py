"""`nemesis status`: where the log and every processor stand, once."""

import os
from typing import Any

from nemesis.cli.cell import (
    CellOption,
    ContextOption,
    CredsOption,
    ServerOption,
    open_log,
    shown_name,
)
from nemesis.cli.decisions import attention
from nemesis.cli.interrupts import run_on_loop
from nemesis.cli.operate import read_hands
from nemesis.cli.output import JsonOption, print_json, say
from nemesis.views.standing import Copy, Standing, Status, measure


def status(
    cell: CellOption = "local",
    server: ServerOption = "",
    context: ContextOption = "",
    credentials: CredsOption = None,
    json: JsonOption = False,
) -> None:
    """Show the log's end and fill, and how far each processor is behind. Exit 3: not reachable."""

    async def run() -> Status:
        async with await open_log(cell, server, context, credentials) as log:
            now = await measure(log, shown_name(cell, server, context))
            hands = await read_hands(log)
            now.mode, now.attention = hands.policy.mode, attention(hands)
            return now

    now = run_on_loop(run())
    if not server and not context:
        now.copies = _copies(cell)
        for standing in now.processors:
            _see_reading(standing, now)
    if json:
        print_json(now)
        return
    _print(now)


def _copies(cell: str) -> list[Copy]:
    """The log cannot tell a dead copy from one that waits for the other: they tell themselves."""
    from nemesis.streams.server import state_folder
    from nemesis.streams.status import copies_folder, read_status

    return [
        Copy(
            name=each.name,
            version=each.version,
            pid=each.pid,
            alive=_is_alive(each.pid),
            stage=each.stage,
            standby=each.standby,
            lag_seq=each.lag_seq,
            problem=each.problem,
            log_time_ns=each.log_time_ns,
        )
        for each in read_status(copies_folder(state_folder(cell)))
    ]


def _see_reading(standing: Standing, now: Status) -> None:
    """A position is written a second after all is read: who reads knows better."""
    lags = [
        (copy.lag_seq, max(0, now.log_time_ns - copy.log_time_ns))
        for copy in now.copies
        if copy.alive
        and copy.stage == "reading"
        and (copy.name, copy.version) == (standing.name, standing.version)
    ]
    if lags:
        standing.lag_seq, standing.lag_ns = min(lags)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # somebody else's, and there
    return True


def _print(now: Status) -> None:
    from nemesis.schemas.envelope import rfc3339

    age = "no clock" if now.clock_age_ns is None else f"clock {now.clock_age_ns / 1e9:.1f} s old"
    if now.clock_behind_ns > 0:
        age = f"clock {now.clock_behind_ns / 1e9:.0f} s behind log time, which stands still"
    say(
        f"log {now.cell}: sequences {now.first_seq} to {now.last_seq},"
        f" {now.used_bytes / 2**20:.1f} MiB, {now.fill_ppm / 10_000:.1f} % full, {age},"
        f" log time {rfc3339(now.log_time_ns)}"
    )
    if not now.processors:
        say("no processor has a position")
    rows: list[tuple[Any, ...]] = [("processor", "version", "position", "behind", "seconds")]
    rows += [
        (p.name, p.version, p.in_seq, p.lag_seq, f"{p.lag_ns / 1e9:.1f}") for p in now.processors
    ]
    for name, version, position, behind, seconds in rows if now.processors else []:
        say(f"{name:<16} {version:>7} {position:>10} {behind:>8} {seconds:>8}")
    for copy in now.copies:
        state = f"{copy.stage}{', standby' if copy.standby else ''}" if copy.alive else "dead"
        what = f"copy of {copy.name} version {copy.version}"
        problem = f": {copy.problem}" if copy.problem else ""
        say(f"{what}: process {copy.pid} {state}, {copy.lag_seq} behind{problem}")
    say(f"policy: {now.mode}, `nemesis policy explain`")
    for line in now.attention:
        say(line)
