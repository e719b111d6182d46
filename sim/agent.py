"""The agent of one simulated node: fences, holds, follows plans, reports.

It decides nothing. With the log it fences a dead rank and waits for plans; without it, it does
only what cannot be wrong: fence its own dead ranks, hold the survivors, keep what it saw. After the
grace it follows what the job said before (`on_log_loss`), once, under the next epoch, and only
together with more than half of the job's nodes. The wire is elsewhere (actors/node_link.py).
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

import msgspec

from nemesis.actors.following import Accepted, Deed, answer_to, deeds, judge
from nemesis.producers.origin import Stamp
from nemesis.schemas.observed import Observation
from nemesis.schemas.operated import JobSubmitted
from nemesis.schemas.plans import Outcome, Plan, PlanAnswer, RankState, Report
from nemesis.schemas.rank_ranges import format_ranks, parse_ranks
from nemesis.sim.jobs.job import Job
from nemesis.sim.jobs.ranks import Rank, pid_of
from nemesis.sim.rendezvous import Rendezvous
from nemesis.sim.telemetry.evidence import Evidence, SeenOrigin
from nemesis.sim.telemetry.witness import Witness
from nemesis.sim.topology.cluster import Cluster
from nemesis.streams.replacing import replace_file


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """One line of an agent's journal: an effect that really took place."""

    at_ns: int
    node: str
    epoch: int
    doing: str
    rank: int
    decision: str = ""
    by: str = "plan"


class Surroundings(msgspec.Struct, frozen=True):
    """What all agents of a run share."""

    cluster: Cluster
    jobs: Mapping[str, Job]
    submitted: Mapping[str, JobSubmitted]
    rendezvous: Mapping[str, Rendezvous]
    concerned: set[str]
    """Nodes whose agents have something to look at or to say, or may have soon."""


