"""Reading the log in order, at any speed, without losing a record unnoticed.

Why not nats-py's ordered consumer: it drops at its pending limits, and restarts at sequence 1 or
never after some server restarts (reproduced on 2.16). Here a reader owns an ephemeral pull
consumer that starts by sequence: what is in flight is bounded by what was asked for, at the tail
as in catch-up; the server numbers deliveries, and a missing number is loss. After a broken
connection or a silent server a new consumer goes on behind the last record that was handed out.
A jump of the stream's own sequence is no loss: those records have expired.
"""

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Final, Self

import msgspec
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.nuid import NUID

from nemesis.schemas.facts import Record
from nemesis.streams.errors import InputGapError, LogUnavailableError
from nemesis.streams.log import Log

PULL_MESSAGES: Final = 4096
PULL_BYTES: Final = 16 * 2**20  # at most one and a half pulls are in flight and one is in hand
HEARTBEAT_S: Final = 0.5
SILENCE_S: Final = 2.0  # four heartbeats: the consumer is gone
EXPIRES_S: Final = 30.0
INACTIVE_S: Final = 10.0  # the server forgets a consumer that nobody pulls from
RETRY_S: Final = 0.1
_NS: Final = 1_000_000_000


class Batch(msgspec.Struct, frozen=True):
    """Records that arrived together, in order."""

    records: list[Record]
    holes: list[tuple[int, int]]
    """First and last sequence of each stretch that has expired, before or between them."""


