"""The producer of a node at work: polls, follows the kernel's log, and carries facts to the log.

It never waits for the log (streams/publisher.py). Kernel facts go to disk first in any case, and
before that, with how far the kernel's log was read, to where the next life finds them: a kill loses
no line, and what a restart repeats has the number that it had.
"""

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import msgspec
from nats.aio.msg import Msg

from nemesis.producers.node import ras
from nemesis.producers.node.coverage import Backlog, Seen
from nemesis.producers.node.dcgm import Dcgm
from nemesis.producers.node.elder import until_elder_lives
from nemesis.producers.node.inspector import Inspector
from nemesis.producers.node.kernel_tail import KernelTail
from nemesis.producers.node.root import Root
from nemesis.producers.node.watch import PERIOD_NS, NodeWatch
from nemesis.producers.origin import Origin
from nemesis.schemas.errors import MalformedFactError, NemesisError
from nemesis.schemas.observed import Observation
from nemesis.schemas.plans import PollPlan, decode_message, poll_plan_subject
from nemesis.schemas.watched import CoverageReported
from nemesis.streams.alone import alone, alone_as
from nemesis.streams.contexts import Target
from nemesis.streams.keeper import Rate
from nemesis.streams.log import Log
from nemesis.streams.publisher import Publisher
from nemesis.streams.side_by_side import background, first_error

KERNEL_LOOK_S: Final = 0.2
FASTEST_NS: Final = 1_000_000_000
HURRY_NS_MAX: Final = 60_000_000_000
"""Longer is asked anew: a producer that nobody tells when it is over must not go on."""
LEAVE_S: Final = 3.0
"""A log that is there takes the last facts in milliseconds, under load in a second or two."""
KERNEL: Final = frozenset({"kernel"})
BOOT_ID: Final = "proc/sys/kernel/random/boot_id"
_BOOT_ID: Final = re.compile(r"[\w-]{1,64}", re.ASCII)  # a UUID, random(4)


class ProducerRunningError(NemesisError):
    """Two producers would tell everything of a node twice."""

    exit_code = 4


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a producer is to watch, and as whom."""

    node: str
    state: Path
    """Folder of its spool and of what it remembers."""
    root: Path = Path("/")
    period_ns: int = PERIOD_NS
    dcgm: str = ""
    """URL of a DCGM exporter's page, "" for none."""
    ras: str = ras.ADDRESS
    """host:port of NCCL's RAS."""
    inspector: Path | None = None
    """Folder into which NCCL's Inspector writes."""


def origin_of(settings: Settings) -> Origin:
    """One life of this node's producer."""
    said = Root(settings.root).line(BOOT_ID)
    boot_id = said if _BOOT_ID.fullmatch(said) else ""
    return Origin(settings.node, start_ns=time.time_ns(), boot_id=boot_id)


def watch_of(settings: Settings, origin: Origin, root: Root) -> NodeWatch:
    """What looks at the node, as the settings want it."""
    dcgm = Dcgm(settings.dcgm) if settings.dcgm else None
    inspector = Inspector(origin, settings.inspector) if settings.inspector else None
    return NodeWatch(
        root,
        origin,
        period_ns=settings.period_ns,
        dcgm=dcgm,
        ras=ras.Ras(origin, settings.ras),
        inspector=inspector,
    )


