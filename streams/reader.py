"""Reading the log in order, at any speed, without losing a record unnoticed.

Why not nats-py's ordered consumer: it drops at its pending limits, and restarts at sequence 1 or
never after some server restarts (reproduced on 2.16). Here a reader owns an ephemeral pull
consumer that starts by sequence: what is in flight is bounded by what was asked for, at the tail
as in catch-up; the server numbers deliveries, and a missing number is loss. After a broken
connection or a silent server a new consumer goes on behind the last record that was handed out.
A jump of the stream's own sequence is no loss: those records have expired. A log that was rolled
back would be silent until it has grown again, so that it is the same one is seen before reading on.
"""

import asyncio
from typing import Any, Final, Self

import msgspec
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from nemesis.schemas.facts import Record
from nemesis.streams.batch import read_back
from nemesis.streams.connection import Connection
from nemesis.streams.errors import InputGapError, LogUnavailableError, ShortenedError

PULL_MESSAGES: Final = 4096
PULL_BYTES: Final = 16 * 2**20  # at most one and a half pulls are in flight and one is in hand
HEARTBEAT_S: Final = 0.5
SILENCE_S: Final = 2.0  # four heartbeats: the consumer is gone
EXPIRES_S: Final = 30.0
INACTIVE_S: Final = 10.0  # the server forgets a consumer that nobody pulls from
RETRY_S: Final = 0.1
_NS: Final = 1_000_000_000


class _State(msgspec.Struct, frozen=True):
    last_seq: int = 2**63 - 1  # an answer without a state says nothing of the log


class _Info(msgspec.Struct, frozen=True):
    state: _State = _State()


