"""The log as its writers and its position keepers see it: publish, commit, read back.

A commit is one atomic batch of JetStream (2.12; ADR-50): nothing of it is visible before all of it
is stored, and each message may say which sequence its subject must have ended with. After
LogUnavailableError nobody knows whether it was stored: the same again, guarded by that expected
sequence, is safe; a new try has a new batch id because ids are not reused by the server.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

import msgspec
from nats.aio.msg import Msg
from nats.nuid import NUID

from nemesis.schemas.errors import BadNameError
from nemesis.schemas.facts import Record, split_subject
from nemesis.schemas.registry import EVENTS, TELEMETRY
from nemesis.streams.connection import REQUEST_TIMEOUT_S, Connection, Login
from nemesis.streams.errors import (
    LogFullError,
    LogUnavailableError,
    PositionMovedError,
    UndeliverableError,
)

STREAM: Final = "NEMESIS"
BATCH_MESSAGES_MAX: Final = 1000  # the server's limit for an atomic batch (ADR-50)
SNAPSHOT_TTL_S: Final = 7 * 24 * 3600

# nats-server/server/errors.json
_MOVED: Final = frozenset({10071, 10164, 10201})  # wrong last sequence (two of them), known id
_FULL: Final = frozenset({10023, 10028, 10047})  # insufficient memory or storage
_STORE_FAILED: Final = 10077  # "maximum bytes exceeded", or whatever the file system said
_AGAIN: Final = frozenset({10008, 10167, 10176, 10210, 10211})  # busy, or the batch was cut off


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message for the log."""

    subject: str
    payload: bytes
    expected_last_subject_seq: int | None = None
    """Refuse unless this is the last sequence of the subject; 0: unless it has none."""
    ttl_s: int | Literal["never"] | None = None
    """How long it is kept; None: what its kind says."""


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """What the log holds."""

    first_seq: int
    last_seq: int
    messages_count: int
    used_bytes: int
    limit_bytes: int
    """-1: no limit."""
    last_stored_ns: int


class _ApiError(msgspec.Struct):
    code: int = 0
    err_code: int = 0
    description: str = ""


class _Answer(msgspec.Struct):
    seq: int = 0
    error: _ApiError | None = None


class _State(msgspec.Struct):
    messages: int
    bytes: int
    first_seq: int
    last_seq: int
    last_ts: str


class _Config(msgspec.Struct):
    max_bytes: int = -1


class _StreamInfo(msgspec.Struct):
    state: _State | None = None
    config: _Config = msgspec.field(default_factory=_Config)
    error: _ApiError | None = None


_answers: Final = msgspec.json.Decoder(_Answer)
_infos: Final = msgspec.json.Decoder(_StreamInfo)


