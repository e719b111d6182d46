"""How well NEMESIS did: what the log says against what the ledger knows.

Pure. A component that was named and is neither the culprit, nor what the culprit took down with
it, is a wrong blame; that is counted apart, because it is the worst error of all. All times are
log time, in a simulator simulated time.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from nemesis.schemas.components import node as node_name
from nemesis.schemas.components import rank as rank_name
from nemesis.schemas.decided import RecoveryDecided
from nemesis.schemas.facts import Fact
from nemesis.schemas.inferred import FaultAttributed
from nemesis.schemas.rank_ranges import parse_ranks
from nemesis.sim.ledger import FaultInjected, MembershipFormed

READ: Final = ("fault_attributed", "recovery_decided")
"""Tokens of the facts that are judged."""


class FaultScore(msgspec.Struct, kw_only=True, frozen=True):
    """One fault and what became of it. Times from its onset in ms, simulated; None: never."""

    kind: str
    culprit: str
    detected: bool
    verdict: str
    named: tuple[str, ...]
    class_right: bool
    culprit_right: bool
    wrong_blame: tuple[str, ...]
    action: str
    action_right: bool
    to_verdict_ms: int | None
    to_decision_ms: int | None
    to_resume_ms: int | None


class Score(msgspec.Struct, kw_only=True, frozen=True):
    """One run."""

    faults: tuple[FaultScore, ...]
    false_alarms: tuple[str, ...]
    """Incidents with a culprit that no fault accounts for."""
    recovered: bool
    """After every fault the job went on without the ranks that were lost."""
    steps_redone_count: int
    restarts_count: int
    world: int
    """Ranks at the end."""

    @property
    def passed(self) -> bool:
        """Everything found, nothing blamed wrongly, the job goes on."""
        return (
            self.recovered
            and not self.false_alarms
            and all(
                each.detected and each.action_right and not each.wrong_blame for each in self.faults
            )
        )


def score(
    faults: Sequence[FaultInjected],
    memberships: Sequence[MembershipFormed],
    facts: Iterable[Fact],
    *,
    job: str,
) -> Score:
    """Judge a run by its log; `facts` in order of the log, those of READ suffice."""
    verdicts: list[FaultAttributed] = []
    decisions: list[RecoveryDecided] = []
    for fact in facts:
        if isinstance(fact.data, FaultAttributed):
            verdicts.append(fact.data)
        elif isinstance(fact.data, RecoveryDecided):
            decisions.append(fact.data)
    scored: list[FaultScore] = []
    explained: set[str] = set()
    for fault in faults:
        incidents = _incidents_of(fault, verdicts, explained)
        explained |= incidents
        about = [verdict for verdict in verdicts if verdict.incident in incidents]
        decided = [each for each in decisions if _answers(each, fault, incidents)]
        resumed = [each for each in memberships if each.epoch > 0 and each.at_ns > fault.at_ns]
        scored.append(_judge(fault, about, decided, resumed, job))
    strange = [v.incident for v in verdicts if v.culprits and v.incident not in explained]
    last = memberships[-1] if memberships else None
    return Score(
        faults=tuple(scored),
        false_alarms=tuple(dict.fromkeys(strange)),
        recovered=all(each.to_resume_ms is not None for each in scored),
        steps_redone_count=last.redone_count if last else 0,
        restarts_count=last.restarts_count if last else 0,
        world=last.world if last else 0,
    )


def _incidents_of(
    fault: FaultInjected, verdicts: Sequence[FaultAttributed], explained: set[str]
) -> set[str]:
    """Incidents that opened after the fault and are not another fault's."""
    first: dict[str, int] = {}
    for verdict in verdicts:
        first.setdefault(verdict.incident, verdict.at_ns)
    # log time is the last tick's, so up to a second older than the fact it stands for
    since_ns = fault.at_ns - 1_000_000_000
    return {i for i, at_ns in first.items() if at_ns >= since_ns and i not in explained}


def _answers(decided: RecoveryDecided, fault: FaultInjected, incidents: set[str]) -> bool:
    """Whether a recovery of a job is about this fault: by its incident, or by whom it replaces."""
    if not decided.members:
        return False
    replaced = {*decided.removed_ranks, *parse_ranks(decided.started)}
    return decided.incident in incidents or not replaced.isdisjoint(fault.lost_ranks)


def _judge(
    fault: FaultInjected,
    about: Sequence[FaultAttributed],
    decided: Sequence[RecoveryDecided],
    resumed: Sequence[MembershipFormed],
    job: str,
) -> FaultScore:
    # a fault may open several incidents; the first one that names a component stands for it
    named_first = next((each for each in about if each.culprits), about[0] if about else None)
    final = next(
        (v for v in reversed(about) if named_first and v.incident == named_first.incident), None
    )
    touched = {fault.culprit, node_name(fault.node)} | {
        rank_name(job, number) for number in fault.lost_ranks
    }
    named = tuple(culprit.id for culprit in final.culprits) if final else ()
    ever = dict.fromkeys(culprit.id for verdict in about for culprit in verdict.culprits)
    return FaultScore(
        kind=fault.kind,
        culprit=fault.culprit,
        detected=bool(about),
        verdict=final.verdict if final else "",
        named=named,
        class_right=final is not None and final.fault_class in fault.classes,
        culprit_right=named == (fault.culprit,),
        wrong_blame=tuple(each for each in ever if each not in touched),
        action=decided[-1].action if decided else "",
        action_right=bool(decided) and decided[-1].action in fault.actions,
        to_verdict_ms=_since_ms(fault, named_first.at_ns if named_first else None),
        to_decision_ms=_since_ms(fault, decided[0].at_ns if decided else None),
        to_resume_ms=_since_ms(fault, resumed[0].at_ns if resumed else None),
    )


def _since_ms(fault: FaultInjected, at_ns: int | None) -> int | None:
    # what is known to the second cannot come before its cause
    return None if at_ns is None else max(0, at_ns - fault.at_ns) // 1_000_000
