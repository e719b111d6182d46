"""Large things by their hash: dumps, states, closed incidents, in JetStream object stores.

The layout is that of NATS object stores (ADR-20), so `nats object get` reads them; but a store is
append-only: an object is one atomic batch of chunks and its listing, written once and never
replaced. Chunks lie under their owner's token, which the server checks; whoever reads checks the
hash, so a wrong or half object is never handed out.
"""

import base64
import hashlib
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import IO, Final

import msgspec

from nemesis.schemas.facts import Record
from nemesis.streams.batch import Message, read_back, write
from nemesis.streams.connection import Connection
from nemesis.streams.errors import (
    DamagedObjectError,
    MissingObjectError,
    PositionMovedError,
    UndeliverableError,
)

CHUNK_BYTES: Final = 512 * 1024  # half of the payload limit; ADR-20's own 128 KiB is slower
OBJECT_BYTES_MAX: Final = 256 * 2**20
BATCH_CHUNKS: Final = 16  # 8 MiB in hand, however large a file is
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
        key = sha256(data).hexdigest()
        chunks = [data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES)] or [b""]
        messages = self._chunks(key, chunks, after_seq=0)
        messages.append(self._listed(key, len(data), name))
        with suppress(PositionMovedError):  # then it is there, whole
            await write(self._connection, messages, timeout_s=PUT_TIMEOUT_S)
        return key

    async def put_file(self, path: Path, *, name: str = "") -> str:
        """Keep the bytes of a file of any size, a few at a time. Their SHA-256.

        Killed on the way, the next call with the same bytes goes on behind what is there; of two
        writers at once each adds what the other has not.

        Raises: as `put`, and OSError where the file cannot be read.
        """
        with path.open("rb") as file:
            key = hashlib.file_digest(file, "sha256").hexdigest()
            size = file.tell()
            total = max(1, -(-size // CHUNK_BYTES))
            while True:
                done, after_seq = await self._stored(key)
                if done >= total:
                    await self._list(key, size, name)
                    return key
                file.seek(done * CHUNK_BYTES)
                with suppress(PositionMovedError):  # another writer of the same: look again
                    while done < total:
                        count = min(BATCH_CHUNKS, total - done)
                        chunks = [file.read(CHUNK_BYTES) for _ in range(count)]
                        messages = self._chunks(key, chunks, after_seq=after_seq)
                        after_seq = await write(self._connection, messages, timeout_s=PUT_TIMEOUT_S)
                        done += count

    async def copy(self, key: str, to: IO[bytes]) -> None:
        """Write the bytes that this owner keeps under a SHA-256 into a file, a chunk at a time.

        Raises:
            MissingObjectError: there is nothing under it.
            DamagedObjectError: what is there are not these bytes; some of them are written.
        """
        digest = sha256()
        subject = self._subject(key)
        record = await self._read(seq=1, next_by_subj=subject)
        if record is None:
            raise MissingObjectError(f"{self.bucket} holds no object {key} of {self.owner}")
        while record is not None:
            digest.update(record.payload)
            to.write(record.payload)
            record = await self._read(seq=record.seq + 1, next_by_subj=subject)
        if digest.hexdigest() != key:
            raise DamagedObjectError(
                f"{self.bucket}: object {key} of {self.owner} has the hash {digest.hexdigest()}",
                hint="it was cut short or changed; restore the store from a backup",
            )

    def _subject(self, key: str) -> str:
        return f"$O.{self.bucket}.C.{self.owner}.{key}"

    def _chunks(self, key: str, chunks: list[bytes], *, after_seq: int) -> list[Message]:
        subject = self._subject(key)
        first = Message(subject=subject, payload=chunks[0], expected_last_subject_seq=after_seq)
        return [first, *(Message(subject=subject, payload=chunk) for chunk in chunks[1:])]

    def _listed(self, key: str, size: int, name: str) -> Message:
        listing = _Listing(
            name=name or f"{self.owner}/{key}",
            bucket=self.bucket,
            nuid=f"{self.owner}.{key}",
            size=size,
            chunks=max(1, -(-size // CHUNK_BYTES)),
            digest=f"SHA-256={base64.urlsafe_b64encode(bytes.fromhex(key)).decode()}",
        )
        subject = f"$O.{self.bucket}.M.{_encoded(listing.name)}"
        return Message(subject=subject, payload=msgspec.json.encode(listing))

    async def _list(self, key: str, size: int, name: str) -> None:
        """Enter a file's name, unless another writer of the same has entered it meanwhile."""
        message = self._listed(key, size, name)
        last = await self._read(subject=message.subject)
        if last is None or _key_in(last) != key:
            once = msgspec.structs.replace(
                message, expected_last_subject_seq=last.seq if last is not None else 0
            )
            with suppress(PositionMovedError):
                await write(self._connection, [once])

    async def _stored(self, key: str) -> tuple[int, int]:
        """How many chunks are there, and the sequence of the last one."""
        subject = self._subject(key)
        if await self._read(subject=subject) is None:
            return 0, 0
        count = seq = 0
        while (record := await self._read(seq=seq + 1, next_by_subj=subject)) is not None:
            count, seq = count + 1, record.seq
        return count, seq

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
        return _key_in(record)

    async def _read(self, *, subject: str = "", **query: object) -> Record | None:
        return await read_back(self._connection, f"OBJ_{self.bucket}", subject=subject, **query)


def _key_in(listed: Record) -> str:
    return msgspec.json.decode(listed.payload, type=_Listing).nuid.rpartition(".")[2]


def _encoded(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode()
