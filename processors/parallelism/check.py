"""The type checker: may this job wait in a queue, and could it run at all?

Why: a description that cannot run must cost microseconds, not a place in a queue and an attempt to
place it. How: the rules of `rules.py` are asked phase by phase, cheapest first, up to the first
phase that finds an error. What is not known, a model or a cluster, is not judged, and said.
"""

from itertools import groupby
from typing import Final, Literal

import msgspec

from nemesis.processors.parallelism.case import Case, Finding
from nemesis.processors.parallelism.rules import RULES, Phase, Rule

Outcome = Literal["accepted", "waits", "rejected"]
"""waits: nothing is wrong with it, other jobs have what it needs."""
MODEL_PHASES: Final = ("shape", "memory")
CLUSTER_PHASES: Final = ("memory", "fabric", "capacity")


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """What the checker says of a job."""

    outcome: Outcome
    findings: tuple[Finding, ...]
    """Errors first, in the order of the rules."""
    gpu_count: int
    """0 where the degrees say no number."""
    unknown: tuple[str, ...]
    """What was not judged, or in part: the phases for which a model or a cluster is missing."""


def check(case: Case) -> Checked:
    """Ask every rule that can be asked."""
    errors: list[Finding] = []
    warnings: list[Finding] = []
    unknown: list[str] = []
    reached_product = False
    for phase, rules in groupby(RULES, key=_phase_of):
        if errors:
            break
        for rule in rules:
            if not _known(case, rule):
                if phase not in unknown:
                    unknown.append(phase)
                continue
            for finding in rule.check(case):
                (errors if finding.severity == "error" else warnings).append(finding)
        reached_product = reached_product or phase == "product"
    final = any(not finding.waits for finding in errors)
    outcome: Outcome = "accepted" if not errors else "rejected" if final else "waits"
    world = case.world if reached_product else 0
    return Checked(
        outcome=outcome, findings=(*errors, *warnings), gpu_count=world, unknown=tuple(unknown)
    )


def _phase_of(rule: Rule) -> Phase:
    return rule.phase


def _known(case: Case, rule: Rule) -> bool:
    """All that the rule needs is said."""
    if rule.phase in MODEL_PHASES and case.model is None:
        return False
    of_cluster = rule.phase in CLUSTER_PHASES
    return not of_cluster or case.pool is not None or (rule.by_class and case.gpu_class is not None)