class Log:
    """One log through one connection. Not for use from several event loops."""

    def __init__(self, connection: Connection, *, stream: str = STREAM) -> None:
        self.connection: Final = connection
        self.stream: Final = stream
        self._batch_prefix: Final = NUID().next().decode()
        self._batches = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection."""
        await self.connection.close()

    async def publish(
        self,
        subject: str,
        payload: bytes,
        *,
        expected_last_subject_seq: int | None = None,
        ttl_s: int | Literal["never"] | None = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> int:
        """Append one message; its sequence once it is stored.

        Raises:
            PositionMovedError: the subject's last sequence is not the expected one.
            LogUnavailableError: the outcome is unknown, try the same again.
            LogFullError: at the byte limit.
            UndeliverableError: will never be taken.
        """
        message = Message(
            subject=subject,
            payload=payload,
            expected_last_subject_seq=expected_last_subject_seq,
            ttl_s=ttl_s,
        )
        _check_subject(subject)
        answer = await self.connection.request(
            subject, payload, headers=_headers(message), timeout_s=timeout_s
        )
        return _stored_seq(answer, subject)

    async def commit(
        self, messages: Sequence[Message], *, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> int:
        """Append all messages or none, in a row; the sequence of the last one.

        Raises: as `publish`.
        """
        if not 0 < len(messages) <= BATCH_MESSAGES_MAX:
            raise UndeliverableError(
                f"a batch of {len(messages)} messages, the log takes 1 to {BATCH_MESSAGES_MAX}"
            )
        for message in messages:
            _check_subject(message.subject)
        if len(messages) == 1:  # a batch costs 3 ms, a message 0.4
            answer = await self.connection.request(
                messages[0].subject,
                messages[0].payload,
                headers=_headers(messages[0]),
                timeout_s=timeout_s,
            )
            return _stored_seq(answer, messages[0].subject)
        self._batches += 1
        batch = {"Nats-Batch-Id": f"{self._batch_prefix}{self._batches}"}
        *head, last = messages
        for number, message in enumerate(head, 1):
            headers = _headers(message) | batch | {"Nats-Batch-Sequence": str(number)}
            await self.connection.publish(message.subject, message.payload, headers=headers)
        answer = await self.connection.request(
            last.subject,
            last.payload,
            headers=_headers(last)
            | batch
            | {"Nats-Batch-Sequence": str(len(messages)), "Nats-Batch-Commit": "1"},
            timeout_s=timeout_s,
            also={message.subject for message in head},
        )
        return _stored_seq(answer, last.subject)

    async def last(self, subject: str) -> Record | None:
        """The newest message of a subject, or None."""
        answer = await self.connection.request(f"$JS.API.DIRECT.GET.{self.stream}.{subject}")
        return _direct(answer, self.stream)

    async def get(self, seq: int) -> Record | None:
        """The message with this sequence, or None where it expired or never was."""
        answer = await self.connection.request(
            f"$JS.API.DIRECT.GET.{self.stream}", b'{"seq":%d}' % seq
        )
        record = _direct(answer, self.stream)
        return record if record is not None and record.seq == seq else None

    async def bounds(self) -> Bounds:
        """What the log holds now.

        Raises:
            LogUnavailableError: no answer, or no such stream.
        """
        answer = await self.connection.request(f"$JS.API.STREAM.INFO.{self.stream}")
        info = _infos.decode(answer.data)
        if info.state is None:
            why = info.error.description if info.error else "no state"
            raise LogUnavailableError(f"stream {self.stream}: {why}")
        return Bounds(
            first_seq=info.state.first_seq,
            last_seq=info.state.last_seq,
            messages_count=info.state.messages,
            used_bytes=info.state.bytes,
            limit_bytes=info.config.max_bytes,
            last_stored_ns=parse_time_ns(info.state.last_ts),
        )


async def connect(
    url: str,
    *,
    name: str,
    seed_path: Path | None = None,
    creds_path: Path | None = None,
    timeout_s: float = 10.0,
) -> Log:
    """The log at `url`, signed in with a seed (its file name is the user) or a credentials file.

    Raises:
        WrongCredentialsError: the server refuses the sign-in.
        LogUnavailableError: no server answers within timeout_s.
    """
    path = seed_path or creds_path
    login = Login(path.stem if path else name, seed_path=seed_path, creds_path=creds_path)
    return Log(await Connection.open(url, login, name=name, timeout_s=timeout_s))


def ttl_of(subject: str) -> int | Literal["never"] | None:
    """How long a message of this subject is kept: seconds, for ever, or by the stream's max_age.

    Raises:
        BadNameError: not a subject of the log.
    """
    space, token, _ = split_subject(subject)
    if space == "cursor":
        return SNAPSHOT_TTL_S if token == "snapshot" else "never"
    kind = (TELEMETRY if space == "telemetry" else EVENTS).get(token)
    # an unknown event is a newer release's: keep it, as all of today's are kept
    kept = kind.kept_for_ever if kind else space == "events"
    return "never" if kept else None


def parse_time_ns(text: str) -> int:
    """RFC 3339 with up to nine digits of a second, in UTC, as nanoseconds since 1970."""
    whole, _, fraction = text.removesuffix("Z").partition(".")
    moment = datetime.strptime(whole, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC)
    second = int(moment.timestamp())
    # Go's zero time (year 1) stands for "nothing yet"
    return max(0, second * 1_000_000_000 + int(fraction.ljust(9, "0")))


def _check_subject(subject: str) -> None:
    try:
        split_subject(subject)
    except BadNameError as error:
        # the server would ignore it and the batch would look cut off, for ever
        raise UndeliverableError(error.message) from error


def _headers(message: Message) -> dict[str, str]:
    headers: dict[str, str] = {}
    ttl = message.ttl_s if message.ttl_s is not None else ttl_of(message.subject)
    if ttl is not None:
        headers["Nats-TTL"] = ttl if ttl == "never" else f"{ttl}s"
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


def _direct(answer: Msg, stream: str) -> Record | None:
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
