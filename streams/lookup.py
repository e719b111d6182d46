"""Finding places in the log: by time, by subject. For people's questions."""

from typing import Any, Final

import msgspec

from nemesis.schemas.envelope import rfc3339
from nemesis.schemas.facts import Record
from nemesis.streams.batch import read_back
from nemesis.streams.errors import LogUnavailableError
from nemesis.streams.log import Log

_NS_PER_MS: Final = 1_000_000


async def next_from(log: Log, subject: str, seq: int) -> Record | None:
    """The first message of a subject (or a pattern) at or after a sequence."""
    return await read_back(log.connection, log.stream, seq=seq, next_by_subj=subject)


async def first_since(log: Log, at_ns: int) -> Record | None:
    """The first message stored at this time or later, to the millisecond."""
    at = rfc3339(at_ns - at_ns % _NS_PER_MS)
    return await read_back(
        log.connection, log.stream, batch=1, start_time=at, next_by_subj="nemesis.>"
    )


async def subjects(log: Log, pattern: str) -> dict[str, int]:
    """Subjects that match, each with how many messages it has."""
    answer = await log.connection.request(
        f"$JS.API.STREAM.INFO.{log.stream}", msgspec.json.encode({"subjects_filter": pattern})
    )
    info: dict[str, Any] = msgspec.json.decode(answer.data)
    if "state" not in info:
        raise LogUnavailableError(f"stream {log.stream}: {info.get('error')}")
    return dict(sorted((info["state"].get("subjects") or {}).items()))
