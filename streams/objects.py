"""Large things by their hash: dumps, states, closed incidents, in JetStream object stores.

The layout is that of NATS object stores (ADR-20), so `nats object get` reads them; but a store is
append-only: an object is one atomic batch of chunks and its listing, written once and never
replaced. Chunks lie under their owner's token, which the server checks; whoever reads checks the
hash, so a wrong or half object is never handed out.
"""

import base64
from contextlib import suppress
from hashlib import sha256
from typing import Final

import msgspec

from nemesis.schemas.facts import Record
from nemesis.streams.batch import Message, read_back, write
from nemesis.streams.connection import Connection
from nemesis.streams.errors import PositionMovedError, UndeliverableError

CHUNK_BYTES: Final = 512 * 1024  # half of the payload limit; ADR-20's own 128 KiB is slower
OBJECT_BYTES_MAX: Final = 256 * 2**20
PUT_TIMEOUT_S: Final = 30.0


class _Listing(msgspec.Struct):
    """An object's entry (ADR-20)."""

    name: str
    bucket: str
    nuid: str
    size: int
    chunks: int
    digest: str


class ObjectStore:
    """One bucket, as one owner writes it and anybody reads it."""

    def __init__(self, connection: Connection, bucket: str, *, owner: str = "") -> None:
        self.bucket: Final = bucket
        self.owner: Final = owner or connection.user
        self._connection: Final = connection

    async def put(self, data: bytes, *, name: str = "") -> str:
        """Keep these bytes; keeping them again changes nothing. Their SHA-256.

        `name`: how people find it, where the hash is not enough.

        Raises:
            UndeliverableError: larger than OBJECT_BYTES_MAX, or not permitted.
            LogFullError: the store is at its byte limit.
            LogUnavailableError: outcome unknown, try the same again.
        """
        if len(data) > OBJECT_BYTES_MAX:
            raise UndeliverableError(
                f"an object of {len(data)} bytes, {self.bucket} takes {OBJECT_BYTES_MAX}"
            )
        digest = sha256(data)
        key = digest.hexdigest()
        chunks = [data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES)] or [b""]
        listing = _Listing(
            name=name or f"{self.owner}/{key}",
            bucket=self.bucket,
            nuid=f"{self.owner}.{key}",
            size=len(data),
            chunks=len(chunks),
            digest=f"SHA-256={base64.urlsafe_b64encode(digest.digest()).decode()}",
        )
        subject = f"$O.{self.bucket}.C.{self.owner}.{key}"
        messages = [Message(subject=subject, payload=chunk) for chunk in chunks]
        messages[0] = Message(subject=subject, payload=chunks[0], expected_last_subject_seq=0)
        listed = f"$O.{self.bucket}.M.{_encoded(listing.name)}"
        messages.append(Message(subject=listed, payload=msgspec.json.encode(listing)))
        with suppress(PositionMovedError):  # then it is there, whole
            await write(self._connection, messages, timeout_s=PUT_TIMEOUT_S)
        return key

    async def get(self, key: str) -> bytes | None:
        """The bytes with this SHA-256, whoever wrote them; None where nobody did, or not these."""
        subject = f"$O.{self.bucket}.C.*.{key}"
        found: dict[str, list[bytes]] = {}
        seq = 1
        while (record := await self._read(seq=seq, next_by_subj=subject)) is not None:
            found.setdefault(record.subject, []).append(record.payload)
            seq = record.seq + 1
        for chunks in found.values():
            data = b"".join(chunks)
            if sha256(data).hexdigest() == key:
                return data
        return None

    async def find(self, name: str) -> str | None:
        """The SHA-256 of the object that was put under this name last."""
        record = await self._read(subject=f"$O.{self.bucket}.M.{_encoded(name)}")
        if record is None:
            return None
        return msgspec.json.decode(record.payload, type=_Listing).nuid.rpartition(".")[2]

    async def _read(self, *, subject: str = "", **query: object) -> Record | None:
        return await read_back(self._connection, f"OBJ_{self.bucket}", subject=subject, **query)


def _encoded(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode()
