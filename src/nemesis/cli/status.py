"""`nemesis status`: where the log and every processor stand, once."""

import os
import time
from typing import TYPE_CHECKING, Any

import msgspec

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

if TYPE_CHECKING:
    from nemesis.streams.log import Log


class Standing(msgspec.Struct, kw_only=True):
    """Where a processor stands."""

    name: str
    version: int
    in_seq: int
    lag_seq: int
    """Of the living copy here that has read furthest; of the position where none lives here."""
    lag_ns: int
    """The same as time, from log time there to that of the last tick."""


class Copy(msgspec.Struct, kw_only=True):
    """What one copy of a processor on this machine last said of itself."""

    name: str
    version: int
    pid: int
    alive: bool
    stage: str
    """reading, waiting for its version to be activated, or handing over."""
    standby: bool
    """Another copy writes."""
    lag_seq: int
    problem: str
    """Why it does not answer although it should."""
    log_time_ns: int
    """Of the last tick that it read."""


class Status(msgspec.Struct, kw_only=True):
    """Where a log stands."""

    cell: str
    first_seq: int
    last_seq: int
    used_bytes: int
    limit_bytes: int
    fill_ppm: int
    log_time_ns: int
    clock_age_ns: int | None
    """Since the last tick was stored, by this machine's clock; None where there was none."""
    clock_behind_ns: int
    """How far the last tick lies behind log time, which stands still for as long."""
    processors: list[Standing]
    copies: list[Copy]
    mode: str = "shadow"
    """The policy's: shadow, approve or act."""
    attention: list[str] = []
    """What a person must know: decisions that wait, limits that tripped, pauses, protections."""


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


async def measure(log: "Log", cell: str) -> Status:
    """Where a log and its processors stand, as the log tells it."""
    from nemesis.schemas.facts import decode_observation
    from nemesis.schemas.tokens import name_of
    from nemesis.streams.lookup import subjects
    from nemesis.streams.position import position_of
    from nemesis.streams.ticker import TICK_SUBJECT

    standings: list[Standing] = []
    cursors = await subjects(log, "nemesis.cursor.*")
    positions = {subject: position_of(await log.last(subject)) for subject in cursors}
    tick = await log.last(TICK_SUBJECT)  # later than any that they had seen
    tick_ns = decode_observation("tick", tick.payload).at_ns if tick is not None else 0
    log_time_ns = max([tick_ns, *(each.log_time_ns for each in positions.values())])
    bounds = await log.bounds()
    for subject, position in positions.items():
        standings.append(
            Standing(
                name=name_of(subject.rpartition(".")[2]),
                version=position.version,
                in_seq=position.in_seq,
                lag_seq=max(0, bounds.last_seq - position.in_seq),
                lag_ns=max(0, log_time_ns - position.log_time_ns),
            )
        )
    limit = bounds.limit_bytes
    return Status(
        cell=cell,
        first_seq=bounds.first_seq,
        last_seq=bounds.last_seq,
        used_bytes=bounds.used_bytes,
        limit_bytes=limit,
        fill_ppm=bounds.used_bytes * 1_000_000 // limit if limit > 0 else 0,
        log_time_ns=log_time_ns,
        clock_age_ns=time.time_ns() - tick.stored_ns if tick is not None else None,
        clock_behind_ns=log_time_ns - tick_ns,
        processors=standings,
        copies=[],
    )


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
