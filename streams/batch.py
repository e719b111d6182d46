"""Writing to a stream and reading single messages back, as the wire has it.

An atomic batch (JetStream 2.12, ADR-50) is stored whole or not at all, and each of its messages
may say which sequence its subject must have ended with. The server answers the last message only:
whatever was wrong with an earlier one shows as "incomplete", so subjects are checked before.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal

import msgspec
from nats.aio.msg import Msg

from nemesis.schemas.facts import Record
from nemesis.streams.connection import REQUEST_TIMEOUT_S, Connection
from nemesis.streams.errors import (
    LogFullError,
    LogUnavailableError,
    PositionMovedError,
    UndeliverableError,
)

BATCH_MESSAGES_MAX: Final = 1000  # the server's limit for an atomic batch (ADR-50)

# nats-server/server/errors.json
_MOVED: Final = frozenset({10071, 10164, 10201})  # wrong last sequence (two of them), known id
_FULL: Final = frozenset({10023, 10028, 10047})  # insufficient memory or storage
_STORE_FAILED: Final = 10077  # "maximum bytes exceeded", or whatever the file system said
_AGAIN: Final = frozenset({10008, 10167, 10176, 10210, 10211})  # busy, or the batch was cut off

TtlS = int | Literal["never"] | None
"""How long a message is kept: seconds, for ever, or None: as long as the stream keeps things."""


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message for a stream."""

    subject: str
    payload: bytes
    expected_last_subject_seq: int | None = None
    """Refuse unless this is the last sequence of the subject; 0: unless it has none."""
    ttl_s: TtlS = None
    """None: what its subject says."""


class _ApiError(msgspec.Struct):
    code: int = 0
    err_code: int = 0
    description: str = ""


class _Answer(msgspec.Struct):
    seq: int = 0
    error: _ApiError | None = None


_answers: Final = msgspec.json.Decoder(_Answer)


def _no_ttl(subject: str) -> TtlS:
    return None


async def write(
    connection: Connection,
    messages: Sequence[Message],
    *,
    ttl_of: Callable[[str], TtlS] = _no_ttl,
    timeout_s: float = REQUEST_TIMEOUT_S,
) -> int:
    """Append all messages or none, in a row; the sequence of the last one.

    Raises:
        PositionMovedError: the last sequence of a subject is not the expected one.
        LogUnavailableError: the outcome is unknown, try the same again.
        LogFullError: at the byte limit, or the disk is full.
        UndeliverableError: will never be taken.
    """
    if not 0 < len(messages) <= BATCH_MESSAGES_MAX:
        raise UndeliverableError(
            f"a batch of {len(messages)} messages, the log takes 1 to {BATCH_MESSAGES_MAX}"
        )
    *head, last = messages
    batch: dict[str, str] = {}
    end: dict[str, str] = {}
    if head:  # a batch costs 3 ms, a message 0.4
        batch = {"Nats-Batch-Id": connection.new_id()}  # never reused, also not by a retry
        end = {"Nats-Batch-Sequence": str(len(messages)), "Nats-Batch-Commit": "1"}
    for number, message in enumerate(head, 1):
        headers = _headers(message, ttl_of) | batch
        headers["Nats-Batch-Sequence"] = str(number)
        await connection.publish(message.subject, message.payload, headers=headers)
    answer = await connection.request(
        last.subject,
        last.payload,
        headers=_headers(last, ttl_of) | batch | end,
        timeout_s=timeout_s,
        also={message.subject for message in head},
    )
    return _stored_seq(answer, last.subject)


async def read_back(
    connection: Connection, stream: str, *, subject: str = "", **query: object
) -> Record | None:
    """One message by direct get: the last of a subject, or what a query such as `seq=7` finds.

    Raises:
        LogUnavailableError: no answer.
    """
    where = f"$JS.API.DIRECT.GET.{stream}"
    answer = (
        await connection.request(f"{where}.{subject}")
        if subject
        else await connection.request(where, msgspec.json.encode(query))
    )
    headers: dict[str, Any] = answer.headers or {}
    if status := headers.get("Status"):
        if status == "404":
            return None
        raise LogUnavailableError(f"{stream}: {status} {headers.get('Description', '')}")
    return Record(
        seq=int(headers["Nats-Sequence"]),
        subject=headers["Nats-Subject"],
        stored_ns=parse_time_ns(headers["Nats-Time-Stamp"]),
        payload=answer.data,
    )


def parse_time_ns(text: str) -> int:
    """RFC 3339 with up to nine digits of a second, in UTC, as nanoseconds since 1970."""
    whole, _, fraction = text.removesuffix("Z").partition(".")
    moment = datetime.strptime(whole, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC)
    # Go's zero time (year 1) stands for "nothing yet"
    return max(0, int(moment.timestamp()) * 1_000_000_000 + int(fraction.ljust(9, "0")))


def _headers(message: Message, ttl_of: Callable[[str], TtlS]) -> dict[str, str]:
    headers: dict[str, str] = {}
    ttl_s = message.ttl_s if message.ttl_s is not None else ttl_of(message.subject)
    if ttl_s is not None:
        headers["Nats-TTL"] = f"{ttl_s}s" if isinstance(ttl_s, int) else ttl_s
    if message.expected_last_subject_seq is not None:
        headers["Nats-Expected-Last-Subject-Sequence"] = str(message.expected_last_subject_seq)
    return headers


def _stored_seq(answer: Msg, subject: str) -> int:
    ack = _answers.decode(answer.data)
    if ack.error is None:
        return ack.seq
    what = f"{subject}: {ack.error.description} ({ack.error.err_code})"
    code = ack.error.err_code
    if code in _MOVED:
        raise PositionMovedError(what)
    if code in _FULL or code == _STORE_FAILED:
        raise LogFullError(what, hint="raise the log's byte limit or free its disk")
    if code in _AGAIN or ack.error.code >= 500:
        raise LogUnavailableError(what)
    raise UndeliverableError(what)
