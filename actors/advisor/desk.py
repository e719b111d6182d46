"""What the advisor may ask of one moment: the checker, placement, the rules. Nothing here acts."""

from collections.abc import Sequence
from typing import Any, Final

from nemesis.processors.advice.rules import Broken, judge
from nemesis.processors.advice.situation import (
    Situation,
    Standing,
    case_of,
    planned,
    world_of,
)
from nemesis.processors.parallelism.check import check
from nemesis.processors.parallelism.parsing import BadSpecError
from nemesis.processors.placement.plan import Plan
from nemesis.processors.topology.pool import sums
from nemesis.schemas.advised import AdvisedAct
from nemesis.schemas.node_ranges import NODES_MAX, count_nodes, format_nodes, parse_nodes

JOBS_SHOWN: Final = 40
LEAVES_SHOWN: Final = 64
HELD_SHOWN: Final = 40


class Desk:
    """One moment of a cluster, seen from one job."""

    def __init__(self, situation: Situation, about: str) -> None:
        self._situation: Final = situation
        self._about: Final = about

    def document(self) -> dict[str, Any]:
        """The job, the queue and what is free, as plain values; long lists are cut and say so."""
        now, pool = self._situation, self._situation.usable
        waiting = [each for each in now.jobs if each.stage == "waiting"]
        shown = [each for each in now.jobs if each.stage != "over"][:JOBS_SHOWN]
        own = now.by_name.get(self._about)
        free = sums(pool.tiers[0], pool.free_counts) if pool.tiers else {}
        return {
            "about": self._about,
            "job": _job(own) if own else None,
            "queue": [each.job for each in waiting[:JOBS_SHOWN]],
            "other_jobs": [_job(each) for each in shown if each is not own],
            "jobs_in_all": len(now.jobs),
            "gpus_free": pool.free_count,
            "gpus_in_all": pool.gpu_count,
            "gpu_classes": sorted(set(pool.gpu_classes)),
            "free_nodes": format_nodes(now.free_nodes)[:LEAVES_SHOWN],
            "gpus_free_by_leaf": [free[leaf] for leaf in sorted(free)][:LEAVES_SHOWN],
            "held_nodes": dict(sorted(now.held.items())[:HELD_SHOWN]),
        }

    def validate(self, spec: str, gpus: int) -> dict[str, Any] | Broken:
        """What the type checker says; `gpus` 0: as many as the job has."""
        own = self._own(gpus)
        try:
            checked = check(case_of(own, self._situation.usable, spec))
        except BadSpecError as error:
            return Broken("language", error.message)
        return {
            "outcome": checked.outcome,
            "gpus": checked.gpu_count,
            "findings": [
                {"code": each.code, "text": each.text, "legal": each.legal, "waits": each.waits}
                for each in checked.findings
            ],
            "not_judged": checked.unknown,
        }

    def propose(
        self, job: str, *, avoid: Sequence[str], only: Sequence[str]
    ) -> dict[str, Any] | Broken:
        """Where a job would go; nodes in node_ranges form."""
        standing = self._situation.by_name.get(job)
        if standing is None:
            return Broken("unknown_job", f"no job {job}")
        if count_nodes((*avoid, *only)) > NODES_MAX:
            return Broken("no_such_node", f"more than {NODES_MAX} names")
        pool = self._situation.usable.without(parse_nodes(avoid))
        if only:
            chosen = set(parse_nodes(only))
            pool = pool.without([name for name in pool.nodes if name not in chosen])
        try:
            case = case_of(standing, self._situation.usable)
        except BadSpecError as error:
            return Broken("language", error.message)
        checked = check(case)
        if checked.outcome != "accepted":
            first = checked.findings[0]
            return Broken(first.code, f"{first.text}; {first.legal}" if first.legal else first.text)
        return _plan(planned(case, pool))

    def judge(self, act: AdvisedAct) -> Broken | None:
        """The rule that refuses an act, None where all let it pass."""
        return judge(self._situation, self._about, act)

    def _own(self, gpus: int) -> Standing:
        own = self._situation.by_name.get(self._about)
        if own is None:
            return Standing(job=self._about, spec="", stage="waiting", gpu_count=gpus)
        return Standing(
            job=own.job,
            spec=own.spec,
            stage=own.stage,
            gpu_count=gpus or world_of(own),
            model=own.model,
            settings=own.settings,
        )


def _job(job: Standing) -> dict[str, Any]:
    return {
        "job": job.job,
        "spec": job.spec,
        "gpus": world_of(job),
        "model": job.model.name if job.model else "",
        "stage": job.stage,
        "priority": job.priority,
        "team": job.team,
        "nodes": format_nodes(job.nodes),
        "why": job.reason,
    }


def _plan(plan: Plan) -> dict[str, Any]:
    return {
        "nodes": format_nodes(seat.node for seat in plan.seats),
        "rule": plan.rule,
        "touched": dict(zip(plan.levels, plan.touched, strict=False)),
        "fewest": dict(zip(plan.levels, plan.fewest, strict=False)),
        "step_ns": plan.step_ns,
        "step_ns_least": plan.step_ns_least,
        "mfu_ppm": plan.mfu_ppm,
        "others": [
            {"rule": each.rule, "touched": each.touched, "step_ns": each.step_ns}
            | ({"refused": each.refused} if each.refused else {})
            for each in plan.candidates
        ],
    }
