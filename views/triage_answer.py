"""Maps verdicts of the processors to what `nemesis triage` answers. It concludes nothing itself.

Where no processor had anything to say, that is the answer: `no-fault` if everything was read and
something shows that it works, else `insufficient`.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from nemesis.processors.attribution import wanted
from nemesis.processors.attribution.kernel_messages import parse
from nemesis.processors.attribution.kernel_rules import FALLOUT_XIDS
from nemesis.processors.healer.playbooks import triage_recovery
from nemesis.schemas.codes import Action, ComponentKind, FaultClass, Verdict
from nemesis.schemas.decided import RecoveryDecided, RecoveryWithheld
from nemesis.schemas.inferred import FaultAttributed
from nemesis.views.names import in_order
from nemesis.views.triage_advice import what_not, why

_WEIGHT: Final[Mapping[Verdict, int]] = {
    "attributed": 3,
    "class-only": 2,
    "insufficient": 1,
    "no-fault": 0,
}
EVIDENCE_MAX: Final = 40  # of one answer, where its incident came back again and again
# Files are read without a job that NEMESIS runs: what it would do to a rank or to a node's place in
# a schedule, a person does by the nearest of the actions that bundles are answered with.
_BY_HAND: Final[Mapping[Action, Action]] = {
    "restart_rank": "restart_job",
    "restore_from_peer": "restart_job",
    "rebalance": "watch",
    "pause": "collect_more",
    "cordon_node": "drain_node",
}
NO_FAULT_CONFIDENCE_PPM: Final = 500_000  # lines that are not in a collection prove nothing


class Recovery(msgspec.Struct):
    """The smallest recovery that is safe and enough."""

    action: Action
    target: str
    reason: str = ""
    """Why it is enough, and nothing smaller is."""
    avoid: str = ""
    """What a person might do instead, and should not."""


class Blamed(msgspec.Struct):
    """A culprit."""

    kind: ComponentKind
    id: str
    label: str


class Citation(msgspec.Struct):
    """An observation, where it was read, and what it proves."""

    file: str
    line: int | None
    text: str
    says: str


class Alternative(msgspec.Struct):
    """What else it could have been, and what rules it out."""

    says: str
    because: str
    file: str = ""
    line: int | None = None


class Answer(msgspec.Struct, kw_only=True):
    """One incident."""

    verdict: Verdict
    fault_class: FaultClass
    culprits: list[Blamed]
    confidence: float
    evidence: list[Citation]
    recovery: Recovery
    missing: list[str]
    reason: str
    victims: list[str] = []
    ruled_out: list[Alternative] = []
    claimed: float = 0.0
    """How sure the rule itself is; `confidence` is how often such verdicts were right."""


class UnreadFile(msgspec.Struct):
    """A file that took no part in the verdict."""

    file: str
    why: str


class Triage(Answer, kw_only=True):
    """The whole answer: the incident that is worst and most certain, then the rest."""

    others: list[Answer] = []
    unread: list[UnreadFile] = []
    notes: list[str] = []


def newest_verdicts(conclusions: Sequence[object]) -> list[FaultAttributed]:
    """The last verdict of each incident, worst and most certain first.

    A part that is named comes before a program: a program's fault takes no part with it, and what
    faulted on a node may have been somebody's test.
    """
    newest: dict[str, FaultAttributed] = {}
    for each in conclusions:
        if isinstance(each, FaultAttributed):
            newest[each.incident] = each
    named = {job for each in newest.values() if each.verdict == "attributed" for job in each.jobs}
    broken_ns = [each.at_ns for each in newest.values() if _names_a_part(each)]
    # what was refuted is no incident any more; equals stay in the order in which they began
    return sorted(
        (
            each
            for each in newest.values()
            if each.verdict != "no-fault"
            and not _follows(each, named)
            and not (broken_ns and min(broken_ns) <= each.at_ns and _is_fallout(each))
        ),
        key=lambda each: (
            each.signature != "transient",  # what was set right stopped no job
            _WEIGHT[each.verdict],
            each.fault_class != "app.program",
            each.confidence_ppm,
        ),
        reverse=True,
    )


def _follows(verdict: FaultAttributed, named: set[str]) -> bool:
    """Whether it only says that ranks of a job waited and gave up, for which somebody is named:
    watchdogs speak as late as an incident without news is over."""
    kinds = {each.fact.split("/")[1] for each in verdict.evidence if each.fact.count("/") >= 3}
    told_by_ranks = bool(kinds) and kinds <= {"log", "collective"}
    return (
        verdict.verdict == "insufficient" and told_by_ranks and not named.isdisjoint(verdict.jobs)
    )


def _names_a_part(verdict: FaultAttributed) -> bool:
    return verdict.verdict == "attributed" and verdict.fault_class != "app.program"


def _is_fallout(verdict: FaultAttributed) -> bool:
    """Whether all that it rests on is what drivers print of any process that ends in its work.

    Of a live job's nodes attribution knows that they belong together; of nodes in a bundle it does
    not, and after a part failed their words need no program at fault.
    """
    told = [parse(each.text) for each in verdict.evidence]
    return (
        verdict.fault_class == "app.program"
        and bool(told)
        and all(each is not None and each.code in FALLOUT_XIDS for each in told)
    )


def once_each(answers: Sequence[Answer]) -> list[Answer]:
    """Answers without those that say the same of the same parts again, for example after a quiet
    hour: their evidence goes to the first."""
    kept: list[Answer] = []
    for each in answers:
        parts = {blamed.id for blamed in each.culprits}
        for other in kept:
            same_parts = parts == {blamed.id for blamed in other.culprits} != set()
            if same_parts and each.fault_class == other.fault_class:
                other.evidence = [*other.evidence, *each.evidence][:EVIDENCE_MAX]
                break
        else:
            kept.append(each)
    return kept


def answer_of(
    verdict: FaultAttributed,
    evidence: list[Citation],
    ruled_out: list[Alternative],
    conclusions: Sequence[object],
) -> Answer:
    """A verdict with its evidence found again and the recovery that was decided for it."""
    return Answer(
        verdict=verdict.verdict,
        fault_class=verdict.fault_class,
        culprits=[Blamed(each.kind, each.id, each.label) for each in verdict.culprits],
        confidence=verdict.confidence_ppm / 1_000_000,
        evidence=evidence,
        recovery=_recovery(verdict, conclusions),
        missing=list(verdict.missing),
        reason=verdict.reason,
        victims=in_order(verdict.victims),
        ruled_out=ruled_out,
        claimed=verdict.claimed_ppm / 1_000_000,
    )


def nothing_found(
    read_count: int, unread_count: int, absent_count: int, health: Sequence[Citation]
) -> Answer:
    """The answer where no processor opened an incident.

    Counts of files that were read, of files that were not, and of dumps that other dumps speak of
    and that are not among the files; and what shows that something works.
    """
    if health and read_count and not unread_count and not absent_count:
        return Answer(
            verdict="no-fault",
            fault_class="none",
            culprits=[],
            confidence=NO_FAULT_CONFIDENCE_PPM / 1_000_000,
            evidence=list(health[:EVIDENCE_MAX]),
            recovery=Recovery("none", "", why("none")),
            missing=[],
            reason="Nothing in these files points to a fault, and these lines show what works.",
        )
    read = "What could be read points to no fault" if read_count else "No file could be read"
    missing = _what_is_not_there(unread_count, absent_count)
    if read_count and not health:
        missing.append("nothing in it shows that anything works")
    return Answer(
        verdict="insufficient",
        fault_class="unknown",
        culprits=[],
        confidence=0.0,
        evidence=[],
        recovery=Recovery("collect_more", "", why("collect_more")),
        missing=[wanted.KERNEL_LOGS, wanted.RANKS_OUTPUT, wanted.ALL_DUMPS],
        reason="; ".join([read, *missing]) + ".",
    )


def _what_is_not_there(unread_count: int, absent_count: int) -> list[str]:
    said = []
    if unread_count:
        said.append(_counted(unread_count, "file was", "files were") + " not read")
    if absent_count:
        said.append(_counted(absent_count, "dump is", "dumps are") + " not there")
    return said


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def _recovery(verdict: FaultAttributed, conclusions: Sequence[object]) -> Recovery:
    action, target = triage_recovery(verdict)
    for each in conclusions:
        if not isinstance(each, RecoveryDecided | RecoveryWithheld):
            continue
        if each.incident == verdict.incident:
            action, target = each.action, each.target
    action = _BY_HAND.get(action) or action
    return Recovery(action, target, why(action), what_not(verdict))