class Reader:
    """Hands out the log from a sequence on, for ever.

    `async with Reader(log, 1) as reader: async for batch in reader: ...`
    """

    def __init__(self, log: Log, from_seq: int, *, subject: str = "") -> None:
        """`subject` filters on the server: slow for the log's many subjects, fine for people."""
        self.log: Final = log
        self.last_seq = max(from_seq, 1) - 1
        """The last sequence that was handed out; it only grows."""
        self.pending_count = 0
        """Records that waited in the log when the last one was sent; 0: at its end."""
        self.restart_count = 0
        """How often a consumer was lost and replaced."""
        self._subject: Final = subject
        self._arrived: list[Msg] = []
        self._wake: Final = asyncio.Event()
        self._subscription: Subscription | None = None
        self._consumer = ""
        self._next_delivery = 1
        self._outstanding = 0
        self._lost_count = 0

    async def __aenter__(self) -> Self:
        self.log.connection.wakes.add(self._wake)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.log.connection.wakes.discard(self._wake)
        await self._drop_consumer()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Batch:
        return await self.next()

    async def start(self) -> None:
        """Wait until the log hands out; afterwards `pending_count` is right.

        Raises:
            InputGapError: see `next`.
        """
        while not self._consumer:
            try:
                await self._make_consumer()
            except LogUnavailableError:
                await self._drop_consumer()
                await asyncio.sleep(RETRY_S)

    async def next(self) -> Batch:
        """The next records, at least one.

        Waits as long as it takes, also for a server that is away.

        Raises:
            InputGapError: the server delivered what never arrived, on a connection that held.
        """
        while True:
            if self._consumer and self._lost_count != self.log.connection.lost_count:
                await self._restart()
            await self.start()
            await self._top_up()
            self._wake.clear()
            if not self._arrived:
                try:
                    async with asyncio.timeout(SILENCE_S):
                        await self._wake.wait()
                except TimeoutError:
                    await self._restart()
                continue
            arrived, self._arrived = self._arrived, []
            batch = await self._taken(arrived)
            if batch.records:
                return batch

    async def _on_message(self, msg: Msg) -> None:
        self._arrived.append(msg)
        self._wake.set()

    async def _taken(self, arrived: list[Msg]) -> Batch:
        records: list[Record] = []
        holes: list[tuple[int, int]] = []
        for msg in arrived:
            if not msg.reply.startswith("$JS.ACK."):
                if not self._goes_on(msg):
                    await self._restart()
                    break
                continue
            seq, delivery, stored_ns, pending = _delivery(msg.reply)
            if delivery != self._next_delivery:
                if self._lost_count == self.log.connection.lost_count:
                    raise InputGapError(
                        f"delivery {delivery} instead of {self._next_delivery} at sequence {seq}",
                        hint="start the reader again; it goes on from its position",
                    )
                await self._restart()
                break
            self._next_delivery += 1
            self._outstanding -= 1
            self.pending_count = pending
            if seq <= self.last_seq:
                continue
            if seq != self.last_seq + 1 and not self._subject:
                holes.append((self.last_seq + 1, seq - 1))
            self.last_seq = seq
            records.append(Record(seq, msg.subject, stored_ns, msg.data))
        return Batch(records, holes)

    def _goes_on(self, msg: Msg) -> bool:
        """Whether the consumer lives after this message from the server itself."""
        headers: dict[str, Any] = msg.headers or {}
        status = headers.get("Status", "")
        if status == "100":
            return True
        if status in ("404", "408", "409") and "Nats-Pending-Messages" in headers:
            # a pull has ended before it was filled
            self._outstanding -= int(headers["Nats-Pending-Messages"])
            return True
        return False

    async def _top_up(self) -> None:
        if self._outstanding > PULL_MESSAGES // 2:
            return
        pull = {
            "batch": PULL_MESSAGES,
            "max_bytes": PULL_BYTES,
            "expires": int(EXPIRES_S * _NS),
            "idle_heartbeat": int(HEARTBEAT_S * _NS),
        }
        subscription = self._subscription
        assert subscription is not None
        try:
            await self.log.connection.publish(
                f"$JS.API.CONSUMER.MSG.NEXT.{self.log.stream}.{self._consumer}",
                msgspec.json.encode(pull),
                reply=subscription.subject,
            )
        except LogUnavailableError:
            await asyncio.sleep(RETRY_S)  # the connection is on its way back, then we start over
            return
        self._outstanding += PULL_MESSAGES

    async def _make_consumer(self) -> None:
        connection = self.log.connection
        self._lost_count = connection.lost_count
        name = NUID().next().decode()
        inbox = connection.client.new_inbox()
        subscription = await connection.subscribe(inbox, self._on_message)
        self._subscription = subscription
        config: dict[str, Any] = {
            "name": name,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": self.last_seq + 1,
            "ack_policy": "none",
            "replay_policy": "instant",
            "inactive_threshold": int(INACTIVE_S * _NS),
            "mem_storage": True,
            "num_replicas": 1,
        }
        subject = f"$JS.API.CONSUMER.CREATE.{self.log.stream}.{name}"
        if self._subject:
            config["filter_subject"] = self._subject
            subject = f"{subject}.{self._subject}"
        body = {"stream_name": self.log.stream, "config": config, "action": "create"}
        answer = await connection.request(subject, msgspec.json.encode(body))
        made: dict[str, Any] = msgspec.json.decode(answer.data)
        if "error" in made:
            raise LogUnavailableError(f"consumer of {self.log.stream}: {made['error']}")
        self._consumer = name
        self._next_delivery = 1
        self._outstanding = 0
        self.pending_count = int(made.get("num_pending", 0))

    async def _restart(self) -> None:
        self.restart_count += 1
        await self._drop_consumer()

    async def _drop_consumer(self) -> None:
        subscription, self._subscription, self._consumer = self._subscription, None, ""
        self._arrived = []
        if subscription is not None:
            await self.log.connection.unsubscribe(subscription)


async def read_range(log: Log, from_seq: int, to_seq: int) -> AsyncIterator[Record]:
    """Every record that still exists between two sequences, both included."""
    async with Reader(log, from_seq) as reader:
        to_seq = min(to_seq, (await log.bounds()).last_seq)
        await reader.start()
        while reader.last_seq < to_seq and reader.pending_count:
            for record in (await reader.next()).records:
                if record.seq > to_seq:
                    return
                yield record


async def follow(log: Log, from_seq: int, *, subject: str = "") -> AsyncIterator[Record]:
    """Every record of a subject from a sequence on, as it comes."""
    async with Reader(log, from_seq, subject=subject) as reader:
        async for batch in reader:
            for record in batch.records:
                yield record


def _delivery(reply: str) -> tuple[int, int, int, int]:
    """(stream sequence, delivery number, stored time in ns, pending) of an ack subject.

    `$JS.ACK.<stream>.<consumer>.<tries>.<sseq>.<cseq>.<time>.<pending>`, with a domain and an
    account hash before the stream in clusters that have domains (ADR-15).
    """
    tokens = reply.split(".")
    at = 5 if len(tokens) == 9 else 7
    return int(tokens[at]), int(tokens[at + 1]), int(tokens[at + 2]), int(tokens[at + 3])
