"""The job actor: carries holds and memberships out on the nodes of jobs.

Reads the log's events and its clock, claims what is due, sends plans to agents and writes what
became of them. Any number of copies may run. What it knows is a fold of the log (claims.py) and
what agents tell it (channel.py); nothing is kept on disk, a restart reads again.
"""

import asyncio
from typing import Final

from nemesis.actors.attempt import LOOK_S, Attempting
from nemesis.actors.channel import Channel
from nemesis.actors.claims import Claims
from nemesis.actors.notary import Notary
from nemesis.actors.planning import nodes_of, plan_of
from nemesis.actors.self_made import SelfMade
from nemesis.actors.suspicion import ASK_S, Suspicion, ask
from nemesis.processors.fold import Input
from nemesis.processors.healer.replicas import world_of
from nemesis.schemas.facts import EVENTS_SUBJECT, telemetry_subject
from nemesis.schemas.plans import Plan, order_of
from nemesis.streams.errors import LogUnavailableError
from nemesis.streams.log import Log

TICK_SUBJECT: Final = telemetry_subject("clock", "tick")


class JobActor:
    """One copy; `run` goes on until it is cancelled."""

    def __init__(self, log: Log, name: str) -> None:
        """`name` is this copy's own and stays the same over its lives."""
        self._log: Final = log
        self.claims: Final = Claims(name)
        self._notary: Final = Notary(log, self.claims)
        self._self_made: Final = SelfMade(self.claims, self._notary)
        self._channel: Final = Channel(
            log.connection,
            ranks_of=self._ranks_of,
            plans_for=self._plans_for,
            on_said=self._self_made.hear,
            on_change=self._wake,
        )
        self._suspicion: Final = Suspicion()
        self._changed: Final = asyncio.Event()
        self._attempts: Final[dict[str, Attempting]] = {}
        self._caught_up = False

    async def run(self) -> None:
        """Read, claim, act."""
        await self._channel.open()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._read_events())
            tasks.create_task(self._read_clock())
            tasks.create_task(self._self_made.run())
            tasks.create_task(self._ask_producers())
            await self._act(tasks)

    async def _read_events(self) -> None:
        async with self._log.reader(1, subject=EVENTS_SUBJECT) as reader:
            await reader.start()
            self._caught_up = reader.pending_count == 0
            async for records in reader:
                for record in records:
                    item = Input(record)
                    self.claims.take(item)
                    self._suspicion.take(item)
                self._caught_up = self._caught_up or reader.pending_count == 0
                self._wake()

    async def _read_clock(self) -> None:
        start_seq = await self._last_tick()
        async with self._log.reader(start_seq, subject=TICK_SUBJECT) as reader:
            async for records in reader:
                self.claims.take(Input(records[-1]))
                self._wake()

    async def _last_tick(self) -> int:
        while True:
            try:
                last = await self._log.last(TICK_SUBJECT)
            except LogUnavailableError:
                await asyncio.sleep(LOOK_S)
                continue
            return last.seq if last else 1

    async def _act(self, tasks: asyncio.TaskGroup) -> None:
        """Start an attempt at whatever is due."""
        while True:
            self._changed.clear()
            if self._caught_up and self.claims.log_time_ns:
                for due in self.claims.due():
                    name = due.decision.decision
                    if name not in self._attempts:
                        attempting = Attempting(due, self.claims, self._channel, self._notary)
                        self._attempts[name] = attempting
                        tasks.create_task(self._run(name, attempting))
            await self._changed.wait()

    async def _ask_producers(self) -> None:
        while True:
            if self._caught_up and self.claims.log_time_ns:
                plans = self._suspicion.plans(self.claims.log_time_ns)
                await ask(self._log.connection, plans)
            await asyncio.sleep(ASK_S)

    async def _run(self, name: str, attempting: Attempting) -> None:
        try:
            await attempting.run()
        finally:
            del self._attempts[name]

    def _wake(self) -> None:
        self._changed.set()
        for attempting in self._attempts.values():
            attempting.changed.set()

    def _ranks_of(self, job: str) -> int:
        standing = self.claims.jobs.get(job)
        return world_of(standing.submitted) if standing is not None else 0

    def _plans_for(self, node: str) -> tuple[Plan, ...] | None:
        """The last plans of a node, in order; None while the log is not read to its end."""
        if not self._caught_up:
            return None
        plans = [
            plan_of(
                decision,
                standing,
                self._channel.boot_ids,
                stores=self._channel.stores(job),
                at_boundary=self.claims.at_boundary(decision),
            )
            for job, standing in self.claims.jobs.items()
            for decision in self.claims.plans_in_force(job)
            if node in nodes_of(decision, standing)
        ]
        return tuple(sorted(plans, key=lambda plan: order_of(plan.epoch, plan.kind)))