class Producer:
    """Runs until it is cancelled."""

    def __init__(
        self,
        settings: Settings,
        target: Target,
        on_start: Callable[[CoverageReported], None] = lambda first: None,
    ) -> None:
        """`on_start` hears what is watched and what is not, once."""
        self._on_start: Final = on_start
        self._settings: Final = settings
        self._target: Final = target
        self._origin: Final = origin_of(settings)
        self._role: Final = f"producer/{settings.node}"
        self._publisher: Publisher | None = None
        self._watch: Final = watch_of(settings, self._origin, Root(settings.root))
        self._kernel: KernelTail | None = None
        self._log: Log | None = None
        self._rate: Rate = "full"
        self._hurry_ns = (0, 0)
        """(from poll to poll, until when by the monotonic clock), as asked last."""
        self._hurried: Final = asyncio.Event()

    def is_connected(self) -> bool:
        """Whether the log is reached now."""
        return self._log is not None and self._log.is_connected()

    async def run(self) -> None:
        """Watch and tell.

        Raises:
            ProducerRunningError: this node has a producer, here or elsewhere.
            WrongCredentialsError: the server does not know us.
            SpoolError: nothing can be kept here.
        """
        state, node = self._settings.state, self._settings.node
        try:
            state.mkdir(mode=0o700, parents=True, exist_ok=True)
            with ExitStack() as held:
                says = f"a producer of {node} keeps its state in {state} already"
                held.enter_context(alone(state / "lock", _second(says)))
                says = f"a producer of {node} runs on this machine already"
                held.enter_context(alone_as(self._target.login(self._role), _second(says)))
                await self._run()
        except PermissionError as error:
            raise NemesisError(
                f"cannot write to {state}: {error.strerror}", hint="name another with --state"
            ) from error

    async def _run(self) -> None:
        self._publisher = Publisher(
            self._origin.stamp,
            time.time_ns,
            self._settings.state / "spool",
            durable=KERNEL,
            on_rate=self._on_rate,
        )
        self._kernel = KernelTail(
            self._origin, self._settings.root / "dev/kmsg", self._settings.state / "kmsg.json"
        )
        self._take(self._kernel.last)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._carry(self._publisher))
                tasks.create_task(self._poll())
                tasks.create_task(self._follow())
        except BaseExceptionGroup as group:
            raise first_error(group) from None
        finally:
            self._publisher.close()
            self._kernel.keep()
            self._kernel.close()

    def _take(self, facts: Sequence[Observation]) -> None:
        assert self._publisher is not None
        for fact in facts:
            self._publisher.offer(fact)

    async def _carry(self, publisher: Publisher) -> None:
        self._log = log = await self._target.reach(self._role)
        try:
            await log.connection.subscribe(
                poll_plan_subject(self._settings.node), self._on_poll_plan
            )
            async with background(publisher.run(log)):
                try:
                    await until_elder_lives(log, self._origin, lambda: publisher.waiting_count)
                except asyncio.CancelledError:
                    await self._take_leave(publisher)
                    raise
        finally:
            await log.close()
        raise _second(f"an earlier producer of {self._settings.node} tells of it elsewhere")

    async def _take_leave(self, publisher: Publisher) -> None:
        """Say that the watching ends, or the node's silence is taken for its loss."""
        now_ns, monotonic_ns = time.time_ns(), time.monotonic_ns()
        self._take([self._watch.coverage.last(now_ns, monotonic_ns, self._backlog())])
        with suppress(TimeoutError):  # what is not delivered by then lies in the spool
            async with asyncio.timeout(LEAVE_S):
                await publisher.drained()

    def _on_rate(self, rate: Rate) -> None:
        self._rate = rate

    async def _on_poll_plan(self, message: Msg) -> None:
        with suppress(MalformedFactError):
            plan = decode_message(PollPlan, message.data)
            until_ns = time.monotonic_ns() + min(plan.for_ns, HURRY_NS_MAX)
            was_ns = self._period_ns()
            self._hurry_ns = (max(FASTEST_NS, plan.period_ns), until_ns)
            if self._period_ns() < was_ns:
                self._hurried.set()

    def _period_ns(self) -> int:
        """From this poll to the next: as set, slower while the log is filling up, else as asked."""
        if self._rate != "full":
            return self._settings.period_ns * 2
        period_ns, until_ns = self._hurry_ns
        own_ns = self._settings.period_ns
        return min(own_ns, period_ns) if time.monotonic_ns() < until_ns else own_ns

    async def _poll(self) -> None:
        due_ns, is_first = time.monotonic_ns(), True
        while True:
            self._watch.period_ns = self._period_ns()
            kernel, coverage = self._kernel, self._watch.coverage
            assert kernel is not None
            coverage.late_ns = max(coverage.late_ns, time.monotonic_ns() - due_ns)
            # reading waits for devices, up to its deadline; the loop goes on meanwhile
            facts = await asyncio.to_thread(
                self._watch.poll, time.time_ns(), [kernel.seen, *self._disk()], self._backlog()
            )
            self._take(facts)
            if is_first:
                is_first = False
                for fact in facts:
                    if isinstance(fact, CoverageReported):
                        self._on_start(fact)
            due_ns += self._period_ns()
            if due_ns < time.monotonic_ns():  # asleep, or stopped: no poll is made up for
                due_ns = time.monotonic_ns() + self._period_ns()
            with suppress(TimeoutError):
                async with asyncio.timeout((due_ns - time.monotonic_ns()) / 1e9):
                    await self._hurried.wait()
                due_ns = time.monotonic_ns()
            self._hurried.clear()

    def _backlog(self) -> Backlog:
        publisher, kernel = self._publisher, self._kernel
        assert publisher is not None
        assert kernel is not None
        return Backlog(publisher.waiting_count, publisher.dropped_count, kernel.missed_count)

    def _disk(self) -> list[Seen]:
        """What is amiss with keeping facts here."""
        if self._publisher is None or self._publisher.has_room:
            return []
        says = "the disk takes no more facts: they wait in memory, and the oldest samples drop"
        return [Seen(f"node/{self._settings.node}", "spool", "broken", says)]

    async def _follow(self) -> None:
        kernel = self._kernel
        assert kernel is not None
        while True:
            facts = kernel.read(time.time_ns())
            if facts:
                kernel.keep(facts)
            self._take(facts)
            await asyncio.sleep(KERNEL_LOOK_S)


def _second(says: str) -> ProducerRunningError:
    return ProducerRunningError(says, hint="one producer a node: end the other one, or this")


def once(settings: Settings, between_s: float, root: Root | None = None) -> list[Observation]:
    """What two polls tell, with so much time between them that there are shares of it.

    `root`: reads the files, where that is not simply settings.root.
    """
    origin = origin_of(settings)
    watch = watch_of(settings, origin, root or Root(settings.root))
    kernel = KernelTail(origin, settings.root / "dev/kmsg", None)
    try:
        facts = watch.poll(time.time_ns(), [kernel.seen])
        time.sleep(between_s)
        return [*facts, *kernel.read(time.time_ns()), *watch.poll(time.time_ns(), [kernel.seen])]
    finally:
        kernel.close()
