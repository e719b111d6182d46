"""What the advisor may ask of one moment: the checker, placement, the rules. Nothing here acts."""

from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from nemesis.processors.scheduler.admission import admit
from nemesis.processors.scheduler.advice_rules import Moment, judge
from nemesis.processors.scheduler.following import Broken
from nemesis.processors.scheduler.placing import Place
from nemesis.processors.scheduler.queue import fit, ordered
from nemesis.processors.scheduler.state import Advised, Waiting, team_of
from nemesis.processors.topology.pool import sums
from nemesis.schemas.advised import AdvisedAct
from nemesis.schemas.node_ranges import NODES_MAX, count_nodes, format_nodes, parse_nodes
from nemesis.schemas.operated import JobSubmitted

JOBS_SHOWN: Final = 40
NODES_SHOWN: Final = 64
"""Ranges, leaves, nodes that are out of work: of each so many."""


class Desk:
    """One moment of a cluster, seen from one job."""

    def __init__(self, moment: Moment, about: JobSubmitted, why: str = "") -> None:
        """`why`: what the scheduler last said of the job."""
        self._moment: Final = moment
        self._about: Final = about
        self._why: Final = why
        state = moment.state
        waiting = state.queue.get(about.job)
        self._wished = waiting.advised if waiting else Advised()
        running = "running" if about.job in state.running else "rejected"
        self.stage: Final = "waiting" if waiting else running
        """waiting, running, or rejected: in no queue."""

    def document(self) -> dict[str, Any]:
        """The job, the queue and what is free, as plain values; long lists are cut and say so."""
        state, ground = self._moment.state, self._moment.ground
        queue = ordered(state, self._moment.settings)
        pool = ground.free()
        free = sums(pool.tiers[0], pool.free_counts) if pool.tiers else {}
        wholly = [name for name in dict.fromkeys(pool.nodes) if name in _whole(pool)]
        others = [name for name in (*queue, *sorted(state.running)) if name != self._about.job]
        return {
            "about": self._about.job,
            "job": _job(self._about) | {"stage": self.stage, "why": self._why},
            "queue": queue[:JOBS_SHOWN],
            "other_jobs": [self._other(name) for name in others[:JOBS_SHOWN]],
            "other_jobs_in_all": len(others),
            "gpus_free": pool.free_count,
            "gpus_in_all": pool.gpu_count,
            "gpu_classes": sorted(set(pool.gpu_classes)),
            "free_nodes": format_nodes(wholly)[:NODES_SHOWN],
            "gpus_free_by_leaf": [free[leaf] for leaf in sorted(free)][:NODES_SHOWN],
            "given_to_nobody": dict(sorted(ground.barred.items())[:NODES_SHOWN]),
            "spares_at_best": dict(sorted(ground.doubtful.items())[:NODES_SHOWN]),
            "proposals_are_followed": self._moment.settings.follow_advice,
        }

    def _other(self, name: str) -> dict[str, Any]:
        state = self._moment.state
        if name in state.queue:
            return _job(state.queue[name].job) | {"stage": "waiting"}
        running = state.running[name]
        nodes = format_nodes(running.nodes)[:NODES_SHOWN]
        return _job(running.submitted) | {"stage": "running", "nodes": nodes}

    def validate(self, spec: str, gpus: int) -> dict[str, Any]:
        """What the type checker says; `gpus` 0: as many as the job has."""
        pool = self._moment.ground.free() if self._moment.ground.whole.nodes else None
        own = gpus or admit(self._about, pool).gpu_count
        admission = admit(replace(self._about, spec=spec, gpu_count=own), pool)
        return {
            "outcome": admission.outcome,
            "gpus": admission.gpu_count,
            "findings": admission.findings,
        }

    def propose(
        self, job: str, *, avoid: Sequence[str], only: Sequence[str]
    ) -> dict[str, Any] | Broken:
        """Where the job would go; nodes in node_ranges form."""
        if job != self._about.job:
            return Broken("other_job", f"this advice is on {self._about.job}")
        if count_nodes((*avoid, *only)) > NODES_MAX:
            return Broken("no_such_node", f"more than {NODES_MAX} names")
        out = set(parse_nodes(avoid))
        if only:
            out |= set(self._moment.ground.whole.nodes) - set(parse_nodes(only))
        moment = self._moment
        waiting = Waiting(job=self._about, seq=0, since_ns=moment.now_ns)
        found = fit(moment.state, moment.ground, waiting, out, moment.now_ns)
        if found is not None:
            return _place(found.place)
        admission = admit(self._about, moment.ground.free(out))
        if admission.outcome == "rejected":
            first = admission.findings[0]
            return Broken(first.code, f"{first.text}; {first.legal}" if first.legal else first.text)
        return {"nodes": [], "outcome": admission.outcome, "findings": admission.findings}

    def judge(self, act: AdvisedAct) -> Broken | None:
        """The rule that refuses an act, None where all let it pass."""
        came = judge(self._moment, self._about, act, self._wished)
        if isinstance(came, Broken):
            return came
        self._wished = came
        return None


def _whole(pool: Any) -> set[str]:
    columns = zip(pool.nodes, pool.gpu_counts, pool.free_counts, strict=True)
    return set(pool.nodes) - {name for name, gpus, free in columns if free < gpus}


def _job(job: JobSubmitted) -> dict[str, Any]:
    return {
        "job": job.job,
        "spec": job.spec,
        "gpus": job.gpu_count,
        "model": job.model.get("name", ""),
        "priority": job.priority,
        "team": team_of(job),
        "runtime_seconds": job.runtime_ns // 1_000_000_000,
    }


def _place(place: Place) -> dict[str, Any]:
    quality = place.quality
    return {
        "nodes": format_nodes(place.nodes),
        "spares": place.spares,
        "touched": dict(zip(place.levels, place.touched, strict=False)),
        "relaxed": place.relaxed,
        "found_by": quality.rule,
        "status": quality.status,
        "gap_ppm": quality.gap_ppm,
        "step_ns": quality.step_ns,
        "mfu_ppm": quality.mfu_ppm,
    }
