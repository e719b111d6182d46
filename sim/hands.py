"""The job actor without a wire: carries decisions out on the agents of a simulation, in its time.

The rules are those of the real actor: what is due (claims.py), the plan (planning.py), how far it
got (progress_of), and how long it is waited for: ranks that start or arrive get on, and the claim
is made longer for them. Only the waiting differs: time is an argument, an agent answers at once or,
where its node is lost, never.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from nemesis.actors.attempt import ANSWER_S, STARTING_NS_MAX
from nemesis.actors.claims import Claims, Due
from nemesis.actors.notary import CLAIM_NS
from nemesis.actors.planning import Progress, homes, nodes_of, placements_of, plan_of, progress_of
from nemesis.processors.fold import Input
from nemesis.schemas.done import Attempt, AttemptCompleted, AttemptFailed, AttemptStarted
from nemesis.schemas.plans import Plan, RankState
from nemesis.schemas.rank_ranges import format_ranks, parse_ranks
from nemesis.sim.simulation import Simulation

NAME: Final = "hands"
ANSWER_NS: Final = round(ANSWER_S * 1e9)


class _Open(msgspec.Struct):
    """An attempt that has not ended."""

    due: Due
    plan: Plan
    home: dict[int, str]
    began_ns: int
    answered: set[str]
    moved_ns: int
    """When ranks last got on."""
    seen: tuple[int, str] = (0, "")
    """How many had arrived then, and who was lost."""
    refused: str = ""


class Hands:
    """Acts on what is read back from the log, and writes what became of it."""

    def __init__(self, simulation: Simulation, write: Callable[[Attempt], None]) -> None:
        self.claims: Final = Claims(NAME)
        self.simulation = simulation
        """Whose agents carry decisions out."""
        self._write: Final = write
        self._states: Final[dict[tuple[str, int], RankState]] = {}
        self._open: Final[dict[str, _Open]] = {}

    @property
    def is_busy(self) -> bool:
        """Whether there is something to carry out."""
        return bool(self._open or self.claims.due())

    def take(self, item: Input) -> None:
        """Read one record of the log."""
        self.claims.take(item)

    def act(self, now_ns: int) -> None:
        """Hear the agents, begin what is due, end what is done."""
        for node, agent in self.simulation.agents.items():
            if agent.is_cut_off:
                continue
            reports, agent.reports = agent.reports, []
            for report in reports:
                self._hear(node, report.ranks)
        for due in self.claims.due():
            if due.decision.decision not in self._open:
                self._begin(due, now_ns)
        for name, each in list(self._open.items()):
            outcome = self._outcome(each, now_ns)
            if outcome is not None:
                del self._open[name]
                self._write(outcome)

    def _begin(self, due: Due, now_ns: int) -> None:
        decision = due.decision
        self._claim(due)
        standing = self.claims.jobs[decision.job]
        agents = self.simulation.agents
        plan = plan_of(decision, standing, {node: each.boot_id for node, each in agents.items()})
        begun = _Open(
            due=due,
            plan=plan,
            home=homes(standing, placements_of(decision, standing)),
            began_ns=now_ns,
            answered=set(),
            moved_ns=now_ns,
        )
        for node in nodes_of(decision, standing):
            agent = agents.get(node)
            if agent is None or agent.is_cut_off:
                continue
            answer = agent.follow(plan, now_ns)
            begun.answered.add(node)
            self._hear(node, answer.ranks)
            if answer.outcome not in ("accepted", "repeated"):
                begun.refused = f"Node {node} refused the plan, {answer.outcome}: {answer.why}."
        self._open[decision.decision] = begun

    def _claim(self, due: Due) -> None:
        decision, log_time_ns = due.decision, self.claims.log_time_ns
        self._write(
            AttemptStarted(
                at_ns=log_time_ns,
                reason=f"{NAME} carries out {decision.decision}.",
                decision=decision.decision,
                actor=NAME,
                job=decision.job,
                epoch=decision.epoch,
                deadline_ns=log_time_ns + CLAIM_NS,
                attempt=due.attempt,
            )
        )

    def _note(self, each: _Open, progress: Progress, now_ns: int) -> None:
        """Ranks that arrive or start get on; until that takes too long in all."""
        log_time_ns = self.claims.log_time_ns
        begun_ns, deadline_ns = self.claims.claimed(each.due.decision)
        if log_time_ns - begun_ns > STARTING_NS_MAX:
            return
        seen = (progress.arrived_count, progress.lost)
        if progress.starting_count or seen != each.seen:
            each.moved_ns = now_ns
        each.seen = seen
        starts = each.plan.kind == "membership" and progress.starting_count
        if starts and deadline_ns - log_time_ns <= CLAIM_NS // 2:
            self._claim(each.due)

    def _hear(self, node: str, ranks: tuple[RankState, ...]) -> None:
        self._states.update({(node, state.rank): state for state in ranks})

    def _outcome(self, each: _Open, now_ns: int) -> Attempt | None:
        plan, waited_ns = each.plan, now_ns - each.began_ns
        progress = progress_of(plan, each.home, self._states)
        self._note(each, progress, now_ns)
        members = parse_ranks(plan.members)
        silent = format_ranks(rank for rank in members if each.home[rank] not in each.answered)
        overtaken = self.claims.overtaken(each.due.decision)
        if overtaken:
            return self._failed(each, f"Not carried out: {overtaken}.", progress, withdrawn=True)
        if progress.outcome == "done":
            return self._completed(each, progress, "", waited_ns)
        if each.refused:
            return self._failed(each, each.refused, progress)
        if progress.outcome == "failed":
            return self._failed(each, f"Rank {progress.lost} ended.", progress)
        if plan.kind == "hold" and silent and waited_ns > self.claims.policy.silence_wait_ns:
            return self._completed(each, progress, silent, waited_ns)
        if (silent and waited_ns > ANSWER_NS) or now_ns - each.moved_ns > CLAIM_NS:
            return self._failed(each, "Not every rank arrived in time.", progress)
        return None

    def _completed(
        self, each: _Open, progress: Progress, silent: str, waited_ns: int
    ) -> AttemptCompleted:
        plan = each.plan
        what = "is held" if plan.kind == "hold" else f"goes on in epoch {plan.epoch}"
        return AttemptCompleted(
            at_ns=self.claims.log_time_ns,
            reason=f"{plan.job} {what} at step {progress.step}.",
            decision=plan.decision,
            actor=NAME,
            job=plan.job,
            epoch=plan.epoch,
            lost=progress.lost,
            silent=silent,
            step=progress.step,
            world=plan.world,
            duration_ns=waited_ns,
            restarts=len(parse_ranks(plan.started)),
        )

    def _failed(
        self, each: _Open, reason: str, progress: Progress, *, withdrawn: bool = False
    ) -> AttemptFailed:
        return AttemptFailed(
            at_ns=self.claims.log_time_ns,
            reason=reason,
            decision=each.due.decision.decision,
            actor=NAME,
            job=each.due.decision.job,
            epoch=each.due.decision.epoch,
            lost=progress.lost,
            withdrawn=withdrawn,
        )
