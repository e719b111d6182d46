"""A log in memory with JetStream's rules, and clients whose connections fail on purpose.

The rules (tried on nats-server 2.15): one sequence, nothing of a refused batch, compare-and-set on
the last sequence of a subject, holes where messages expired, and a store that can come back older.
A client loses requests before and answers after they took effect, in an order drawn from a seed.
"""

import asyncio
import random
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Sequence
from hashlib import sha256
from typing import Self

from nemesis.schemas.facts import Record
from nemesis.streams.batch import BATCH_MESSAGES_MAX, Message
from nemesis.streams.errors import (
    LogFullError,
    LogUnavailableError,
    PositionMovedError,
    UndeliverableError,
)
from nemesis.streams.log import Bounds


class MemoryLog:
    """The server's side."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.last_seq = 0
        self.boots = 0
        self.states: dict[str, bytes] = {}
        self.refuses: Callable[[Message], bool] = lambda message: False
        self.full = False
        self._lasts: dict[str, Record] = {}
        self._starts: list[int] = []
        self.torn_count = 0
        """How often the store came back with a part of a batch."""
        self.arrived = asyncio.Event()

    def append(self, *messages: Message) -> int:
        """All or none."""
        if self.full:
            raise LogFullError("maximum bytes exceeded")
        if len(messages) > BATCH_MESSAGES_MAX:
            raise UndeliverableError("a batch of too many messages")
        for message in messages:
            expected = message.expected_last_subject_seq
            if self.refuses(message):
                raise UndeliverableError(f"{message.subject} is refused")
            if expected is not None and expected != self._last_seq(message.subject):
                raise PositionMovedError(f"{message.subject}: not {expected}")
        self._starts.append(self.last_seq + 1)
        for message in messages:
            self.last_seq += 1
            stored_ns = self.boots * 10**15 + self.last_seq * 1_000
            record = Record(self.last_seq, message.subject, stored_ns, message.payload)
            self.records.append(record)
            self._lasts[message.subject] = record
        self.arrived.set()
        self.arrived = asyncio.Event()
        return self.last_seq

    def last(self, subject: str, up_to_seq: int = 0) -> Record | None:
        """The newest message of a subject, or the newest up to a sequence."""
        record = self._lasts.get(subject)
        if record is None or not up_to_seq or record.seq <= up_to_seq:
            return record
        end = bisect_right(self.records, up_to_seq, key=lambda record: record.seq)
        return next((each for each in self.records[end - 1 :: -1] if each.subject == subject), None)

    def after(self, seq: int, count: int) -> list[Record]:
        """The next records behind a sequence."""
        at = bisect_right(self.records, seq, key=lambda record: record.seq)
        return self.records[at : at + count]

    def expire(self, first_seq: int, last_seq: int) -> None:
        """Telemetry in this range is gone."""
        self.records = [
            each
            for each in self.records
            if not first_seq <= each.seq <= last_seq
            or not each.subject.startswith("nemesis.telemetry.")
        ]

    def inside_a_batch(self, seq: int) -> bool:
        """Whether a log that ends here ends with a part of a batch."""
        return seq + 1 not in self._starts and seq < self.last_seq

    def roll_back(self, last_seq: int) -> None:
        """Come back from a restart with an older store, whatever its last message is."""
        self.torn_count += self.inside_a_batch(last_seq)
        self.boots += 1
        self.records = [each for each in self.records if each.seq <= last_seq]
        self._lasts = {each.subject: each for each in self.records}
        self.last_seq = last_seq
        self._starts = [start for start in self._starts if start <= last_seq]

    def _last_seq(self, subject: str) -> int:
        record = self.last(subject)
        return record.seq if record else 0


class Faults:
    """How often what goes wrong, per thousand; drawn from one seed."""

    def __init__(self, seed: int, *, lost_per_mille: int = 0, delay_s: float = 0.005) -> None:
        self.dice = random.Random(seed)
        self.lost_per_mille = lost_per_mille
        self.delay_s = delay_s
        self.injected_count = 0

    async def pause(self) -> None:
        """A request or an answer is under way."""
        await asyncio.sleep(self.dice.random() * self.delay_s)

    def lose(self) -> bool:
        """Whether this one is lost."""
        lost = self.dice.randrange(1000) < self.lost_per_mille
        self.injected_count += lost
        return lost


class MemoryClient:
    """One connection to a MemoryLog; what it sends is on its way even if the sender dies."""

    def __init__(self, log: MemoryLog, faults: Faults) -> None:
        self._log = log
        self._faults = faults
        self._boots = log.boots
        self._broken = 0
        self._under_way: set[asyncio.Task[None]] = set()
        self.states = MemoryStates(self, log.states)

    @property
    def lost_count(self) -> int:
        return self._log.boots + self._broken

    def reader(self, start_seq: int) -> "MemoryReader":
        return MemoryReader(self._log, self._faults, start_seq)

    async def publish(
        self, subject: str, payload: bytes, *, expected_last_subject_seq: int | None = None
    ) -> int:
        message = Message(
            subject=subject,
            payload=payload,
            expected_last_subject_seq=expected_last_subject_seq,
        )
        return await self.commit([message])

    async def commit(self, messages: Sequence[Message]) -> int:
        """The batch arrives later, or never; the answer too. Whoever waits may be killed."""
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        task = asyncio.ensure_future(self._deliver(list(messages), self._log.boots, answer))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        try:
            async with asyncio.timeout(5):
                return await answer
        except TimeoutError:
            raise LogUnavailableError("no answer") from None

    async def last(self, subject: str, *, up_to_seq: int = 0) -> Record | None:
        await self.ask()
        return self._log.last(subject, up_to_seq)

    async def read_range(
        self, from_seq: int, to_seq: int, *, subject: str = ""
    ) -> AsyncIterator[Record]:
        prefix = subject.removesuffix(">")
        while from_seq <= to_seq:
            await self.ask()
            for record in self._log.after(from_seq - 1, 50):
                if record.seq <= to_seq and record.subject.startswith(prefix):
                    yield record
            from_seq += 50

    async def get(self, seq: int) -> Record | None:
        await self.ask()
        return next((each for each in self._log.after(seq - 1, 1) if each.seq == seq), None)

    async def bounds(self) -> Bounds:
        await self.ask()
        records = self._log.records
        return Bounds(
            first_seq=records[0].seq if records else 1,
            last_seq=self._log.last_seq,
            messages_count=len(records),
            used_bytes=0,
            limit_bytes=-1,
            last_stored_ns=records[-1].stored_ns if records else 0,
        )

    async def ask(self) -> None:
        """A request and its answer."""
        await self._faults.pause()
        if self._faults.lose():
            self._broken += self._faults.dice.randrange(2)
            raise LogUnavailableError("lost")

    async def _deliver(
        self, messages: list[Message], boots: int, answer: "asyncio.Future[int]"
    ) -> None:
        await self._faults.pause()
        if self._faults.lose():
            self._broken += self._faults.dice.randrange(2)
            if self._faults.dice.randrange(2):
                _tell(answer, LogUnavailableError("the connection broke"))
            return
        if self._log.boots != boots:
            _tell(answer, LogUnavailableError("the server ended"))
            return
        try:
            seq = self._log.append(*messages)
        except (PositionMovedError, UndeliverableError, LogFullError) as error:
            await self._faults.pause()
            _tell(answer, error)
            return
        if self._faults.lose():
            if self._faults.dice.randrange(2):
                _tell(answer, LogUnavailableError("the connection broke"))
            return
        await self._faults.pause()
        if not answer.done():
            answer.set_result(seq)


class MemoryStates:
    """The store of states as one client sees it."""

    def __init__(self, client: MemoryClient, states: dict[str, bytes]) -> None:
        self._client = client
        self._states = states

    async def put(self, data: bytes) -> str:
        await self._client.ask()
        key = sha256(data).hexdigest()
        self._states[key] = data
        return key

    async def get(self, key: str) -> bytes | None:
        await self._client.ask()
        return self._states.get(key)


class MemoryReader:
    """Hands out the log in chunks of any size, some time later."""

    def __init__(self, log: MemoryLog, faults: Faults, from_seq: int) -> None:
        self._log = log
        self._faults = faults
        self._last_seq = from_seq - 1

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def next(self) -> list[Record]:
        while True:
            await self._faults.pause()
            size = self._faults.dice.randrange(1, 64)
            there = self._log.after(self._last_seq, size)
            if there:
                break
            await self._log.arrived.wait()
        self._last_seq = there[-1].seq
        return there


def _tell(answer: "asyncio.Future[int]", error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
