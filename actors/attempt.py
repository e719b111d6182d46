"""One attempt at one decision: claim, wait until the claim is read back, act, observe, write down.

The claim is read back before anything is done, so everything that was written before it (a veto,
a newer decision) is known. Killed at any point, the next life or another copy takes the claim
over, observes first, and sends the plan only where it is missing; agents do nothing twice.
A rank that starts anew imports its libraries and loads its state, which takes seconds or many
minutes: while one is seen to be starting the claim is made longer, which the healer waits for too.
"""

import asyncio
import time
from contextlib import suppress
from typing import Final

import msgspec

from nemesis.actors.channel import Channel
from nemesis.actors.claims import Claims, Due, Standing
from nemesis.actors.notary import CLAIM_NS, Notary
from nemesis.actors.planning import (
    Progress,
    homes,
    nodes_of,
    placements_of,
    plan_of,
    progress_of,
    unattached_of,
)
from nemesis.schemas.done import Attempt, AttemptCompleted, AttemptFailed, AttemptOutcomeUnknown
from nemesis.schemas.plans import Plan, order_of
from nemesis.schemas.rank_ranges import format_ranks, parse_ranks

ANSWER_S: Final = 5.0  # an agent that was restarted, or whose link blinked, is back by then
LOOK_S: Final = 0.2  # how long to sleep at most between looks at what is known
STARTING_NS_MAX: Final = 1_800_000_000_000
"""From the first claim on. Loading of large checkpoints from shared storage is told in minutes;
half an hour is what torch.distributed waits for a rank by default (`default_pg_timeout`)."""
_REFUSALS: Final = frozenset({"stale", "other_boot", "refused", "unknown_job"})


