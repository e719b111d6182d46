"""Whether a ledger agrees with itself: what it says of a fault must be possible and complete.

A ledger that is wrong makes every score wrong, so its own rules are checked before anything is
judged by it. Pure; a sentence for each rule that does not hold.
"""

from collections.abc import Iterator
from typing import Final

from nemesis.schemas.codes import ACTIONS, COMPONENT_KINDS, FAULT_CLASSES
from nemesis.sim.truth.ledger import FaultInjected, MembershipFormed
from nemesis.sim.truth.ledger_file import Ledger

_SEATS: Final = {*COMPONENT_KINDS, "config"}


def contradictions(ledger: Ledger) -> list[str]:
    """What does not hold; none of a sound ledger."""
    found: list[str] = []
    for number, fault in enumerate(ledger.faults):
        about = f"fault {number} ({fault.kind} of {fault.culprit})"
        found += [f"{about}: {each}" for each in _of_fault(fault, ledger)]
    found += list(_of_memberships(ledger))
    began = [each.began_ns for each in ledger.faults]
    if began != sorted(began):
        found.append("faults are not in the order in which they began")
    return found


def _of_fault(fault: FaultInjected, ledger: Ledger) -> Iterator[str]:
    opened, closed = ledger.opened, ledger.closed
    if not opened.start_ns <= fault.began_ns <= fault.at_ns:
        yield "it strikes before it began, or before the run"
    if not fault.began_ns <= fault.over_ns:
        yield "its last symptom comes before it began"
    if fault.began_ns > closed.at_ns:
        yield "it begins after the run"
    if 0 <= fault.repaired_ns < fault.began_ns:
        yield "it is mended before it began"
    yield from _of_names(fault)
    if fault.components:
        yield from _of_answer(fault)
    elif fault.classes or fault.actions or fault.attributable is not None:
        yield "a decoy, and yet there is something right to conclude of it"
    yield from _of_chain(fault)
    yield from _of_evidence(fault)


def _of_names(fault: FaultInjected) -> Iterator[str]:
    for name in (fault.culprit, *fault.components, *fault.harmless, *fault.innocent):
        kind, _, rest = name.partition("/")
        if kind not in _SEATS or not rest:
            yield f"{name!r} is no component's name"
    guilty = {fault.culprit, *fault.components}
    both = sorted(guilty & set(fault.innocent))
    if fault.components and both:
        yield f"{both[0]} is guilty and innocent at once"
    if twice := sorted(set(fault.components) & set(fault.harmless)):
        yield f"{twice[0]} is right to name, and only harmless"


def _of_answer(fault: FaultInjected) -> Iterator[str]:
    if not fault.classes or not set(fault.classes) <= set(FAULT_CLASSES):
        yield "no class, or none that there is, is right to conclude"
    if not fault.actions or not set(fault.actions) <= set(ACTIONS):
        yield "no action, or none that there is, is right to decide"
    if fault.stalls and fault.lost_ranks != tuple(sorted(set(fault.lost_ranks))):
        yield "ranks that are lost are not in order, or twice"


def _of_chain(fault: FaultInjected) -> Iterator[str]:
    times = [each.after_ns for each in fault.chain]
    if times != sorted(times) or any(each < 0 for each in times):
        yield "its chain goes back in time"
    named = {fault.culprit, *fault.components, *fault.harmless}
    if fault.chain and fault.components and fault.chain[0].component not in named:
        yield f"its chain begins at {fault.chain[0].component}, which is not at fault"
    if fault.components and fault.innocent and not fault.chain:
        yield f"{fault.innocent[0]} is innocent though loud, and nothing says why it is loud"


def _of_evidence(fault: FaultInjected) -> Iterator[str]:
    if any(not 0 <= place < len(fault.evidence) for place in fault.delivered):
        yield "evidence was delivered that nobody expects"
        return
    decisive = any(fault.evidence[place].decisive for place in fault.delivered)
    if fault.attributable is not None and fault.attributable is not decisive:
        yield "attributable does not follow from what was delivered"


def _of_memberships(ledger: Ledger) -> Iterator[str]:
    last: dict[str, MembershipFormed] = {}
    for each in ledger.memberships:
        before = last.get(each.job)
        if not ledger.opened.start_ns <= each.at_ns <= ledger.closed.at_ns:
            yield f"a step at {each.at_ns} lies outside the run"
        if before is not None and each.epoch < before.epoch:
            yield f"epoch {each.epoch} follows epoch {before.epoch}"
        if before is not None and each.at_ns < before.at_ns:
            yield f"a step at {each.at_ns} follows one at {before.at_ns}"
        last[each.job] = each
