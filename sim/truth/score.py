"""How well NEMESIS did: what the log says against what the ledger knows.

Pure. A component that was named and is neither a right answer, nor what went down with it, is a
wrong blame; that is counted apart, because it is the worst error of all. Several faults may share
an incident: each is judged by what the incident says of it, and what another one broke is no wrong
blame. Of a decoy nothing is a right answer: whatever is said or done about it is a false alarm. All
times are simulated time:
`at_ns` of a fact is when the log stored it, finer than log time's seconds.
"""

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Final

import msgspec

from nemesis.schemas.decided import QuiesceDecided, RecoveryDecided
from nemesis.schemas.facts import Fact
from nemesis.schemas.inferred import FailurePredicted, FaultAttributed
from nemesis.schemas.policy import REGROUPING
from nemesis.schemas.rank_ranges import parse_ranks
from nemesis.sim.faults.scenario import ANYTHING, Expect
from nemesis.sim.truth.ledger import FaultInjected, MembershipFormed

READ: Final = ("fault_attributed", "failure_predicted", "recovery_decided", "quiesce_decided")
"""Tokens of the facts that are judged."""
_LOUD_BANDS: Final = ("watch", "act")
"""Of a prediction: what a person or the healer would act upon."""
_IDLE_ACTIONS: Final = ("none", "watch", "collect_more")
"""What hurts nobody, said of anything."""


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
    is_decoy: bool = False
    fault_class: str = ""
    """That of the verdict."""
    stalls: bool = True
    """The job had to go on again after it."""
    predicted_ms: int | None = None
    """How long before its onset it was predicted."""
    true_class: str = ""
    """The class that it is of; empty for a decoy."""
    attributable: bool | None = None
    """Whether what the log was given names the culprit; None: nobody weighed it."""
    right_at: int | None = None
    """Which of the named is the first right one, counted from 0."""
    confidence_ppm: int = 0
    """Of the verdict."""
    claimed_ppm: int = 0
    """How sure its rule was, before calibration."""
    to_detect_ms: int | None = None
    """Until the first word or act about it."""
    to_attribute_ms: int | None = None
    """Until a right component was named."""

    @property
    def passed(self) -> bool:
        """Found and answered, or left alone where it is a decoy."""
        if self.wrong_blame:
            return False
        return self.is_decoy or (self.detected and self.class_right and self.action_right)


class Score(msgspec.Struct, kw_only=True, frozen=True):
    """One run."""

    faults: tuple[FaultScore, ...]
    false_alarms: tuple[str, ...]
    """Incidents, predictions and decisions that no fault accounts for."""
    recovered: bool
    """After every fault that stopped a job it went on, without the ranks that were lost."""
    steps_redone_count: int
    restarts_count: int
    world: int
    """Ranks at the end, of all jobs."""
    broken: tuple[str, ...] = ()
    """What the scenario expected of the run and did not hold, a sentence each."""
    in_vain: bool = False
    """A recovery was decided after a fault, and its job did not go on."""

    @property
    def passed(self) -> bool:
        """Everything found, nothing blamed wrongly, the job goes on."""
        return not (self.false_alarms or self.broken or self.in_vain) and all(
            each.passed for each in self.faults
        )


def score(
    faults: Sequence[FaultInjected],
    memberships: Sequence[MembershipFormed],
    facts: Iterable[Fact],
    *,
    expect: Expect = ANYTHING,
) -> Score:
    """Judge a run by its log; `facts` in order of the log, those of READ suffice."""
    seen = list(facts)
    verdicts = [fact for fact in seen if isinstance(fact.data, FaultAttributed)]
    predictions = [fact for fact in seen if isinstance(fact.data, FailurePredicted)]
    decisions = [fact for fact in seen if isinstance(fact.data, RecoveryDecided)]
    holds = [fact for fact in seen if isinstance(fact.data, QuiesceDecided)]
    faults_of = _faults_by_incident(faults, [*verdicts, *predictions])
    scored: list[FaultScore] = []
    for number, fault in enumerate(faults):
        about = [each for each in verdicts if number in faults_of[each.data.incident]]
        foretold = [each for each in predictions if number in faults_of[each.data.incident]]
        incidents = {each.data.incident for each in (*about, *foretold)}
        decided = [each for each in decisions if _answers(each.data, fault, incidents)]
        others = [each for each in faults if each is not fault and each.components]
        formed = [each for each in memberships if fault.job in (each.job, "")]
        scored.append(_judge(fault, about, foretold, decided, formed, others=others))
        held = [each for each in holds if each.data.incident in incidents]
        scored[-1] = msgspec.structs.replace(
            scored[-1], **_times(fault, [*about, *decided, *held], about)
        )
    real = {number for number, fault in enumerate(faults) if fault.components}
    last = {each.job: each for each in memberships}
    alarms = _false_alarms([*verdicts, *predictions], faults_of, real)
    alarms += _needless([*decisions, *holds], faults_of, real)
    result = Score(
        faults=tuple(scored),
        false_alarms=tuple(dict.fromkeys(alarms)),
        recovered=all(each.to_resume_ms is not None for each in scored if each.stalls),
        steps_redone_count=sum(each.redone_count for each in last.values()),
        restarts_count=sum(each.restarts_count for each in last.values()),
        world=sum(each.world for each in last.values()),
        in_vain=any(map(_is_in_vain, faults, scored, repeat(decisions))),
    )
    stands = not last or any(
        job.at_ns <= fault.over_ns
        for job in last.values()
        for fault in faults
        if not fault.job or job.job in (fault.job, "")
    )
    return msgspec.structs.replace(result, broken=_broken(result, expect, stands=stands))


