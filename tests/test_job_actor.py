"""Promises of the job actor, against a real server: one claim, one effect, whatever is killed."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nemesis.actors import attempt, notary
from nemesis.actors.channel import Channel
from nemesis.actors.claims import Due
from nemesis.actors.job import JobActor
from nemesis.actors.notary import Notary
from nemesis.schemas.decided import QuiesceDecided, RecoveryDecided
from nemesis.schemas.done import (
    AttemptCompleted,
    AttemptFailed,
    AttemptOutcomeUnknown,
    AttemptStarted,
    MembershipReported,
)
from nemesis.schemas.facts import (
    decode_conclusion,
    encode_conclusion,
    encode_observation,
    telemetry_subject,
)
from nemesis.schemas.observed import ClockTicked
from nemesis.schemas.operated import DecisionApproved, DecisionVetoed, JobSubmitted, PauseSet
from nemesis.schemas.plans import Plan, PlanAnswer, Report
from nemesis.streams.log import Log
from nemesis.streams.server import Server
from tests.cells import until
from tests.fake_agents import FakeAgent

pytestmark = pytest.mark.server
SECOND_NS = 1_000_000_000
START_NS = 1_700_000_000 * SECOND_NS
NODES = ("n0", "n1", "n2", "n3")
PATIENCE_S = 60.0


class Site:
    """A cell of three nodes of two ranks and a spare, and everybody who writes to it."""

    def __init__(self, server: Server, logs: dict[str, Log], agents: dict[str, FakeAgent]) -> None:
        self.server = server
        self.logs = logs
        self.agents = agents
        self.seq = 0
        self.ticks_count = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def say(self, data: msgspec.Struct, key: str, role: str) -> int:
        subject, payload = encode_conclusion(
            id=f"{role}/{self.seq}", source="/test", at_ns=START_NS, data=data, key=key, job="llama"
        )
        self.seq += 1
        return await self.logs[role].publish(subject, payload)

    async def tick(self, seconds: int = 1) -> None:
        self.ticks_count += seconds
        data = ClockTicked(
            node="clock",
            start_ns=1,
            n=self.ticks_count,
            at_ns=START_NS + self.ticks_count * SECOND_NS,
        )
        await self.logs["ticker"].publish(
            telemetry_subject("clock", "tick"), encode_observation(data)
        )

    async def submit(self) -> int:
        submitted = JobSubmitted(
            at_ns=START_NS,
            by="ann",
            reason="",
            job="llama",
            nodes=NODES[:3],
            ranks_per_node=2,
            spares=NODES[3:],
        )
        return await self.say(submitted, "llama", "operator")

    async def hold(self, revision: int, name: str = "llama/1", **fields: Any) -> int:
        base: dict[str, Any] = {
            "mode": "act",
            "deadline_ns": START_NS + 60 * SECOND_NS,
            "epoch": 0,
        }
        data = QuiesceDecided(
            at_ns=START_NS,
            reason="",
            decision=name,
            incident="i",
            job="llama",
            job_revision=revision,
            dead_ranks=(3,),
            **(base | fields),
        )
        return await self.say(data, "llama", "processor/healer")

    async def shrink(self, revision: int, name: str = "llama/2", **fields: Any) -> int:
        base: dict[str, Any] = {
            "mode": "act",
            "deadline_ns": START_NS + 60 * SECOND_NS,
            "action": "shrink",
            "epoch": 1,
            "members": "0-2,4-5",
            "world": 5,
            "removed_ranks": (3,),
        }
        data = RecoveryDecided(
            at_ns=START_NS,
            reason="",
            decision=name,
            incident="i",
            job="llama",
            target="job/llama",
            job_revision=revision,
            **(base | fields),
        )
        return await self.say(data, "llama", "processor/healer")

    async def start_actor(self, name: str = "a") -> asyncio.Task[None]:
        log = await self.server.connect("actor/job")
        actor = JobActor(log, name)

        async def run() -> None:
            try:
                await actor.run()
            finally:
                await log.close()

        task = asyncio.create_task(run())
        self._tasks.append(task)
        return task

    async def kill(self, task: asyncio.Task[None]) -> None:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    async def done(self) -> list[tuple[int, Any]]:
        """Every fact that actors wrote, with its sequence."""
        wanted = (
            AttemptStarted | AttemptCompleted | AttemptFailed | AttemptOutcomeUnknown
        ) | MembershipReported
        log = self.logs["operator"]
        found = []
        async for record in log.read_range(1, (await log.bounds()).last_seq):
            space, token = record.subject.split(".")[1:3]
            if space == "events":
                data = decode_conclusion(token, record.payload)[1]
                if isinstance(data, wanted):
                    found.append((record.seq, data))
        return found

    async def until(self, *structs: type[Any], decision: str = "") -> Any:
        """The newest fact of these kinds, once there is one."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for seq, data in reversed(await self.done()):
                    if isinstance(data, structs) and getattr(data, "decision", "") in (
                        decision,
                        "" if isinstance(data, MembershipReported) else decision,
                    ):
                        return seq, data
                await asyncio.sleep(0.05)

    async def until_after(self, seq: int, struct: type[Any]) -> Any:
        """The first fact of this kind behind a sequence, once there is one."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for each in await self.done():
                    if each[0] > seq and isinstance(each[1], struct):
                        return each
                await asyncio.sleep(0.05)

    def effects(self) -> list[tuple[str, int, int]]:
        return sorted(effect for agent in self.agents.values() for effect in agent.effects)

    async def close(self) -> None:
        for task in self._tasks:
            await self.kill(task)
        for agent in self.agents.values():
            await agent.leave()
        for log in self.logs.values():
            await log.close()


@asynccontextmanager
async def site(folder: Path) -> AsyncIterator[Site]:
    async with Server(
        "test", folder=folder / "cell", roles=[f"node/{node}" for node in NODES]
    ) as server:
        roles = ("operator", "processor/healer", "ticker", "actor/job")
        logs = {role: await server.connect(role) for role in roles}
        agents = {
            node: FakeAgent(node, (2 * at, 2 * at + 1) if at < 3 else ())
            for at, node in enumerate(NODES)
        }
        made = Site(server, logs, agents)
        for agent in agents.values():
            await agent.join(server)
        try:
            await made.tick()
            yield made
        finally:
            await made.close()


def run(folder: Path, body: Callable[[Site], Awaitable[None]]) -> None:
    async def main() -> None:
        async with site(folder) as made:
            await body(made)

    asyncio.run(main())


SHRUNK = sorted([("membership", 1, rank) for rank in (0, 1, 2, 3, 4, 5)])


def test_a_hold_and_a_shrink_are_carried_out_once_by_two_copies(tmp_path: Path) -> None:
    async def body(cell: Site) -> None:
        submitted = await cell.submit()
        cell.agents["n1"].die(3)
        await cell.start_actor("a")
        await cell.start_actor("b")
        await cell.hold(submitted)
        seq, held = await cell.until(AttemptCompleted, decision="llama/1")
        assert (held.lost, held.silent, held.step, held.world) == ("3", "", 7, 6)
        assert cell.effects() == [("hold", 0, rank) for rank in (0, 1, 2, 4, 5)]
        await cell.shrink(seq)
        _, shrunk = await cell.until(AttemptCompleted, decision="llama/2")
        assert (shrunk.epoch, shrunk.world, shrunk.lost, shrunk.restarts) == (1, 5, "", 0)
        assert shrunk.reason == "llama goes on in epoch 1 at step 7."
        kinds = [type(data).__name__ for _, data in await cell.done()]
        assert kinds == ["AttemptStarted", "AttemptCompleted"] * 2
        assert cell.effects() == sorted([("hold", 0, rank) for rank in (0, 1, 2, 4, 5)] + SHRUNK)

    run(tmp_path, body)


def test_a_claim_of_a_copy_that_was_killed_is_taken_over_and_nothing_is_done_twice(
    tmp_path: Path,
) -> None:
    async def body(cell: Site) -> None:
        submitted = await cell.submit()
        cell.agents["n1"].die(3)
        await cell.agents["n2"].leave()  # the attempt cannot end while this one is away
        first = await cell.start_actor("a")
        shrink = await cell.shrink(submitted)
        await cell.until(AttemptStarted, decision="llama/2")
        await cell.agents["n0"].told.wait()
        await cell.agents["n1"].told.wait()
        await cell.kill(first)
        await cell.agents["n2"].join(cell.server)
        await cell.start_actor("a")
        seq, done = await cell.until(AttemptCompleted, decision="llama/2")
        assert done.world == 5
        assert seq > shrink
        assert cell.effects() == SHRUNK
        observed = [plan.kind for plan in cell.agents["n0"].heard]
        assert observed == ["membership", "observe"]
        claims = [data.attempt for _, data in await cell.done() if isinstance(data, AttemptStarted)]
        assert claims == [1, 2]

    run(tmp_path, body)


def test_a_claim_of_another_copy_is_left_alone_until_its_log_time_is_over(tmp_path: Path) -> None:
    async def body(cell: Site) -> None:
        submitted = await cell.submit()
        cell.agents["n1"].die(3)
        for node in NODES:
            await cell.agents[node].leave()
        first = await cell.start_actor("a")
        await cell.shrink(submitted)
        await cell.until(AttemptStarted, decision="llama/2")
        await cell.kill(first)
        for node in NODES:
            await cell.agents[node].join(cell.server)
        await cell.start_actor("b")
        await cell.tick(20)
        assert [plans for agent in cell.agents.values() for plans in agent.heard] == []
        await cell.tick(20)
        _, done = await cell.until(AttemptCompleted, decision="llama/2")
        assert done.actor == "b"
        assert cell.effects() == SHRUNK

    run(tmp_path, body)


def test_a_silent_node_ends_a_hold_with_its_ranks_named(tmp_path: Path) -> None:
    async def body(cell: Site) -> None:
        submitted = await cell.submit()
        cell.agents["n1"].die(3)
        await cell.agents["n2"].leave()
        await cell.start_actor()
        await cell.hold(submitted)
        _, held = await cell.until(AttemptCompleted, decision="llama/1")
        assert (held.silent, held.lost) == ("4-5", "3")

    run(tmp_path, body)


def test_a_membership_with_a_silent_node_has_an_unknown_outcome(tmp_path: Path) -> None:
    async def body(cell: Site) -> None:
        submitted = await cell.submit()
        await cell.agents["n2"].leave()
        await cell.start_actor()
        await cell.shrink(submitted)
        _, unknown = await cell.until(AttemptOutcomeUnknown, decision="llama/2")
        assert unknown.silent == "4-5"

    run(tmp_path, body)


def test_a_rank_that_dies_in_the_new_epoch_fails_the_attempt(tmp_path: Path) -> None:
    async def body(cell: Site) -> None:
        submitted = await cell.submit()
        cell.agents["n0"].obeys = False
        await cell.start_actor()
        await cell.shrink(submitted)
        _, failed = await cell.until(AttemptFailed, decision="llama/2")
        assert (failed.lost, failed.withdrawn) == ("0-1", False)

    run(tmp_path, body)


def test_an_answer_that_is_read_after_a_later_report_does_not_undo_it(tmp_path: Path) -> None:
    async def body(cell: Site) -> None:
        heard: list[Report | PlanAnswer] = []
        channel = Channel(
            cell.logs["actor/job"].connection,
            ranks_of=lambda job: 6,
            plans_for=lambda node: (),
            on_said=heard.append,
            on_change=lambda: None,
        )
        await channel.open()
        may_answer = cell.agents["n0"].may_answer = asyncio.Event()
        plan = Plan(job="llama", epoch=0, kind="hold", members="0-5")
        sending = asyncio.create_task(channel.send("n0", plan))
        await until(lambda: bool(heard), "the report is heard")
        may_answer.set()
        assert [each.stage for each in (await sending).ranks] == ["running", "running"]
        assert [each.stage for each in channel.states("llama").values()] == ["held", "held"]

    run(tmp_path, body)


def test_a_claim_grows_while_ranks_are_on_their_way_and_no_other_copy_takes_it_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (attempt, notary):
        monkeypatch.setattr(module, "CLAIM_NS", 2 * SECOND_NS)

    async def body(cell: Site) -> None:
        submitted = await cell.submit()
        cell.agents["n0"].is_slow = True
        for name in ("a", "b"):
            await cell.start_actor(name)
        await cell.shrink(submitted)
        claim, first = await cell.until(AttemptStarted, decision="llama/2")
        for _ in range(4):
            await cell.tick()
            claim, started = await cell.until_after(claim, AttemptStarted)
            assert (started.attempt, started.actor) == (1, first.actor)
            assert started.deadline_ns == started.at_ns + 2 * SECOND_NS
        await cell.agents["n0"].arrive()
        await cell.until(AttemptCompleted, decision="llama/2")
        assert cell.effects() == SHRUNK

    run(tmp_path, body)


def test_ranks_of_which_nothing_is_seen_end_the_attempt_when_its_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (attempt, notary):
        monkeypatch.setattr(module, "CLAIM_NS", 2 * SECOND_NS)
    monkeypatch.setattr(attempt, "STARTING_NS_MAX", 3 * SECOND_NS)

    async def body(cell: Site) -> None:
        submitted = await cell.submit()
        cell.agents["n0"].is_slow = True
        await cell.start_actor()
        await cell.shrink(submitted)
        await cell.until(AttemptStarted, decision="llama/2")
        await cell.tick(4)
        _, failed = await cell.until(AttemptFailed, decision="llama/2")
        assert failed.reason == "Not every rank arrived in time."

    run(tmp_path, body)


def test_what_is_void_shadow_vetoed_or_not_approved_is_not_carried_out(tmp_path: Path) -> None:
    async def body(cell: Site) -> None:
        submitted = await cell.submit()
        await cell.shrink(submitted - 1, name="llama/1")  # void: made before the submission
        last = await cell.shrink(submitted + 1, name="llama/2", mode="shadow")
        last = await cell.shrink(last, name="llama/3", mode="approve")
        veto = DecisionVetoed(at_ns=START_NS, by="ann", reason="", decision="llama/3")
        await cell.say(veto, "llama/3", "operator")
        await cell.start_actor()
        last = await cell.shrink(last, name="llama/4", mode="approve", epoch=2)
        approval = DecisionApproved(at_ns=START_NS, by="ann", reason="", decision="llama/4")
        await cell.say(approval, "llama/4", "operator")
        await cell.until(AttemptCompleted, decision="llama/4")
        assert {data.decision for _, data in await cell.done()} == {"llama/4"}
        assert {epoch for _, epoch, _ in cell.effects()} == {2}

    run(tmp_path, body)


def test_nothing_begins_while_everything_is_paused(tmp_path: Path) -> None:
    async def body(cell: Site) -> None:
        submitted = await cell.submit()
        pause = PauseSet(at_ns=START_NS, by="ann", reason="", scope="ALL", paused=True)
        await cell.say(pause, "all", "operator")
        await cell.shrink(submitted)
        await cell.start_actor()
        assert (await cell.agents["n0"].hello()).plans == ()  # it has read the log to its end
        assert await cell.done() == []
        await cell.say(msgspec.structs.replace(pause, paused=False), "all", "operator")
        await cell.until(AttemptCompleted, decision="llama/2")

    run(tmp_path, body)


def test_a_pause_that_an_actor_has_not_read_yet_stops_it_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = Notary.claim

    async def body(cell: Site) -> None:
        async def late(self: Notary, due: Due) -> int:
            pause = PauseSet(at_ns=START_NS, by="ann", reason="", scope="ALL", paused=True)
            await cell.say(pause, "all", "operator")
            return await claim(self, due)

        monkeypatch.setattr(Notary, "claim", late)
        await cell.start_actor()
        await cell.shrink(await cell.submit())
        _, failed = await cell.until(AttemptFailed, decision="llama/2")
        assert (failed.withdrawn, failed.reason) == (True, "Not carried out: ALL is paused.")
        assert cell.effects() == []

    run(tmp_path, body)


def test_an_agent_that_comes_back_gets_its_last_plans(tmp_path: Path) -> None:
    async def body(cell: Site) -> None:
        submitted = await cell.submit()
        actor = await cell.start_actor()
        last = await cell.hold(submitted)
        last, _ = await cell.until(AttemptCompleted, decision="llama/1")
        await cell.shrink(last)
        await cell.until(AttemptCompleted, decision="llama/2")
        await cell.kill(actor)
        await cell.start_actor("b")
        plans = (await cell.agents["n1"].hello()).plans
        assert [(plan.kind, plan.epoch, plan.members) for plan in plans] == [
            ("membership", 1, "0-2,4-5")
        ]
        assert plans[0] == msgspec.structs.replace(
            cell.agents["n1"].heard[-1], boot_ids=plans[0].boot_ids
        )
        assert (await cell.agents["n3"].hello()).plans == ()

    run(tmp_path, body)


def test_what_agents_did_without_the_log_is_written_down_once_and_whole(tmp_path: Path) -> None:
    async def body(cell: Site) -> None:
        await cell.submit()
        await cell.start_actor("a")
        await cell.start_actor("b")
        await cell.agents["n0"].hello()
        for node in ("n0", "n2"):  # n1 finds the log later than they do
            cell.agents[node].go_on_alone(1, "0-2,4-5")
            await cell.agents[node].report()
        seq, made = await cell.until(MembershipReported)
        assert (made.epoch, made.members, made.world, made.step) == (1, "0-2,4-5", 5, 7)
        cell.agents["n1"].go_on_alone(1, "0-2,4-5")
        await cell.agents["n1"].report()
        await cell.shrink(seq, epoch=2, members="0-2,4", world=4, removed_ranks=(5,))
        await cell.until(AttemptCompleted, decision="llama/2")
        written = [data for _, data in await cell.done() if isinstance(data, MembershipReported)]
        assert len(written) == 1

    run(tmp_path, body)


def test_what_a_minority_of_agents_claims_to_have_agreed_on_is_not_written_down(
    tmp_path: Path,
) -> None:
    async def body(cell: Site) -> None:
        await cell.submit()
        await cell.start_actor()
        await cell.agents["n0"].hello()
        for agent in cell.agents.values():
            agent.go_on_alone(1, "2-5")
        for members in ("0-1", "0-5", "0-1,900", "0-", "2-5"):
            cell.agents["n0"].agreed = members
            await cell.agents["n0"].report()
        for node in ("n1", "n2"):
            await cell.agents[node].report()
        _, made = await cell.until(MembershipReported)
        assert made.members == "2-5"
        written = [data for _, data in await cell.done() if isinstance(data, MembershipReported)]
        assert len(written) == 1

    run(tmp_path, body)


def test_a_hold_that_comes_after_agents_went_on_alone_tells_of_their_membership_and_is_withdrawn(
    tmp_path: Path,
) -> None:
    async def body(cell: Site) -> None:
        submitted = await cell.submit()
        for agent in cell.agents.values():  # their reports were sent before anybody listened
            agent.go_on_alone(1, "0-2,4-5")
        await cell.agents["n2"].leave()  # this one finds the log later
        await cell.start_actor()
        await cell.hold(submitted)
        made_seq, made = await cell.until(MembershipReported)
        assert (made.epoch, made.members) == (1, "0-2,4-5")
        failed_seq, failed = await cell.until(AttemptFailed, decision="llama/1")
        assert failed_seq > made_seq
        assert (failed.withdrawn, failed.lost) == (True, "")
        assert failed.reason == "Not carried out: the job is in epoch 1."
        assert cell.effects() == []

    run(tmp_path, body)


def test_a_single_agent_that_claims_to_have_gone_on_alone_fails_the_attempt(tmp_path: Path) -> None:
    async def body(cell: Site) -> None:
        submitted = await cell.submit()
        cell.agents["n1"].go_on_alone(1, "0-2,4-5")
        await cell.start_actor()
        await cell.hold(submitted)
        _, failed = await cell.until(AttemptFailed, decision="llama/1")
        assert not failed.withdrawn
        assert failed.reason.startswith("Node n1 refused the plan, stale: ")
        assert [data for _, data in await cell.done() if isinstance(data, MembershipReported)] == []

    run(tmp_path, body)


def test_an_attempt_that_a_newer_decision_makes_moot_is_withdrawn(tmp_path: Path) -> None:
    async def body(cell: Site) -> None:
        submitted = await cell.submit()
        cell.agents["n1"].die(3)
        await cell.agents["n2"].leave()
        await cell.start_actor()
        await cell.shrink(submitted)
        claim, _ = await cell.until(AttemptStarted, decision="llama/2")
        await cell.shrink(
            claim, name="llama/3", epoch=2, members="0-2", world=3, removed_ranks=(3, 4, 5)
        )
        _, failed = await cell.until(AttemptFailed, decision="llama/2")
        assert (failed.withdrawn, failed.reason) == (
            True,
            "Not carried out: llama/3 came after it.",
        )
        await cell.agents["n2"].join(cell.server)
        _, done = await cell.until(AttemptCompleted, decision="llama/3")
        assert (done.epoch, done.world) == (2, 3)

    run(tmp_path, body)


def test_what_agents_say_of_other_jobs_and_ranks_is_not_kept(tmp_path: Path) -> None:
    async def body(cell: Site) -> None:
        await cell.submit()
        log = await cell.server.connect("actor/job")
        actor = JobActor(log, "a")
        running = asyncio.create_task(actor.run())
        agent = cell.agents["n0"]
        await agent.hello()
        agent.stages = {rank: ("running", 0) for rank in (0, 1, 6, 10**9)}
        await agent.report()
        await until(lambda: bool(actor._channel.states("llama")), "the report is heard")
        assert set(actor._channel.states("llama")) == {("n0", 0), ("n0", 1)}
        assert actor._ranks_of("other") == 0
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await log.close()

    run(tmp_path, body)