class Agent:
    """One node's agent, one life of it."""

    def __init__(
        self,
        node: str,
        around: Surroundings,
        evidence: Evidence,
        *,
        folder: Path,
        boot_id: str,
        start_ns: int,
    ) -> None:
        self.node: Final = node
        self.boot_id: Final = boot_id
        self.start_ns: Final = start_ns
        self.reports: list[Report] = []
        self.is_cut_off = False
        """Nothing reaches it, and nothing that it says reaches anybody."""
        origin = SeenOrigin(node, evidence, start_ns=start_ns, boot_id=boot_id)
        home = around.cluster.job_on(node) or around.cluster.job
        self._home: Final = home.name
        self._job = around.jobs[self._home]
        """Whose ranks it serves: those of the job that the cluster gave it to; on a spare, of the
        job whose plan came last."""
        self.witness: Final = Witness(around.cluster, self._job, origin, evidence)
        self._around: Final = around
        self._changes_seen = -1
        self._is_settling = True
        self._away_since_ns: int | None = None
        self._reported: tuple[tuple[object, ...], ...] = ()
        self._reports_count = 0
        folder.mkdir(parents=True, exist_ok=True)
        self._plan_path: Final = folder / "plan.json"
        self._journal_path: Final = folder / "effects.jsonl"
        self._accepted: Accepted | None = None
        if self._plan_path.exists():
            self._accepted = msgspec.json.decode(self._plan_path.read_bytes(), type=Accepted)
            self._serve(self._accepted.plan.job)

    @property
    def ranks(self) -> list[Rank]:
        """The ranks that run, or ran last, on this node."""
        return self._job.on_node(self.node)

    def stamp(self, kind: str, at_ns: int) -> Stamp:
        """What a fact of this node starts with."""
        return self.witness.origin.stamp(kind, at_ns)

    def carried(self, now_ns: int) -> list[Observation]:
        """Take away what there is to send."""
        return self.witness.carried(now_ns)

    def begin(self, now_ns: int) -> None:
        """Tell what the node is made of, and finish what an earlier life left half done."""
        self._around.concerned.add(self.node)
        self.witness.describe(now_ns)
        if self._accepted is not None:
            self._carry_out(self._accepted, now_ns)

    @property
    def is_restless(self) -> bool:
        """Something on the node is on its way to be otherwise."""
        return self.is_cut_off or self._is_settling

    def tick(self, now_ns: int, *, connected: bool) -> None:
        """Look at the node: many times a second while it is restless, at its polls otherwise."""
        if self.has_news:
            for rank in self.ranks:
                if rank.stage == "failed":
                    self._bury(rank, now_ns)
        self.witness.look(now_ns)
        self.is_cut_off = not connected
        if connected:
            self._away_since_ns = None
        else:
            self._without_log(now_ns)
        if self.has_news:
            self._changes_seen = self._job.changes_count.get(self.node, 0)
            self._is_settling = any(
                rank.stage in ("failed", "starting", "held") or not rank.completed_count
                for rank in self.ranks
            )
            self.report_changes(now_ns)

    def follow(self, plan: Plan, now_ns: int) -> PlanAnswer:
        """Judge a plan, do what it says if it counts, and say how things stand."""
        judged: tuple[Outcome, str]
        self._around.concerned.add(self.node)
        if not self._can_serve(plan.job):
            judged = "unknown_job", f"{self.node} runs {self._job.name}"
        else:
            ours = self._accepted if plan.job == self._job.name else None
            last = ours.plan if ours else None
            judged = judge(plan, node=self.node, boot_id=self.boot_id, last=last)
        if judged[0] == "accepted" and plan.kind != "observe":
            self._serve(plan.job)
            if plan.kind == "hold":
                self.witness.dump(now_ns)  # before what they wait in is aborted
            self._accept(Accepted(plan=plan), now_ns)
        accepted, agreed = self._standing()
        return answer_to(
            plan,
            judged,
            node=self.node,
            boot_id=self.boot_id,
            last=accepted,
            ranks=self._states(),
            at=(self.start_ns, self._reports_count),
            members=agreed,
        )

    def report_changes(self, now_ns: int, *, always: bool = False) -> None:
        """Report the ranks if one changed its stage or made its first step in an epoch."""
        ranks = self.ranks
        seen = tuple((r.number, r.stage, r.epoch, r.completed_count > 0) for r in ranks)
        if not ranks or (seen == self._reported and not always):
            return
        self._reported = seen
        self._reports_count += 1
        accepted, agreed = self._standing()
        self.reports.append(
            Report(
                node=self.node,
                boot_id=self.boot_id,
                start_ns=self.start_ns,
                n=self._reports_count,
                job=self._job.name,
                epoch=accepted.epoch if accepted else 0,
                kind=accepted.kind if accepted else "membership",
                ranks=self._states(),
                by="agent" if accepted is None or agreed else "plan",
                members=agreed,
            )
        )

    @property
    def has_news(self) -> bool:
        """Whether the state of its ranks has changed since it looked."""
        return self._job.changes_count.get(self.node, 0) != self._changes_seen

    def _can_serve(self, job: str) -> bool:
        """Whether the node's ranks are those of a job, or can be."""
        if job == self._job.name:
            return True
        idle = all(rank.stage in ("fenced", "left", "failed") for rank in self.ranks)
        return idle and job in self._around.submitted

    def _serve(self, job: str) -> None:
        if job != self._job.name:
            self._job = self.witness.job = self._around.jobs[job]
            self._accepted, self._changes_seen = None, -1

    def _standing(self) -> tuple[Plan | None, str]:
        """The last plan, and the members of its epoch where agents made it alone."""
        accepted = self._accepted
        if accepted is None:
            return None, ""
        return accepted.plan, accepted.plan.members if accepted.by_itself else ""

    def _states(self) -> tuple[RankState, ...]:
        return tuple(
            RankState(
                rank=rank.number,
                stage=rank.stage,
                epoch=rank.epoch,
                step=rank.step,
                pid=pid_of(rank.number),
            )
            for rank in self.ranks
        )

    def _bury(self, rank: Rank, now_ns: int) -> None:
        """Make sure that nothing of a dead rank runs on, and tell."""
        self._do(Deed("fence", rank.number), epoch=rank.epoch, now_ns=now_ns, by="agent")
        self.witness.exited(rank, now_ns)

    def _without_log(self, now_ns: int) -> None:
        """What an agent may do alone: hold, and after the grace what was said before, once."""
        if self._away_since_ns is None:
            self._away_since_ns = now_ns
        ended = self._ended(now_ns)
        for rank in self.ranks:
            if rank.stage == "running" and not ended.isdisjoint(rank.members):
                deed = Deed("hold", rank.number)
                self._do(deed, epoch=rank.epoch, now_ns=now_ns, by="agent")
        submitted, accepted = self._around.submitted[self._job.name], self._accepted
        plan = accepted.plan if accepted else None
        grace_ns = plan.grace_ns if plan else submitted.grace_ns
        what = plan.on_log_loss if plan else submitted.on_log_loss
        held = [rank for rank in self.ranks if rank.stage == "held"]
        if not held or what == "wait" or (accepted is not None and accepted.by_itself):
            return
        if now_ns - self._away_since_ns >= grace_ns:
            self._meet_the_others(held, now_ns, restart=what == "restart")

    def _ended(self, now_ns: int) -> set[int]:
        """Ranks whose end is known here: without them no collective can complete.

        Of another node's the connections close, or nothing answers on them any more. Who only
        saves or loads keeps its own open, however long the others wait.
        """
        known = self._job.ranks.values() if self.witness.stalled(now_ns) else self.ranks
        return {rank.number for rank in known if rank.stage in ("failed", "fenced")}

    def _meet_the_others(self, held: list[Rank], now_ns: int, *, restart: bool) -> None:
        before = held[0].members
        epoch = held[0].epoch + 1
        place = {rank.number: rank.node for rank in self._job.ranks.values()}
        offered = self.ranks if restart else held
        members = self._around.rendezvous[self._job.name].come(
            epoch,
            self.node,
            [rank.number for rank in offered],
            {place[number] for number in before},
            now_ns,
        )
        if members is None:
            return
        plan = Plan(
            job=self._job.name,
            epoch=epoch,
            kind="membership",
            members=format_ranks(members),
            world=len(members),
            fenced=format_ranks(before - members),
            started=format_ranks(members) if restart else "",
            state_from="checkpoint" if restart else "memory",
            issued_ns=now_ns,
        )
        self._accept(Accepted(plan=plan, by_itself=True), now_ns)

    def _accept(self, accepted: Accepted, now_ns: int) -> None:
        """Keep the plan first, then act: who dies in between finishes at his next start."""
        replace_file(self._plan_path, msgspec.json.encode(accepted))
        self._accepted = accepted
        self._carry_out(accepted, now_ns)

    def _carry_out(self, accepted: Accepted, now_ns: int) -> None:
        plan = accepted.plan
        submitted = self._around.cluster.ranks_of(self.node) if plan.job == self._home else ()
        for deed in deeds(plan, self.node, self.ranks, submitted):
            by = "agent" if accepted.by_itself else "plan"
            self._do(deed, epoch=plan.epoch, now_ns=now_ns, by=by, plan=plan)

    def _do(
        self, deed: Deed, *, epoch: int, now_ns: int, by: str, plan: Plan | None = None
    ) -> None:
        number, job = deed.rank, self._job
        simple: dict[str, Callable[[int], None]] = {
            "hold": job.hold,
            "fence": job.fence,
            "leave": job.leave,
        }
        if deed.doing in simple:
            simple[deed.doing](number)
        else:
            assert plan is not None, f"{deed.doing} without a plan"
            members = _members(plan.members)
            if deed.doing == "join":
                job.join(number, epoch, members, now_ns)
            else:
                step = job.checkpoint_step if plan.state_from == "checkpoint" else job.step
                at = plan.step if plan.step >= 0 else step
                job.start(number, self.node, epoch, members, now_ns, step=at)
        done = Done(
            at_ns=now_ns,
            node=self.node,
            epoch=epoch,
            doing=deed.doing,
            rank=number,
            decision=plan.decision if plan else "",
            by=by,
        )
        with self._journal_path.open("ab") as file:
            file.write(msgspec.json.encode(done) + b"\n")


@lru_cache(maxsize=16)
def _members(ranks: str) -> frozenset[int]:
    """One set for all ranks that are told of it."""
    return frozenset(parse_ranks(ranks))


def read_journal(folder: Path) -> list[Done]:
    """Every effect that an agent had, oldest first."""
    path = folder / "effects.jsonl"
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [msgspec.json.decode(line, type=Done) for line in lines]