def _is_in_vain(fault: FaultInjected, found: FaultScore, decisions: Sequence[Fact]) -> bool:
    """Whether its job was to go on after it by NEMESIS' own word, and has not."""
    acts = (each for each in decisions if each.data.action in REGROUPING)
    since = (each for each in acts if each.data.mode == "act" and each.at_ns >= fault.at_ns)
    stands = found.stalls and found.to_resume_ms is None
    return stands and any(fault.job in (each.data.job, "") for each in since)


def _touched(fault: FaultInjected) -> set[str]:
    """What may be named."""
    return {*fault.components, *fault.harmless}


def _named(fact: Fact) -> set[str]:
    data = fact.data
    if isinstance(data, FailurePredicted):
        return {data.component}
    return {culprit.id for culprit in data.culprits}


def _faults_by_incident(
    faults: Sequence[FaultInjected], said: Sequence[Fact]
) -> dict[str, tuple[int, ...]]:
    """Which faults each incident is about: those that it names a part of, decoys only where there
    is no other; else the last before it of its class, or that is no decoy, or at all.

    None for an incident that opened before any fault.
    """
    first_ns: dict[str, int] = {}
    classes: dict[str, str] = {}
    named: dict[str, dict[str, int]] = {}
    for fact in said:
        classes[fact.data.incident] = fact.data.fault_class
        first_ns.setdefault(fact.data.incident, fact.at_ns)
        parts = named.setdefault(fact.data.incident, {})
        parts.update({name: fact.at_ns for name in _named(fact)})
    about: dict[str, tuple[int, ...]] = {}
    for incident, at_ns in first_ns.items():
        parts = named[incident]
        fitting = [
            number
            for number, fault in enumerate(faults)
            if any(
                parts.get(name, 0) >= fault.began_ns for name in (*_touched(fault), fault.culprit)
            )
        ]
        before = [n for n, fault in enumerate(faults) if fault.began_ns <= at_ns]
        of_class = [n for n in before if classes[incident] in faults[n].classes]
        likely = fitting or of_class or before
        real = [number for number in likely if faults[number].components] or likely
        about[incident] = tuple(real if fitting else real[-1:])
    return about


def _answers(decided: RecoveryDecided, fault: FaultInjected, incidents: set[str]) -> bool:
    """Whether a recovery is about this fault: by its incident, or by whom it replaces."""
    replaced = {*decided.removed_ranks, *parse_ranks(decided.started)}
    about = bool(decided.members) and not replaced.isdisjoint(fault.lost_ranks)
    return decided.incident in incidents or about


def _judge(
    fault: FaultInjected,
    about: Sequence[Fact],
    foretold: Sequence[Fact],
    decided: Sequence[Fact],
    memberships: Sequence[MembershipFormed],
    *,
    others: Sequence[FaultInjected],
) -> FaultScore:
    # a fault may open several incidents; the first one that names it stands for it, else the first
    # that names anything
    naming = [each for each in about if each.data.culprits]
    own = [each for each in naming if not _named(each).isdisjoint(fault.components)]
    first = next(iter([*own, *naming, *about]), None)
    same = [each.data for each in about if first and each.data.incident == first.data.incident]
    elsewhere = {name for each in others for name in _touched(each)}
    final = _last_word(same, fault, elsewhere)
    # what changes the membership outweighs what is only said
    acted = [each for each in decided if each.data.members] or decided
    action = acted[-1].data.action if acted else ""
    named = tuple(culprit.id for culprit in final.culprits) if final else ()
    guilty = {*fault.components, *(name for each in others for name in each.components)}
    ever = dict.fromkeys(name for each in (*about, *foretold) for name in sorted(_named(each)))
    warned = [each for each in foretold if each.data.band != "clear" and each.at_ns < fault.at_ns]
    is_decoy = not fault.components
    return FaultScore(
        kind=fault.kind,
        culprit=fault.culprit,
        detected=first is not None,
        verdict=final.verdict if final else "",
        fault_class=final.fault_class if final else "",
        named=named,
        class_right=final is not None and final.fault_class in fault.classes,
        culprit_right=set(named) <= guilty and not set(named).isdisjoint(fault.components),
        wrong_blame=()
        if is_decoy
        else tuple(each for each in ever if each not in _touched(fault) | elsewhere),
        action=action,
        action_right=action in fault.actions,
        to_verdict_ms=_since_ms(fault, first),
        to_decision_ms=_since_ms(fault, decided[0] if decided else None),
        to_resume_ms=_to_resume_ms(fault, decided, memberships),
        is_decoy=is_decoy,
        stalls=fault.stalls and not is_decoy,
        predicted_ms=(fault.at_ns - warned[0].at_ns) // 1_000_000 if warned else None,
        true_class=fault.classes[0] if fault.classes else "",
        attributable=fault.attributable,
        right_at=next((at for at, each in enumerate(named) if each in fault.components), None),
        confidence_ppm=final.confidence_ppm if final else 0,
        claimed_ppm=final.claimed_ppm if final else 0,
    )


