"""How well NEMESIS did: what the log says against what the ledger knows.

Pure. A component that was named and is neither the culprit, nor what the culprit took down with
it, is a wrong blame; that is counted apart, because it is the worst error of all. All times are
simulated time: `at_ns` of a fact is when the log stored it, finer than log time's seconds.
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
    seen = list(facts)
    verdicts = [fact for fact in seen if isinstance(fact.data, FaultAttributed)]
    decisions = [fact for fact in seen if isinstance(fact.data, RecoveryDecided)]
    fault_of = _fault_by_incident(faults, verdicts, job)
    scored: list[FaultScore] = []
    for number, fault in enumerate(faults):
        about = [each for each in verdicts if fault_of[each.data.incident] == number]
        incidents = {each.data.incident for each in about}
        decided = [each for each in decisions if _answers(each.data, fault, incidents)]
        resumed = [each for each in memberships if each.epoch > 0 and each.at_ns > fault.at_ns]
        scored.append(_judge(fault, about, decided, resumed, job))
    strange = [v.data for v in verdicts if v.data.culprits and fault_of[v.data.incident] is None]
    last = memberships[-1] if memberships else None
    return Score(
        faults=tuple(scored),
        false_alarms=tuple(dict.fromkeys(verdict.incident for verdict in strange)),
        recovered=all(each.to_resume_ms is not None for each in scored),
        steps_redone_count=last.redone_count if last else 0,
        restarts_count=last.restarts_count if last else 0,
        world=last.world if last else 0,
    )


def _touched(fault: FaultInjected, job: str) -> set[str]:
    """The culprit and what it took down with it."""
    ranks = {rank_name(job, number) for number in fault.lost_ranks}
    return {fault.culprit, node_name(fault.node), *ranks}


def _fault_by_incident(
    faults: Sequence[FaultInjected], verdicts: Sequence[Fact], job: str
) -> dict[str, int | None]:
    """Which fault each incident is about: one that it names a part of, else the last before it.

    None for an incident that opened before any fault.
    """
    first_ns: dict[str, int] = {}
    named: dict[str, set[str]] = {}
    for fact in verdicts:
        first_ns.setdefault(fact.data.incident, fact.at_ns)
        named.setdefault(fact.data.incident, set()).update(c.id for c in fact.data.culprits)
    about: dict[str, int | None] = {}
    for incident, at_ns in first_ns.items():
        before = [n for n, fault in enumerate(faults) if fault.at_ns <= at_ns]
        fitting = [n for n in before if named[incident] & _touched(faults[n], job)]
        likely = fitting or before
        about[incident] = likely[-1] if likely else None
    return about


def _answers(decided: RecoveryDecided, fault: FaultInjected, incidents: set[str]) -> bool:
    """Whether a recovery of a job is about this fault: by its incident, or by whom it replaces."""
    if not decided.members:
        return False
    replaced = {*decided.removed_ranks, *parse_ranks(decided.started)}
    return decided.incident in incidents or not replaced.isdisjoint(fault.lost_ranks)


def _judge(
    fault: FaultInjected,
    about: Sequence[Fact],
    decided: Sequence[Fact],
    resumed: Sequence[MembershipFormed],
    job: str,
) -> FaultScore:
    # a fault may open several incidents; the first one that names a component stands for it
    first = next((each for each in about if each.data.culprits), about[0] if about else None)
    same = [each.data for each in about if first and each.data.incident == first.data.incident]
    final: FaultAttributed | None = same[-1] if same else None
    action = decided[-1].data.action if decided else ""
    named = tuple(culprit.id for culprit in final.culprits) if final else ()
    ever = dict.fromkeys(culprit.id for each in about for culprit in each.data.culprits)
    return FaultScore(
        kind=fault.kind,
        culprit=fault.culprit,
        detected=first is not None,
        verdict=final.verdict if final else "",
        named=named,
        class_right=final is not None and final.fault_class in fault.classes,
        culprit_right=named == (fault.culprit,),
        wrong_blame=tuple(each for each in ever if each not in _touched(fault, job)),
        action=action,
        action_right=action in fault.actions,
        to_verdict_ms=_since_ms(fault, first),
        to_decision_ms=_since_ms(fault, decided[0] if decided else None),
        to_resume_ms=_since_ms(fault, resumed[0] if resumed else None),
    )


def _since_ms(fault: FaultInjected, what: Fact | MembershipFormed | None) -> int | None:
    return None if what is None else (what.at_ns - fault.at_ns) // 1_000_000
