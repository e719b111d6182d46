"""Node agents as small as the plan channel allows: they judge plans as real ones do."""

import asyncio
from contextlib import suppress

from nats.aio.msg import Msg

from nemesis.actors.following import judge, local_ranks
from nemesis.schemas.plans import (
    Hello,
    Plan,
    PlanAnswer,
    Plans,
    RankStage,
    RankState,
    Report,
    decode_message,
    encode_message,
    hello_subject,
    plan_subject,
    report_subject,
)
from nemesis.schemas.rank_ranges import parse_ranks
from nemesis.streams.errors import LogUnavailableError
from nemesis.streams.log import Log
from nemesis.streams.server import Server


class FakeAgent:
    """One node's agent; its effects are counted."""

    def __init__(self, node: str, ranks: tuple[int, ...], boot_id: str = "boot-1") -> None:
        self.node = node
        self.boot_id = boot_id
        self.own = ranks
        self.stages: dict[int, tuple[RankStage, int]] = {rank: ("running", 0) for rank in ranks}
        self.last: Plan | None = None
        self.agreed = ""
        """The members of the last plan's epoch where agents made it alone."""
        self.effects: list[tuple[str, int, int]] = []
        """(kind, epoch, rank) of everything that was really done."""
        self.heard: list[Plan] = []
        self.told = asyncio.Event()
        self.obeys = True
        """False: a started or regrouped rank dies at once."""
        self.is_slow = False
        """True: a regrouped or started rank is on its way until `arrive`."""
        self.may_answer: asyncio.Event | None = None
        """It answers a plan late, with how things stood before, and reports first what became."""
        self._log: Log | None = None
        self._reports_count = 0

    async def join(self, server: Server) -> None:
        self._log = await server.connect(f"node/{self.node}")
        await self._log.connection.subscribe(plan_subject(self.node), self._on_plan)

    async def leave(self) -> None:
        if self._log is not None:
            await self._log.close()
            self._log = None

    async def hello(self) -> Plans:
        """Ask for the last plans until an actor answers."""
        assert self._log is not None
        body = encode_message(Hello(node=self.node, boot_id=self.boot_id, start_ns=1))
        while True:
            with suppress(LogUnavailableError):
                subject = hello_subject(self.node)
                answer = await self._log.connection.request(subject, body, timeout_s=0.5)
                return decode_message(Plans, answer.data)
            await asyncio.sleep(0.05)

    def go_on_alone(self, epoch: int, members: str) -> None:
        """The log was away for longer than the grace."""
        self.last = Plan(job="llama", epoch=epoch, kind="membership", members=members)
        self.agreed = members
        self.stages = {
            rank: ("running", epoch) if rank in parse_ranks(members) else self.stages[rank]
            for rank in self.own
        }

    async def report(self) -> None:
        """Say how things stand."""
        assert self._log is not None
        self._reports_count += 1
        report = Report(
            node=self.node,
            boot_id=self.boot_id,
            start_ns=1,
            n=self._reports_count,
            job="llama",
            epoch=max((epoch for _, epoch in self.stages.values()), default=0),
            ranks=self.states(),
            by="agent" if self.agreed else "plan",
            members=self.agreed,
        )
        await self._log.connection.publish(report_subject(self.node), encode_message(report))

    def states(self) -> tuple[RankState, ...]:
        return tuple(
            RankState(rank=rank, stage=stage, epoch=epoch, step=7)
            for rank, (stage, epoch) in sorted(self.stages.items())
        )

    def die(self, rank: int) -> None:
        self.stages[rank] = ("fenced", self.stages[rank][1])

    async def arrive(self) -> None:
        """Every rank that was on its way is there."""
        self.stages = {
            rank: ("running" if stage == "starting" else stage, epoch)
            for rank, (stage, epoch) in self.stages.items()
        }
        await self.report()

    async def _on_plan(self, message: Msg) -> None:
        plan = decode_message(Plan, message.data)
        self.heard.append(plan)
        self.told.set()
        outcome, why = judge(plan, node=self.node, boot_id=self.boot_id, last=self.last)
        before = self.states(), self._reports_count
        if outcome == "accepted" and plan.kind != "observe":
            self.last, self.agreed = plan, ""
            self._follow(plan)
        last = self.last
        ranks, reports_count = self.states(), self._reports_count
        if self.may_answer is not None:
            ranks, reports_count = before
            await self.report()
            await self.may_answer.wait()
        answer = PlanAnswer(
            node=self.node,
            boot_id=self.boot_id,
            job=plan.job,
            outcome=outcome,
            epoch=last.epoch if last else 0,
            kind=last.kind if last else "membership",
            why=why,
            ranks=ranks,
            members=self.agreed,
            start_ns=1,
            n=reports_count,
        )
        await message.respond(encode_message(answer))

    def _follow(self, plan: Plan) -> None:
        members, started = set(parse_ranks(plan.members)), set(parse_ranks(plan.started))
        here = local_ranks(plan, self.node, self.own)
        for rank, (stage, _) in list(self.stages.items()):
            if rank not in members or rank not in here:
                self._do(plan, rank, "left")
            elif plan.kind == "hold" and stage == "running":
                self._do(plan, rank, "held")
            elif plan.kind == "membership" and rank not in started and stage != "fenced":
                self._do(plan, rank, "running")
        if plan.kind == "membership":
            for rank in sorted(started & here):
                self._do(plan, rank, "running")

    def _do(self, plan: Plan, rank: int, stage: RankStage) -> None:
        if stage == "running" and not self.obeys:
            stage = "failed"
        if stage == "running" and self.is_slow:
            stage = "starting"
        self.stages[rank] = (stage, plan.epoch)
        self.effects.append((plan.kind, plan.epoch, rank))