class Attempting:
    """Runs one attempt to its end."""

    def __init__(self, due: Due, claims: Claims, channel: Channel, notary: Notary) -> None:
        self.changed: Final = asyncio.Event()
        """Set by the actor whenever the log or an agent said something."""
        self._due: Final = due
        self._decision: Final = due.decision
        self._claims: Final = claims
        self._channel: Final = channel
        self._notary: Final = notary
        self._heard: Final[set[str]] = set()
        self._refused: Final[dict[str, str]] = {}
        self._went_on_alone = False
        """Who refused made an epoch without the log: it is written down once most have said so."""
        self._listening_since_s = time.monotonic()
        self._lost_count = channel.lost_count
        self._seen = (0, "")
        """(ranks that arrived, ranks that were lost)."""
        self._moved_s = self._listening_since_s
        """When the ranks were last seen to get on."""

    async def run(self) -> None:
        """Claim, act, observe, write."""
        began = time.monotonic()
        claim = await self._notary.claim(self._due)
        if not claim:
            return
        self._listening_since_s = self._moved_s = time.monotonic()
        while self._claims.seq < claim:
            await self._pause()
        if why := self._claims.forbids(self._decision):
            await self._withdraw(why, claim)
            return
        standing = self._claims.jobs[self._decision.job]
        plan = plan_of(
            self._decision,
            standing,
            self._channel.boot_ids,
            stores=self._channel.stores(self._decision.job),
            at_boundary=self._claims.at_boundary(self._decision),
        )
        if blind := self._blind(plan, standing):
            await self._end(blind)
            return
        nodes = nodes_of(self._decision, standing)
        async with asyncio.TaskGroup() as tasks:
            senders = [tasks.create_task(self._tell(node, plan)) for node in nodes]
            outcome = await self._watch(plan, standing, claim, began)
            for sender in senders:
                sender.cancel()
        if outcome is not None:
            await self._end(outcome)

    def _blind(self, plan: Plan, standing: Standing) -> AttemptFailed | None:
        """A membership to be changed of ranks of which none has ever called the hook."""
        if plan.kind == "hold" or plan.members in (plan.started, standing.members):
            return None
        home = homes(standing, placements_of(self._decision, standing))
        unattached = unattached_of(plan, home, self._channel.states(plan.job))
        if not unattached:
            return None
        failed = self._failed(f"None of the ranks of {plan.job} has called the hook.", "")
        return msgspec.structs.replace(failed, unattached=format_ranks(unattached))

    async def _tell(self, node: str, plan: Plan) -> None:
        """Have one node follow the plan; where it is a second attempt, look before."""
        if self._due.attempt > 1:
            look = Plan(job=plan.job, epoch=plan.epoch, kind="observe", decision=plan.decision)
            seen = await self._channel.send(node, look)
            if order_of(seen.epoch, seen.kind) >= order_of(plan.epoch, plan.kind):
                self._heard.add(node)
                self.changed.set()
                return
        answer = await self._channel.send(node, plan)
        self._heard.add(node)
        if answer.outcome in _REFUSALS:
            self._refused[node] = f"{answer.outcome}: {answer.why}"
            self._went_on_alone = self._went_on_alone or bool(answer.members)
        self.changed.set()

    async def _watch(
        self, plan: Plan, standing: Standing, claim: int, began: float
    ) -> Attempt | None:
        """Wait for the end, whichever it is; None where it is not ours to write."""
        home = homes(standing, placements_of(self._decision, standing))
        states = self._channel.states(plan.job)
        while True:
            if not self._claims.holds(self._decision, claim):
                return None
            if what := self._claims.overtaken(self._decision):
                await self._withdraw(what, claim)
                return None
            progress = progress_of(plan, home, states)
            self._note(progress)
            waited_s = time.monotonic() - began
            outcome = self._outcome(plan, home, progress, waited_s)
            if outcome is not None:
                return outcome
            if plan.kind == "membership" and progress.starting_count:
                claim = await self._extended(claim)
            await self._pause()

    def _note(self, progress: Progress) -> None:
        """Ranks that arrive or start get on; until that takes too long in all."""
        begun_ns, _ = self._claims.claimed(self._decision)
        if self._claims.log_time_ns - begun_ns > STARTING_NS_MAX:
            return
        seen = (progress.arrived_count, progress.lost)
        if progress.starting_count or seen != self._seen:
            self._moved_s = time.monotonic()
        self._seen = seen

    async def _extended(self, claim: int) -> int:
        """The claim, a longer one where half of its time is over."""
        begun_ns, deadline_ns = self._claims.claimed(self._decision)
        now_ns = self._claims.log_time_ns
        if deadline_ns - now_ns > CLAIM_NS // 2 or now_ns - begun_ns > STARTING_NS_MAX:
            return claim
        longer = await self._notary.extend(self._due, claim)
        while self._claims.seq < longer:
            await self._pause()
        return longer or claim

    def _outcome(
        self, plan: Plan, home: dict[int, str], progress: Progress, waited_s: float
    ) -> Attempt | None:
        members = parse_ranks(plan.members)
        silent = format_ranks(rank for rank in members if home[rank] not in self._heard)
        answer_s = ANSWER_S
        if plan.kind == "hold" and not self._many_are_silent(home):
            answer_s = self._claims.policy.silence_wait_ns / 1e9
        if progress.outcome == "done":
            return self._completed(plan, progress, "", waited_s)
        if self._went_on_alone and self._listened_s() <= ANSWER_S:
            return None
        if self._refused:
            node, why = min(self._refused.items())
            return self._failed(f"Node {node} refused the plan, {why}.", progress.lost)
        if progress.outcome == "failed":
            return self._failed(f"Rank {progress.lost} ended in the new epoch.", progress.lost)
        if silent and self._listened_s() > answer_s:
            if plan.kind == "hold":
                return self._completed(plan, progress, silent, waited_s)
            return self._unknown(f"Rank {silent} is on a node that does not answer.", silent)
        if time.monotonic() - self._moved_s > CLAIM_NS / 1e9:
            if silent:
                return self._unknown("Not every node answered in time.", silent)
            return self._failed("Not every rank arrived in time.", progress.lost)
        return None

    def _listened_s(self) -> float:
        """How long agents could have been heard without a break: our own outage is no silence."""
        channel = self._channel
        if not channel.connected or channel.lost_count != self._lost_count:
            self._listening_since_s = time.monotonic()
            self._lost_count = channel.lost_count
        return time.monotonic() - self._listening_since_s

    def _many_are_silent(self, home: dict[int, str]) -> bool:
        """Whether it is rather the network that fell silent, and may come back."""
        nodes = set(home.values())
        silent = nodes - self._heard
        return len(silent) >= 3 and 10 * len(silent) > len(nodes)

    def _completed(
        self, plan: Plan, progress: Progress, silent: str, waited_s: float
    ) -> AttemptCompleted:
        return AttemptCompleted(
            at_ns=self._claims.log_time_ns,
            reason=_sentence(plan, progress, silent),
            decision=plan.decision,
            actor=self._claims.actor,
            job=plan.job,
            epoch=plan.epoch,
            lost=progress.lost,
            silent=silent,
            step=progress.step,
            world=plan.world,
            duration_ns=int(waited_s * 1e9),
            restarts=len(parse_ranks(plan.started)),
            unattached=progress.unattached,
            stopped=progress.stopped,
        )

    def _failed(self, reason: str, lost: str) -> AttemptFailed:
        return AttemptFailed(
            at_ns=self._claims.log_time_ns,
            reason=reason,
            decision=self._decision.decision,
            actor=self._claims.actor,
            job=self._decision.job,
            epoch=self._decision.epoch,
            lost=lost,
        )

    def _unknown(self, reason: str, silent: str) -> AttemptOutcomeUnknown:
        return AttemptOutcomeUnknown(
            at_ns=self._claims.log_time_ns,
            reason=reason,
            decision=self._decision.decision,
            actor=self._claims.actor,
            job=self._decision.job,
            epoch=self._decision.epoch,
            silent=silent,
        )

    async def _end(self, outcome: Attempt) -> None:
        """Write the outcome down and read it back: until then the decision looks open, and would
        be claimed once more."""
        written = await self._notary.end(outcome)
        while self._claims.seq < written:
            await self._pause()

    async def _withdraw(self, why: str, claim: int) -> None:
        """End an attempt that must not go on; silently where it is not ours any more."""
        if self._claims.holds(self._decision, claim):
            failed = self._failed(f"Not carried out: {why}.", "")
            await self._end(msgspec.structs.replace(failed, withdrawn=True))

    async def _pause(self) -> None:
        self.changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S):
                await self.changed.wait()


def _sentence(plan: Plan, progress: Progress, silent: str) -> str:
    """What a plan that was carried out has brought about."""
    but = f", all but rank {silent}, whose node does not answer" if silent else ""
    if progress.stopped:
        but += f", all but rank {progress.stopped}, whose process is stopped"
    held = plan.kind == "hold"
    if progress.unattached:
        runs = "nothing can hold them" if held else "they run, and no more can be seen of them"
        return f"No rank of {plan.job} has called the hook: {runs}{but}."
    what = "is held" if held else f"goes on in epoch {plan.epoch}"
    return f"{plan.job} {what} at step {progress.step}{but}."
