"""What an agent sees of its ranks besides what they say: how the kernel has them, where they stand.

A rank that is stuck goes on saying nothing; its process's state and its flight recorder tell why.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from nemesis.actors.agent.ranks import Rank
from nemesis.actors.agent.stack_looks import Moment, StackLooks, moment_of, stalled
from nemesis.producers.flight_recorder import read_dump
from nemesis.producers.origin import Origin
from nemesis.producers.process import ProcessWatch
from nemesis.producers.recorder_tap import read_recorder
from nemesis.producers.sample import block_of, sample_of
from nemesis.schemas.channels import STEP_CHANNELS
from nemesis.schemas.observed import (
    CollectiveRecorded,
    GroupBroken,
    Observation,
    RankReady,
    SampleTaken,
)
from nemesis.schemas.rank_ranges import format_ranks
from nemesis.schemas.saved import CheckpointWritten

PERIOD_NS: Final = 5_000_000_000
LOOK_S: Final = 0.1
BROKEN_NS: Final = 200_000_000
"""How long a rank without its group waits for a plan before it is told of: mostly a peer's end is
known by then, and what to do about it."""
PATH_MAX: Final = 4096
"""Of a file's path on Linux, limits.h."""
TAP_S: Final = 0.2
"""A rank that is stuck answers in a millisecond, one that is stopped never."""


class Watch:
    """Looks at a node's ranks."""

    def __init__(
        self,
        origin: Origin,
        job: str,
        ranks: Mapping[int, Rank],
        *,
        tap: Callable[[int], Path],
        is_answered: Callable[[int], bool],
        on_seen: Callable[[Sequence[Observation]], None],
    ) -> None:
        """`ranks`: those that the agent has, by number; `tap`: where a rank serves its recorder;
        `is_answered`: whether a plan has come that ends the group of an epoch."""
        self._origin: Final = origin
        self._job: Final = job
        self._ranks: Final = ranks
        self._tap: Final = tap
        self._is_answered: Final = is_answered
        self._on_seen: Final = on_seen
        self._processes: Final = ProcessWatch(origin, job)
        self._broken: Final[set[int]] = set()
        """Epochs whose group was told to be broken."""
        self._ready: Final[dict[int, int]] = {}
        """Of ranks that were told to be ready: the process."""
        self._saved: Final[dict[int, tuple[int, str]]] = {}
        """Of ranks, the latest checkpoint that was told of."""
        self._dumped: Final[set[Moment]] = set()
        self._stacks: Final = StackLooks(origin, job, ranks, tap=tap, on_seen=on_seen)

    async def run(self) -> None:
        """Look, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._look_at_processes())
            tasks.create_task(self._look_at_recorders())
            tasks.create_task(self._stacks.run())
            tasks.create_task(self._sample())

    async def _look_at_processes(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            # who is done may take long to end, thread by thread: nobody waits for it
            alive = {
                number: rank
                for number, rank in self._ranks.items()
                if rank.is_alive and rank.stage != "left"
            }
            pids = {number: rank.pid for number, rank in alive.items()}
            epochs = {number: rank.epoch for number, rank in alive.items()}
            now_ns = time.time_ns()
            states = self._processes.look(pids, epochs, now_ns)
            for each in states:
                alive[each.rank].is_stopped = each.state == "stopped"
            seen: list[Observation] = [
                *states,
                *self._broken_groups(now_ns),
                *self._ready_ranks(now_ns),
                *self._checkpoints(now_ns),
            ]
            if seen:
                self._on_seen(seen)

    def _ready_ranks(self, now_ns: int) -> list[RankReady]:
        new = {
            number: rank.pid
            for number, rank in sorted(self._ranks.items())
            if rank.is_ready and self._ready.get(number) != rank.pid
        }
        self._ready.update(new)
        return [
            RankReady(
                **self._origin.stamp("rank_ready", now_ns), job=self._job, rank=number, pid=pid
            )
            for number, pid in new.items()
        ]

    def _checkpoints(self, now_ns: int) -> list[CheckpointWritten]:
        new = {
            rank.number: rank.saved
            for rank in self._ranks.values()
            if rank.saved[0] >= 0 and rank.saved != self._saved.get(rank.number)
        }
        self._saved.update(new)
        return [
            CheckpointWritten(
                **self._origin.stamp("checkpoint", now_ns),
                job=self._job,
                rank=rank,
                step=step,
                path=path[:PATH_MAX],
            )
            for rank, (step, path) in sorted(new.items())
        ]

    def _broken_groups(self, now_ns: int) -> list[GroupBroken]:
        """Of the latest epoch, where ranks have waited for a plan for long enough."""
        epoch = max((rank.epoch for rank in self._ranks.values()), default=0)
        held = [
            rank
            for _, rank in sorted(self._ranks.items())
            if rank.is_alive and rank.stage == "held" and rank.epoch == epoch and not rank.is_ready
        ]
        if not held or epoch in self._broken or self._is_answered(epoch):
            return []
        if time.monotonic_ns() - min(rank.said_ns for rank in held) < BROKEN_NS:
            return []
        self._broken.add(epoch)
        return [
            GroupBroken(
                **self._origin.stamp("group_broken", now_ns),
                job=self._job,
                epoch=epoch,
                ranks=format_ranks(rank.number for rank in held),
                why=held[0].why,
            )
        ]

    async def _look_at_recorders(self) -> None:
        """Read them where the ranks stand for longer than steps take."""
        while True:
            await asyncio.sleep(LOOK_S)
            ranks = stalled(self._ranks, time.monotonic_ns())
            if ranks and (moment := moment_of(ranks)) not in self._dumped:
                self._dumped.add(moment)
                await self._dump(ranks)

    async def _dump(self, ranks: Sequence[Rank]) -> None:
        """One digest a rank; that one has none while others have is said as well."""
        raw = await asyncio.gather(
            *(asyncio.to_thread(read_recorder, self._tap(rank.number), TAP_S) for rank in ranks)
        )
        if not any(raw):
            return
        now_ns = time.time_ns()
        facts: list[Observation] = []
        for rank, content in zip(ranks, raw, strict=True):
            stamp = self._origin.stamp("collective", now_ns)
            if content is None:
                facts.append(
                    CollectiveRecorded(**stamp, job=self._job, rank=rank.number, dump_missing=True)
                )
                continue
            dump = read_dump(msgspec.json.decode(content))
            facts.append(
                CollectiveRecorded(
                    **stamp,
                    job=self._job,
                    rank=rank.number,
                    trace_version=dump.version,
                    entry_count=dump.entry_count,
                    groups=dump.groups,
                )
            )
        self._on_seen(facts)

    async def _sample(self) -> None:
        while True:
            self._on_seen([self._sampled()])
            await asyncio.sleep(PERIOD_NS / 1e9)

    def _sampled(self) -> SampleTaken:
        rows = [_row(rank) for rank in self._ranks.values() if rank.is_alive]
        return sample_of(
            self._origin,
            time.time_ns(),
            period_ns=PERIOD_NS,
            steps=block_of(STEP_CHANNELS, rows) if rows else None,
            job=self._job if rows else "",
        )


def _row(rank: Rank) -> Mapping[str, int]:
    """A rank as a sample tells of it."""
    told = {"rank": rank.number, "step": max(0, rank.state.steps_count)}
    step, checksum = rank.checked()
    return told | ({"state_step": step, "state_checksum": checksum} if checksum else {})
