"""The log as its writers and readers see it: publish, commit, read back, follow.

After LogUnavailableError nobody knows whether something was stored. Guarded by the expected last
sequence of its subject, the same again is safe: it is refused if it had been stored.
"""

from collections.abc import AsyncIterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final, Self

import msgspec

from nemesis.schemas.errors import BadNameError
from nemesis.schemas.facts import Record, split_subject
from nemesis.schemas.registry import EVENTS, TELEMETRY
from nemesis.streams.batch import Message, TtlS, parse_time_ns, read_back, write
from nemesis.streams.connection import CONNECT_TIMEOUT_S, REQUEST_TIMEOUT_S, Connection, Login
from nemesis.streams.errors import LogUnavailableError, UndeliverableError
from nemesis.streams.objects import ObjectStore
from nemesis.streams.permissions import BLOBS, INCIDENTS, STATE, STREAM
from nemesis.streams.reader import Reader

TELEMETRY_TTL_S: Final = 24 * 3600
SNAPSHOT_TTL_S: Final = 7 * 24 * 3600
RANGE_LOOK_S: Final = 1.0  # the log may have become shorter while it is read


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """What the log holds."""

    first_seq: int
    last_seq: int
    messages_count: int
    used_bytes: int
    limit_bytes: int
    """-1: no limit."""
    last_stored_ns: int


class _State(msgspec.Struct):
    messages: int
    bytes: int
    first_seq: int
    last_seq: int
    last_ts: str


class _Config(msgspec.Struct):
    max_bytes: int = -1


class _ApiError(msgspec.Struct):
    description: str = ""


class _StreamInfo(msgspec.Struct):
    state: _State | None = None
    config: _Config = msgspec.field(default_factory=_Config)
    error: _ApiError | None = None


_infos: Final = msgspec.json.Decoder(_StreamInfo)


class Log:
    """One log through one connection. Not for use from several event loops."""

    def __init__(self, connection: Connection, *, stream: str = STREAM) -> None:
        self.connection: Final = connection
        self.stream: Final = stream
        self.blobs: Final = ObjectStore(connection, BLOBS)
        self.states: Final = ObjectStore(connection, STATE)
        self.incidents: Final = ObjectStore(connection, INCIDENTS)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection."""
        await self.connection.close()

    def is_connected(self) -> bool:
        """Whether the server can be reached now."""
        return self.connection.client.is_connected

    @property
    def lost_count(self) -> int:
        """How often the connection broke."""
        return self.connection.lost_count

    async def publish(
        self,
        subject: str,
        payload: bytes,
        *,
        expected_last_subject_seq: int | None = None,
        ttl_s: TtlS = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> int:
        """Append one message; its sequence once it is stored.

        Raises: as `commit`.
        """
        message = Message(
            subject=subject,
            payload=payload,
            expected_last_subject_seq=expected_last_subject_seq,
            ttl_s=ttl_s,
        )
        return await self.commit([message], timeout_s=timeout_s)

    async def commit(
        self, messages: Sequence[Message], *, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> int:
        """Append all messages or none, in a row; the sequence of the last one.

        Raises:
            PositionMovedError: the last sequence of a subject is not the expected one.
            LogUnavailableError: the outcome is unknown, try the same again.
            LogFullError: at the byte limit, or the disk is full.
            UndeliverableError: will never be taken: too large, not a subject, not ours to write.
        """
        for message in messages:
            try:
                split_subject(message.subject)
            except BadNameError as error:
                # no stream would take it and the batch would look cut off, for ever
                raise UndeliverableError(error.message) from error
        return await write(self.connection, messages, ttl_of=ttl_of, timeout_s=timeout_s)

    async def last(self, subject: str, *, up_to_seq: int = 0) -> Record | None:
        """The newest message of a subject, or the newest up to a sequence; None: there is none."""
        if up_to_seq > 0:
            return await read_back(
                self.connection, self.stream, multi_last=[subject], up_to_seq=up_to_seq
            )
        return await read_back(self.connection, self.stream, subject=subject)

    async def get(self, seq: int) -> Record | None:
        """The message with this sequence, or None where it expired or never was."""
        if seq < 1:
            return None
        record = await read_back(self.connection, self.stream, seq=seq)
        return record if record is not None and record.seq == seq else None

    def reader(self, start_seq: int, *, subject: str = "") -> Reader:
        """A reader of everything from start_seq on, or of one subject: `async with`."""
        return Reader(self.connection, self.stream, start_seq, subject=subject)

    async def read_range(
        self, from_seq: int, to_seq: int, *, subject: str = ""
    ) -> AsyncIterator[Record]:
        """Every record that still exists between two sequences, both included."""
        to_seq = min(to_seq, (await self.bounds()).last_seq)
        if from_seq > to_seq:
            return
        async with self.reader(from_seq, subject=subject) as reader:
            await reader.start()
            while reader.last_seq < to_seq and reader.pending_count:
                for record in await reader.next(RANGE_LOOK_S):
                    if record.seq > to_seq:
                        return
                    yield record

    async def follow(self, from_seq: int, *, subject: str = "") -> AsyncIterator[Record]:
        """Every record of a subject from a sequence on, as it comes."""
        async with self.reader(from_seq, subject=subject) as reader:
            async for records in reader:
                for record in records:
                    yield record

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
    timeout_s: float = CONNECT_TIMEOUT_S,
) -> Log:
    """The log at `url`, signed in with a seed (its file name is the user) or a credentials file.

    Raises:
        WrongCredentialsError: the server refuses the sign-in.
        LogUnavailableError: no server answers within timeout_s.
    """
    path = seed_path or creds_path
    login = Login(path.stem if path else name, seed_path=seed_path, creds_path=creds_path)
    return Log(await Connection.open(url, login, name=name, timeout_s=timeout_s))


@lru_cache(maxsize=65_536)
def ttl_of(subject: str) -> TtlS:
    """How long a message of this subject is kept: its writer says so, by the table of facts.

    Raises:
        BadNameError: not a subject of the log.
    """
    space, token, _ = split_subject(subject)
    if space == "cursor":
        return SNAPSHOT_TTL_S if token == "snapshot" else "never"
    kind = (TELEMETRY if space == "telemetry" else EVENTS).get(token)
    # an unknown event is a newer release's: keep it, as all of today's are kept
    kept = kind.kept_for_ever if kind else space == "events"
    return "never" if kept else TELEMETRY_TTL_S


__all__ = ["Bounds", "Log", "Message", "connect", "ttl_of"]
