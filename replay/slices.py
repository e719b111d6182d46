"""Which sequences a person means: a time, a stretch of time, an incident."""

import re
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Final

import msgspec

from nemesis.schemas.errors import NemesisError
from nemesis.schemas.facts import Record
from nemesis.schemas.kept import ProcessorAdvanced
from nemesis.schemas.tokens import name_of
from nemesis.streams.log import Log
from nemesis.streams.lookup import first_since, next_from, subjects

END_SEQ: Final = 2**62
"""Whatever the log's last one is."""
_UNITS_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_positions: Final = msgspec.msgpack.Decoder(ProcessorAdvanced)
_AGO: Final = re.compile(r"(\d+(?:\.\d+)?)([smhd])\Z")


class BadTimeError(NemesisError):
    """A time that is neither an age nor RFC 3339."""

    exit_code = 2


def parse_time_ns(text: str, now_ns: int) -> int:
    """`10m` (ago) or `2026-11-30T05:00:00Z`, in nanoseconds since 1970.

    Raises:
        BadTimeError: neither.
    """
    if match := _AGO.match(text):
        return now_ns - int(min(float(match[1]) * _UNITS_S[match[2]] * 1e9, now_ns))
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise BadTimeError(
            f"not a time: {text[:40]!r}", hint="say 10m, 2h, 1d or 2026-11-30T05:00:00Z"
        ) from error
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return int(at.timestamp() * 1_000_000) * 1000


async def seq_since(log: Log, text: str) -> int:
    """The first sequence at or after a time; behind the log's end where there is none."""
    record = await first_since(log, parse_time_ns(text, time.time_ns()))
    return record.seq if record is not None else (await log.bounds()).last_seq + 1


async def slice_of_times(log: Log, since: str, until: str) -> tuple[int, int]:
    """First and last sequence of a stretch of time; an end that is not given is the log's."""
    first = await seq_since(log, since) if since else max(1, (await log.bounds()).first_seq)
    return first, await seq_since(log, until) - 1 if until else END_SEQ


async def answered_after(log: Log, seq: int) -> int:
    """The sequence at which every processor's position has passed `seq`, as far as it has."""
    last = seq
    for subject in await subjects(log, "nemesis.cursor.*"):
        position = await next_from(log, subject, seq + 1)
        while position is not None:
            last = max(last, position.seq)
            if _positions.decode(position.payload).in_seq >= seq:
                break
            position = await next_from(log, subject, position.seq + 1)
    return last


async def unanswered(log: Log, seq: int) -> list[str]:
    """Processors whose position has not passed `seq`."""
    names = []
    for subject in await subjects(log, "nemesis.cursor.*"):
        position = await log.last(subject)
        if position is not None and _positions.decode(position.payload).in_seq < seq:
            names.append(name_of(subject.rpartition(".")[2]))
    return names


async def matching(log: Log, subject: str, from_seq: int = 1) -> AsyncIterator[Record]:
    """What the log holds of a subject now, from a sequence on."""
    last_seq = (await log.bounds()).last_seq
    async with log.reader(from_seq, subject=subject) as reader:
        await reader.start()
        while reader.last_seq < last_seq and reader.pending_count:
            for record in await reader.next():
                yield record
