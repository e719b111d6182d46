"""The agent of one node of a real job: what the simulated agent promises, with processes.

It decides nothing. It starts the node's ranks, or finds those that an earlier life started, tells
them what plans say, fences what died or was removed, and reports. Its ranks connect to its socket
and say how they stand; the kernel says when they end. What it sees goes to the log by its link
(actors/node_link.py); plans come the same way.
"""

import asyncio
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from nemesis.actors.agent.launch import Launch
from nemesis.actors.agent.log_loss import ABSENCE_S, Absence
from nemesis.actors.agent.ranks import UNKNOWN_CODE, Rank, end_all, let_leavers_end, states_of
from nemesis.actors.agent.roster import PLAN, ROSTER, KeptPlan, Life, Roster
from nemesis.actors.agent.starter import Starter
from nemesis.actors.agent.store import StoreBeside, open_store
from nemesis.actors.agent.watch import Watch
from nemesis.actors.following import Accepted, Deed, answer_to, deeds, judge
from nemesis.producers.origin import Origin, Stamp
from nemesis.producers.process import exit_of
from nemesis.schemas.errors import NemesisError
from nemesis.schemas.observed import Observation
from nemesis.schemas.plans import (
    Outcome,
    Plan,
    PlanAnswer,
    RankState,
    Report,
    order_of,
)
from nemesis.schemas.rank_ranges import parse_ranks
from nemesis.streams.alone import alone
from nemesis.training.membership import Order
from nemesis.training.wire import Standing, Told, standing_of

LIVES_MAX: Final = 3
"""So often a rank that was left out is started anew; one that ends again and again has a cause."""


class AgentRunningError(NemesisError):
    """Two agents would fence and start the same ranks."""

    exit_code = 4


