"""A cluster and its jobs at one moment, as far as a proposal about a job can be judged by them."""

from collections.abc import Mapping
from functools import cached_property
from typing import Literal

import msgspec
from msgspec.structs import replace

from nemesis.processors.mfu.planned import UnpredictableError, gpu_of, job_of
from nemesis.processors.mfu.step import Job
from nemesis.processors.parallelism.case import Case, Settings
from nemesis.processors.parallelism.model import ModelShape
from nemesis.processors.parallelism.parsing import BadSpecError, read
from nemesis.processors.placement.plan import Plan, plan_of
from nemesis.processors.topology.pool import Pool

Stage = Literal["waiting", "running", "rejected", "over"]


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """One job."""

    job: str
    spec: str
    """As its owner wrote it; it need not be in the language."""
    stage: Stage
    gpu_count: int = 0
    """That it is to have; 0: what its degrees say."""
    model: ModelShape | None = None
    settings: Settings = Settings()
    priority: int = 0
    """Higher ones are placed first."""
    nodes: tuple[str, ...] = ()
    """That it has, spares among them."""
    team: str = ""
    reason: str = ""
    """Why it is where it is, as the scheduler said it."""


class Situation(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One moment."""

    pool: Pool
    """Free is what no job has."""
    jobs: tuple[Standing, ...]
    """Those that wait in the order in which they would be placed."""
    held: Mapping[str, str] = {}
    """Nodes that no job may be put on, and why: on probation, protected, likely to fail."""

    @cached_property
    def by_name(self) -> Mapping[str, Standing]:
        """The jobs."""
        return {each.job: each for each in self.jobs}

    @cached_property
    def usable(self) -> Pool:
        """The pool with nothing free on nodes that are held."""
        return self.pool.without(self.held)

    @cached_property
    def free_nodes(self) -> tuple[str, ...]:
        """Nodes of which no job has anything and that are not held, in the pool's order."""
        pool = self.usable
        rows = zip(pool.nodes, pool.gpu_counts, pool.free_counts, strict=True)
        wholly: dict[str, bool] = {}
        for name, count, free in rows:
            wholly[name] = wholly.get(name, True) and free == count
        return tuple(name for name, whole in wholly.items() if whole)


def case_of(job: Standing, pool: Pool | None, spec: str = "") -> Case:
    """A job as the checker looks at it; `spec`: another description in place of its own.

    Raises:
        BadSpecError: the description is not in the language.
    """
    return Case(
        spec=read(spec or job.spec).spec,
        gpu_count=job.gpu_count,
        model=job.model,
        pool=pool,
        settings=job.settings,
    )


def world_of(job: Standing) -> int:
    """How many GPUs a job is to have; 0 where its description does not say."""
    if job.gpu_count:
        return job.gpu_count
    try:
        return case_of(job, None).world
    except BadSpecError:
        return 0


def predicted(case: Case) -> Job | None:
    """The job as the MFU model takes it, None where too little is known of it."""
    assert case.pool is not None
    try:
        return job_of(case, *gpu_of(case.pool))
    except UnpredictableError:
        return None


def planned(case: Case, pool: Pool) -> Plan:
    """Where an accepted job would go on what this pool has free."""
    case = replace(case, pool=pool)
    return plan_of(case, predicted(case))