class Reader:
    """Hands out the log from a sequence on, for ever: `Log.reader` makes one."""

    def __init__(
        self, connection: Connection, stream: str, start_seq: int, *, subject: str = ""
    ) -> None:
        """`subject` filters on the server: slow for the log's many subjects, fine for people."""
        self.last_seq = max(start_seq, 1) - 1
        """The last sequence that was handed out; it only grows."""
        self.pending_count = 0
        """Records that waited in the log when the last one was sent; 0: at its end."""
        self.restart_count = 0
        """How often a consumer was lost and replaced."""
        self._connection: Final = connection
        self._stream: Final = stream
        self._subject: Final = subject
        self._arrived: list[Msg] = []
        self._wake: Final = asyncio.Event()
        self._subscription: Subscription | None = None
        self._consumer = ""
        self._consumer_lost = False
        self._next_delivery = 1
        self._outstanding = 0
        self._lost_count = 0
        self._last_stored_ns = 0
        self._quiet_since = 0.0
        self._in_hand = True
        connection.wakes.add(self._wake)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop reading."""
        self._connection.wakes.discard(self._wake)
        await self._drop_consumer()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[Record]:
        return await self.next()

    async def start(self) -> None:
        """Wait until the log hands out; afterwards `pending_count` is right.

        Raises:
            LogUnavailableError: the connection is closed, by us or because we lost our rights.
            UndeliverableError: not permitted.
            ShortenedError: it is not the log that was read.
        """
        while not self._consumer:
            try:
                await self._compare()
                await self._make_consumer()
            except LogUnavailableError:
                if self._connection.client.is_closed:
                    raise
                await asyncio.sleep(RETRY_S)

    async def next(self, timeout_s: float | None = None) -> list[Record]:
        """The next records, in order; none where there were none for timeout_s.

        Waits for a server that is away. A jump of sequences is a stretch that has expired.

        Raises:
            InputGapError: the server delivered what never arrived, on a connection that held.
            LogUnavailableError, UndeliverableError, ShortenedError: as `start`.
        """
        now = asyncio.get_running_loop().time()
        if self._in_hand:  # the caller was busy: what the server sent meanwhile is not heard yet
            self._quiet_since, self._in_hand = now, False
        try:
            async with asyncio.timeout(timeout_s):
                while not (records := await self._step()):
                    pass
        except TimeoutError:
            return []
        self._in_hand = True
        return records

    async def _step(self) -> list[Record]:
        """Whatever has arrived; may be cancelled at each wait without losing any of it."""
        if self._consumer_lost or self._lost_count != self._connection.lost_count:
            if self._consumer:
                self.restart_count += 1
            await self._drop_consumer()
        await self.start()
        await self._top_up()
        self._wake.clear()
        if not self._arrived:
            try:
                async with asyncio.timeout_at(self._quiet_since + SILENCE_S):
                    await self._wake.wait()
            except TimeoutError:
                self._consumer_lost = True
            return []
        arrived, self._arrived = self._arrived, []
        return self._taken(arrived)

    async def _on_message(self, msg: Msg) -> None:
        self._arrived.append(msg)
        self._quiet_since = asyncio.get_running_loop().time()
        self._wake.set()

    def _taken(self, arrived: list[Msg]) -> list[Record]:
        records: list[Record] = []
        for msg in arrived:
            if not msg.reply.startswith("$JS.ACK."):
                if self._goes_on(msg):
                    continue
                self._consumer_lost = True
                break
            seq, delivery, stored_ns, pending = _delivery(msg.reply)
            if delivery != self._next_delivery:
                if self._lost_count == self._connection.lost_count:
                    raise InputGapError(
                        f"delivery {delivery} instead of {self._next_delivery} at sequence {seq}",
                        hint="start the reader again; it goes on from its position",
                    )
                break
            self._next_delivery += 1
            self._outstanding -= 1
            self.pending_count = pending
            if seq > self.last_seq:
                self.last_seq, self._last_stored_ns = seq, stored_ns
                records.append(Record(seq, msg.subject, stored_ns, msg.data))
        return records

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
            await self._connection.publish(
                f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._consumer}",
                msgspec.json.encode(pull),
                reply=subscription.subject,
            )
        except LogUnavailableError:
            await asyncio.sleep(RETRY_S)  # the connection is on its way back, then we start over
            return
        self._outstanding += PULL_MESSAGES

    async def _compare(self) -> None:
        """Whether what was handed out last is there still, or has expired."""
        if not self._last_stored_ns:
            return
        record = await read_back(self._connection, self._stream, seq=self.last_seq)
        if record is not None and record.stored_ns == self._last_stored_ns:
            return
        answer = await self._connection.request(f"$JS.API.STREAM.INFO.{self._stream}")
        end = msgspec.json.decode(answer.data, type=_Info).state.last_seq
        if end < self.last_seq or record is not None:
            raise ShortenedError(self.last_seq, end)

    async def _make_consumer(self) -> None:
        await self._drop_consumer()
        connection = self._connection
        self._lost_count = connection.lost_count
        name = connection.new_id()
        inbox = connection.client.new_inbox()
        subscription = await connection.receive(inbox, self._on_message)
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
        subject = f"$JS.API.CONSUMER.CREATE.{self._stream}.{name}"
        if self._subject:
            config["filter_subject"] = self._subject
            subject = f"{subject}.{self._subject}"
        body = {"stream_name": self._stream, "config": config, "action": "create"}
        answer = await connection.request(subject, msgspec.json.encode(body))
        made: dict[str, Any] = msgspec.json.decode(answer.data)
        if "error" in made:
            raise LogUnavailableError(f"consumer of {self._stream}: {made['error']}")
        self._consumer = name
        self._next_delivery = 1
        self._outstanding = 0
        self._quiet_since = asyncio.get_running_loop().time()
        self.pending_count = int(made.get("num_pending", 0))

    async def _drop_consumer(self) -> None:
        subscription, self._subscription, self._consumer = self._subscription, None, ""
        self._consumer_lost = False
        self._arrived = []
        if subscription is not None:
            await self._connection.unsubscribe(subscription)


def _delivery(reply: str) -> tuple[int, int, int, int]:
    """(stream sequence, delivery number, stored time in ns, pending) of an ack subject.

    `$JS.ACK.<stream>.<consumer>.<tries>.<sseq>.<cseq>.<time>.<pending>`, with a domain and an
    account hash before the stream in clusters that have domains (ADR-15).
    """
    tokens = reply.split(".")
    at = 5 if len(tokens) == 9 else 7
    return int(tokens[at]), int(tokens[at + 1]), int(tokens[at + 2]), int(tokens[at + 3])