class Agent:
    """One life of a node's agent; `run` goes on until it is cancelled."""

    def __init__(self, launch: Launch, folder: Path, *, boot_id: str, python: str = "") -> None:
        """`folder`: keeps the plan, logs of ranks and the sockets; `python`: has torch."""
        self.node: Final = launch.node
        self.boot_id: Final = boot_id
        self.start_ns: Final = time.time_ns()
        self.reports: list[Report] = []
        self.is_cut_off = False
        self.store = ""
        """`host:port` of the store beside this agent."""
        self._store: StoreBeside | None = None
        self._launch: Final = launch
        self._folder: Final = folder
        self._python: Final = python or sys.executable
        self._origin: Final = Origin(launch.node, start_ns=self.start_ns, boot_id=boot_id)
        self._observations: list[Observation] = []
        self.ranks: Final[dict[int, Rank]] = {}
        """Of this node, by number: their latest life."""
        self._roster: Final = Roster(folder / ROSTER)
        self._starter: Final = Starter(launch, folder, self._roster, self.ranks, self._on_end)
        self._watch: Final = Watch(
            self._origin,
            launch.job,
            self.ranks,
            tap=self._starter.tap_path,
            is_answered=self._is_answered,
            on_seen=self._see,
        )
        self._is_over = False
        self._attached: Final[set[int]] = set()
        """Ranks of which some process has called the hook."""
        self._lives_count: Final[dict[int, int]] = {}
        """How often a rank was started anew beside the job."""
        self._reports_count = 0
        self._reported: tuple[RankState, ...] = ()
        self.is_connected: Callable[[], bool] = lambda: True
        """Whether the log can be reached, as its link says."""
        self.on_news: Callable[[], None] = lambda: None
        """Called when there is something to be carried away."""
        self._kept: Final = KeptPlan(folder / PLAN)

    async def run(self) -> None:
        """Serve the ranks until cancelled; they run on, for the next life of the agent.

        Raises:
            AgentRunningError: another agent has the folder.
            OSError: the folder or a port is not to be had.
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        running = AgentRunningError(
            f"an agent runs in {self._folder} already", hint="one agent a node and job"
        )
        with alone(self._folder / "agent.lock", running):
            await self._run()

    async def _run(self) -> None:
        self._store = await open_store(
            self._folder,
            host=self._launch.host,
            python=self._python,
            environment=os.environ | dict(self._launch.environment),
        )
        self.store = self._store.address
        self.report_changes(time.time_ns(), always=True)
        socket_path = self._folder / "agent.sock"
        socket_path.unlink(missing_ok=True)
        server = await asyncio.start_unix_server(self._serve, str(socket_path))
        async with server:
            for life in self._roster.lives:
                self._take_up(life)
            if self.plan is not None:
                self._carry_out(self.plan)
            elif self._launch.command and not self._roster.was_kept:
                for number in self._launch.ranks:
                    self._starter.start(number, 0, self._last_told(), store=self._meeting)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._watch.run())
                tasks.create_task(self._bear_absence())

    def _last_told(self) -> Told:
        if self.plan is not None:
            return self._told(self.plan)
        everybody = Order(0, "membership", tuple(range(self._launch.world)))
        return Told(order=everybody, store=self._meeting)

    @property
    def _meeting(self) -> str:
        """Where the first membership meets, and torch's own groups."""
        return self._launch.store or self.store

    def _take_up(self, life: Life) -> None:
        """A rank that an earlier life of the agent started: it runs on, or ended meanwhile."""
        is_member = not life.is_beside
        if life.is_there and self._adopt(life.rank, life.pid, life.epoch, is_member=is_member):
            return
        life.end_children()
        self._tell_end(life.rank, life.pid, life.epoch, UNKNOWN_CODE)

    @property
    def plan(self) -> Plan | None:
        """The last one that counted."""
        return self._kept.accepted.plan if self._kept.accepted else None

    @property
    def job(self) -> str:
        """What its ranks train in."""
        return self._launch.job

    @property
    def members(self) -> tuple[int, ...]:
        """Of the job by the last plan, on all nodes."""
        plan = self.plan
        return tuple(parse_ranks(plan.members)) if plan else tuple(range(self._launch.world))

    @property
    def is_busy(self) -> bool:
        """Whether a rank has not ended yet, or not begun; who waits to join holds up no end."""
        return not self.ranks or any(each.is_alive and each.is_told for each in self.ranks.values())

    def stamp(self, kind: str, at_ns: int) -> Stamp:
        """What a fact of this node starts with."""
        return self._origin.stamp(kind, at_ns)

    def carried(self, now_ns: int) -> list[Observation]:
        """Take away what there is to send."""
        seen, self._observations = self._observations, []
        return seen

    def follow(self, plan: Plan, now_ns: int) -> PlanAnswer:
        """Judge a plan, do what it says if it counts, and say how things stand."""
        judged: tuple[Outcome, str]
        if plan.job != self._launch.job:
            judged = "unknown_job", f"{self.node} runs {self._launch.job}"
        elif not self._launch.command and set(self._launch.ranks) & set(parse_ranks(plan.started)):
            judged = "refused", f"others start the ranks of {self.node}"
        else:
            judged = judge(plan, node=self.node, boot_id=self.boot_id, last=self.plan)
        if judged[0] == "accepted" and plan.kind != "observe":
            self._accept(Accepted(plan=plan))
        return answer_to(
            plan,
            judged,
            node=self.node,
            boot_id=self.boot_id,
            last=self.plan,
            ranks=self._states(),
            at=(self.start_ns, self._reports_count),
            members=self._agreed,
        )

    def _states(self) -> tuple[RankState, ...]:
        return states_of(self.ranks.values(), self._attached)

    def _accept(self, accepted: Accepted) -> None:
        """Keep the plan first, then act: who dies in between finishes at his next start."""
        self._kept.keep(accepted)
        self._carry_out(accepted.plan)

    @property
    def _agreed(self) -> str:
        """The members of the present epoch where it was made without the log."""
        last = self._kept.accepted
        return last.plan.members if last is not None and last.by_itself else ""

    async def _bear_absence(self) -> None:
        """While the log is away, do what cannot be wrong, and what was logged for that."""
        absence = Absence()
        while True:
            await asyncio.sleep(ABSENCE_S)
            due = absence.due(
                time.monotonic_ns(),
                connected=self.is_connected(),
                last=self._kept.accepted,
                members=self.members,
                ranks=self.ranks,
            )
            match due:
                case Order():
                    for number in set(self.members) & set(self.ranks):
                        self.ranks[number].tell(Told(order=due))
                case Plan():
                    self._accept(Accepted(plan=due, by_itself=True))
                    self.report_changes(time.time_ns(), always=True)

    def report_changes(self, now_ns: int, *, always: bool = False) -> None:
        """Report the ranks if one changed its stage or its epoch."""
        states = self._states()
        seen = tuple(msgspec.structs.replace(each, step=0) for each in states)
        if seen == self._reported and not always:
            return
        self._reported = seen
        self._reports_count += 1
        accepted = self.plan
        self.reports.append(
            Report(
                node=self.node,
                boot_id=self.boot_id,
                start_ns=self.start_ns,
                n=self._reports_count,
                job=self._launch.job,
                epoch=accepted.epoch if accepted else 0,
                kind=accepted.kind if accepted else "membership",
                ranks=states,
                by="agent" if self._agreed else "plan",
                members=self._agreed,
                store=self.store,
            )
        )
        self.on_news()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Hear one rank until it goes."""
        with suppress(ConnectionError, msgspec.DecodeError, ValueError, asyncio.CancelledError):
            while line := await reader.readline():
                self._heard(standing_of(line), writer)
        writer.close()

    def _heard(self, standing: Standing, writer: asyncio.StreamWriter) -> None:
        rank = self.ranks.get(standing.rank)
        if rank is None or (rank.pid != standing.pid and not rank.is_alive):
            known = standing.rank in self._launch.ranks
            rank = self._adopt(standing.rank, standing.pid, standing.epoch) if known else None
        if rank is None or rank.pid != standing.pid:
            return
        before = (rank.stage, rank.epoch)
        self._attached.add(rank.number)
        rank.heard(standing, writer, time.monotonic_ns())
        if (rank.stage, rank.epoch) != before:
            if rank.stage == "running":
                let_leavers_end(self.ranks.values())
            self.report_changes(time.time_ns())

    def _adopt(self, number: int, pid: int, epoch: int, *, is_member: bool = True) -> Rank | None:
        """A rank that runs already, of an earlier life, of torchrun or srun; None: it ended."""
        try:
            rank = Rank(number, pid, epoch, self._on_end)
        except ProcessLookupError:
            return None
        self.ranks[number] = rank
        if is_member:
            rank.tell(self._last_told())
        return rank

    def _bring_back(self, plan: Plan) -> None:
        """Start ranks anew that are no members any more, beside the job."""
        if not self._launch.comes_back or self._is_over or plan.kind != "membership":
            return
        for number in sorted(set(self.ranks) - set(parse_ranks(plan.members))):
            rank = self.ranks[number]
            lives = self._lives_count.get(number, 0)
            if not rank.is_alive and rank.stage == "fenced" and lives < LIVES_MAX:
                self._lives_count[number] = lives + 1
                self._starter.start(
                    number, plan.epoch, None, store=self._meeting, state_from="peer"
                )

    def _on_end(self, rank: Rank) -> None:
        rank.fence()  # children of a rank that died may still hold its GPU
        ended = rank.stage
        if ended == "failed":
            rank.stage = "fenced"
        if ended != "left":
            self._tell_end(rank.number, rank.pid, rank.epoch, rank.returncode or 0)
        self._roster.end(rank.number, rank.pid)
        if self.plan is not None:
            self._bring_back(self.plan)
        self.report_changes(time.time_ns())
        self.on_news()

    def _tell_end(self, number: int, pid: int, epoch: int, returncode: int) -> None:
        exited = exit_of(
            self._origin,
            time.time_ns(),
            job=self._launch.job,
            rank=number,
            pid=pid,
            returncode=returncode,
            fenced=True,
            epoch=epoch,
        )
        self._observations.append(exited)
        self._roster.end(number, pid)

    def _carry_out(self, plan: Plan) -> None:
        told = self._told(plan)
        here: list[Rank] = list(self.ranks.values())
        todo = deeds(plan, self.node, here, self._launch.ranks)
        self._make_way(plan, [deed.rank for deed in todo if deed.doing == "start"])
        for deed in todo:
            self._do(deed, plan, told)
        members = parse_ranks(plan.members)
        for rank in (each for each in self.ranks.values() if each.stage == "starting"):
            if rank.is_alive and (rank.is_told or rank.number in members):
                rank.tell(told)  # it has not said yet that it hears, and must not miss this
        self._bring_back(plan)

    def _told(self, plan: Plan) -> Told:
        members = tuple(parse_ranks(plan.members))
        order = Order(plan.epoch, plan.kind, members, at_boundary=plan.at_boundary)
        return Told(order=order, store=plan.store or self._meeting)

    def _do(self, deed: Deed, plan: Plan, told: Told) -> None:
        match deed.doing:
            case "fence" | "leave" if not self.ranks[deed.rank].is_told:
                pass  # it was never a member, and may yet be one
            case "fence":
                rank = self.ranks[deed.rank]
                rank.stage = "fenced"
                rank.fence()
            case "hold" | "join" | "leave":
                self.ranks[deed.rank].tell(told)
            case "start":
                source = plan.state_from
                self._starter.start(
                    deed.rank, plan.epoch, told, store=told.store, state_from=source, plan=plan
                )

    def _make_way(self, plan: Plan, starting: Sequence[int]) -> None:
        """End the earlier processes of ranks that are to be started; of the store where all of a
        job are, what they left in it: torch's own groups use the same names in it again."""
        before = [rank for rank in self.ranks.values() if rank.number in starting and rank.is_alive]
        for rank in before:
            rank.stage = "left"
        end_all(before)
        if self._store is not None and plan.store == self.store and plan.started == plan.members:
            self._store.empty()

    def _is_answered(self, epoch: int) -> bool:
        last = self.plan
        return last is not None and order_of(last.epoch, last.kind) >= order_of(epoch, "hold")

    def _see(self, seen: Sequence[Observation]) -> None:
        self._observations += seen
        self.report_changes(time.time_ns())
        self.on_news()

    def end(self) -> None:
        """The job is over, or never to be: let nothing of it run on."""
        self._is_over = True
        end_all(self.ranks.values())
        if self._store is not None:
            self._store.end()
