"""May a job that was submitted wait in the queue? The type checker, asked where it is decided.

Why: whatever way a submission takes, command, simulator or advisor, a description that can never
run reaches neither queue nor solver. How: the submission is read as the checker's case, on the
nodes of each kind (class of GPUs, GPUs of a node) by themselves, for a gang takes whole nodes of
one kind; it is refused where every kind refuses it.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

import msgspec
from msgspec.structs import replace

from nemesis.processors.parallelism.case import RANGES, Case, Finding, Settings
from nemesis.processors.parallelism.check import Outcome, check
from nemesis.processors.parallelism.layout import infers, stated
from nemesis.processors.parallelism.model import BadModelError, ModelShape, model_of
from nemesis.processors.parallelism.parsing import BadSpecError, Parsed, read
from nemesis.processors.parallelism.spec import Spec
from nemesis.processors.topology.pool import Pool
from nemesis.schemas.operated import Described, JobSubmitted
from nemesis.schemas.scheduled import JobFinding

FINDINGS_MAX: Final = 16
_read: Final = lru_cache(maxsize=256)(read)


class Admission(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of a submission."""

    outcome: Outcome
    findings: tuple[JobFinding, ...]
    """Why it is rejected or waits; of an accepted one, warnings."""
    cases: tuple[Case, ...] = ()
    """One for each kind of node that may have it, the most GPUs first; none where nothing is told
    of any node."""
    gpu_count: int = 0
    """That it is to have; 0: its degrees do not say."""


def admit(job: JobSubmitted, pool: Pool | None) -> Admission:
    """What the checker says of a submission; `pool`: with what other jobs have left."""
    try:
        parsed = _read(job.spec)
        model, settings = _model(job.model), _settings(job.settings)
    except BadSpecError as error:
        said = JobFinding(code=error.spec_code, text=error.problem, span=(error.at, error.at + 1))
        return Admission(outcome="rejected", findings=(said,))
    except BadModelError as error:
        return Admission(outcome="rejected", findings=(JobFinding(code="MODEL", text=str(error)),))
    spec, gpu_count = parsed.spec, job.gpu_count
    if not gpu_count and infers(spec) and "*" not in job.spec:
        gpu_count = stated(spec)  # one replica
    base = Case(spec=spec, gpu_count=gpu_count, model=model, settings=settings)
    if not gpu_count and infers(spec):
        text = "`*` stands for what GPUs are left, and nobody says how many the job is to have"
        finding = JobFinding(code="N2", text=text, legal="--gpus, or a degree in place of `*`")
        return Admission(outcome="rejected", findings=(finding,))
    if job.world_min > base.world:
        text = f"{base.world} ranks, and fewer than {job.world_min} are not worth it to its owner"
        finding = JobFinding(code="N3", text=text, legal=f"--world-min {base.world} at most")
        return Admission(outcome="rejected", findings=(finding,))
    cases = [replace(base, pool=kind) for kind in kinds_of(pool)] if pool else []
    best = _best([_judged(parsed, case) for case in cases or [base]])
    return replace(best, gpu_count=base.world)


def spec_of(job: JobSubmitted) -> Spec:
    """The description of a job that was admitted."""
    return _read(job.spec).spec


def _judged(parsed: Parsed, case: Case) -> Admission:
    checked = check(case)
    findings = [*checked.findings]
    outcome = checked.outcome
    sound = case.pool is not None and outcome != "rejected"
    if own := [*_whole_nodes(case, checked.gpu_count)] if sound else []:
        findings, outcome = [*own, *findings], "rejected"
    cases = (case,) if case.pool is not None and outcome != "rejected" else ()
    said = tuple(_told(parsed, each) for each in findings[:FINDINGS_MAX])
    return Admission(outcome=outcome, findings=said, cases=cases)


def _best(judged: Sequence[Admission]) -> Admission:
    """What the friendliest kind of node says; the nodes of all that do not refuse it."""
    order: Mapping[Outcome, int] = {"accepted": 0, "waits": 1, "rejected": 2}
    best = min(judged, key=lambda each: order[each.outcome])
    return replace(best, cases=tuple(case for each in judged for case in each.cases))


def _whole_nodes(case: Case, gpu_count: int) -> Iterator[Finding]:
    """Ranks of a job are as many on each of its nodes, which it has to itself."""
    assert case.pool is not None
    size = max(case.pool.node_sizes.values(), default=0)
    if size and gpu_count > size and gpu_count % size:
        below = gpu_count // size * size
        text = f"{gpu_count} GPUs are no whole number of nodes of {size}"
        yield Finding(code="N1", text=text, legal=f"{gpu_count} -> {below} or {below + size}")


def _told(parsed: Parsed, finding: Finding) -> JobFinding:
    span = parsed.spans.get(finding.part, ())
    return JobFinding(code=finding.code, text=finding.text, legal=finding.legal, span=span)


def kinds_of(pool: Pool) -> list[Pool]:
    """The pool by class of GPUs and GPUs of a node, the most GPUs first."""
    alike = len(set(pool.gpu_classes)) == len(set(pool.gpu_counts)) == 1
    if alike and len(set(pool.nodes)) == len(pool.nodes):
        return [pool]
    sizes = pool.node_sizes
    kinds: dict[tuple[str, int], set[str]] = {}
    for name, of_class in zip(pool.nodes, pool.gpu_classes, strict=True):
        kinds.setdefault((of_class, sizes[name]), set()).add(name)
    if len(kinds) == 1:
        return [pool]
    found = [(pool.only(names), kind) for kind, names in kinds.items()]
    return [each for each, _ in sorted(found, key=lambda one: (-one[0].gpu_count, one[1]))]


def _model(said: Described) -> ModelShape | None:
    """Raises: BadModelError."""
    return model_of(said, str(said.get("name", "model"))) if said else None


def _settings(said: Described) -> Settings:
    """Raises: BadModelError."""
    try:
        settings = msgspec.convert(said, Settings)
    except msgspec.ValidationError as error:
        raise BadModelError(f"settings: {error}") from error
    for name, (least, most) in RANGES.items():
        value = getattr(settings, name)
        for number in value if isinstance(value, tuple) else (value,):
            if number and not least <= number <= most:
                raise BadModelError(f"{name} {number}: expected {least} to {most}")
    return settings