def _times(
    fault: FaultInjected, heeded: Sequence[Fact], about: Sequence[Fact]
) -> dict[str, int | None]:
    """When it was heeded at all, and when a right component was first named."""
    first = min(heeded, key=lambda each: each.at_ns, default=None)
    right = (each for each in about if not _named(each).isdisjoint(fault.components))
    return {
        "to_detect_ms": _since_ms(fault, first),
        "to_attribute_ms": _since_ms(fault, next(right, None)),
    }


def _last_word(
    said: Sequence[FaultAttributed], fault: FaultInjected, elsewhere: set[str]
) -> FaultAttributed | None:
    """The last revision about this fault: another one that strikes later may take its incident."""
    about = [
        each
        for each in said
        if (names := {culprit.id for culprit in each.culprits}).isdisjoint(elsewhere)
        or not names.isdisjoint(fault.components)
    ]
    return next(iter([*about[-1:], *said[-1:]]), None)


def _to_resume_ms(
    fault: FaultInjected, decided: Sequence[Fact], memberships: Sequence[MembershipFormed]
) -> int | None:
    """Until the job's next step; 0 where it had left the culprit before that failed."""
    early = [each.at_ns for each in decided if each.data.members and each.at_ns < fault.at_ns]
    if early and any(e.epoch > 0 and early[0] < e.at_ns <= fault.at_ns for e in memberships):
        return 0
    # the first entry of epoch 0 is the job's own beginning
    later = [
        each
        for at, each in enumerate(memberships)
        if each.at_ns > fault.at_ns and (at > 0 or each.epoch > 0)
    ]
    return _since_ms(fault, later[0] if later else None)


def _false_alarms(
    said: Sequence[Fact], faults_of: dict[str, tuple[int, ...]], real: set[int]
) -> list[str]:
    """What was said of decoys and of nothing at all."""
    alarms: list[str] = []
    for fact in said:
        data = fact.data
        if not real.isdisjoint(faults_of[data.incident]):
            continue
        if isinstance(data, FailurePredicted):
            if data.band in _LOUD_BANDS:
                alarms.append(f"predicted {data.fault_class} of {data.component}")
        elif data.verdict != "no-fault":
            alarms.append(data.incident)
    return alarms


def _needless(
    decided: Sequence[Fact], faults_of: dict[str, tuple[int, ...]], real: set[int]
) -> list[str]:
    """Decisions where nothing is wrong."""
    alarms: list[str] = []
    for fact in decided:
        data = fact.data
        action = "hold" if isinstance(data, QuiesceDecided) else data.action
        # an incident that nobody attributed is about the fault that there is
        about = faults_of.get(data.incident)
        needless = not real if about is None else real.isdisjoint(about)
        if needless and action not in _IDLE_ACTIONS:
            alarms.append(f"{action} as {data.decision}")
    return alarms


def _broken(result: Score, expect: Expect, *, stands: bool) -> tuple[str, ...]:
    """One sentence for each expectation that does not hold."""
    told = [each for each in result.faults if not each.is_decoy]
    rules: list[tuple[bool, str]] = [
        (
            not expect.goes_on or (result.recovered and not stands),
            "the job did not go on",
        ),
        (
            not expect.predicted or all(each.predicted_ms is not None for each in told),
            "nothing was predicted before it failed",
        ),
        (
            _within(expect.verdict_within_s, [each.to_verdict_ms for each in told]),
            f"a verdict took longer than {expect.verdict_within_s:g} s",
        ),
        (
            _within(expect.resumed_within_s, [each.to_resume_ms for each in told if each.stalls]),
            f"the job stood for longer than {expect.resumed_within_s:g} s",
        ),
        (
            result.world >= expect.world_min,
            f"{result.world} ranks at the end, expected at least {expect.world_min}",
        ),
        (
            expect.steps_redone_max < 0 or result.steps_redone_count <= expect.steps_redone_max,
            f"{result.steps_redone_count} steps redone, expected at most {expect.steps_redone_max}",
        ),
        (
            expect.restarts_max < 0 or result.restarts_count <= expect.restarts_max,
            f"{result.restarts_count} process restarts, expected at most {expect.restarts_max}",
        ),
    ]
    return tuple(rule for holds, rule in rules if not holds)


def _within(limit_s: float, times_ms: Sequence[int | None]) -> bool:
    return not limit_s or all(ms is not None and ms <= limit_s * 1000 for ms in times_ms)


def _since_ms(fault: FaultInjected, what: Fact | MembershipFormed | None) -> int | None:
    return None if what is None else (what.at_ns - fault.at_ns) // 1_000_000
