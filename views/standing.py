"""Where a log and every processor stand, as the log tells it."""

import time
from typing import TYPE_CHECKING

import msgspec

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
