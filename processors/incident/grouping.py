"""To which open incident does a verdict or a prediction belong, and by which rule?

Attribution gathers what proves one fault; what it keeps apart can still be one event: a failure
that was predicted, a component that fails again, a victim that was heard before the culprit, the
links of one switch. The older incident keeps its name.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from nemesis.processors.attribution.inventory import Inventory
from nemesis.processors.incident.case import Case, Cases
from nemesis.processors.incident.names import incident_of
from nemesis.schemas.components import node_of
from nemesis.schemas.inferred import FaultAttributed, GroupingRule

# evidence of one fault is spread over as much (attribution's JOIN_NS): later is another event
WINDOW_NS: Final = 120_000_000_000
_NETWORK: Final = ("nic", "network.link", "network.fabric", "network.pause", "straggler.network")


class Home(msgspec.Struct, frozen=True):
    """An incident that something belongs to, and why."""

    case: Case
    rule: GroupingRule
    component: str = ""
    leads: bool = False
    """The newcomer explains what is known already: its verdict counts from now on."""


def home_of(cases: Cases, verdict: FaultAttributed, now_ns: int, *, apart: str = "") -> Home | None:
    """The open incident that a verdict belongs to, other than the one it names (`apart`)."""
    for evidence in verdict.evidence:
        case = cases.by_id.get(incident_of(evidence.fact))
        if case is not None and not case.closed and case.id != apart:
            return Home(case, "cited", leads=True)
    culprits = [each.id for each in verdict.culprits]
    if not culprits:
        return None
    for case in cases.open_ones():
        if case.id == apart:
            continue
        home = _home(case, culprits, verdict, cases.inventory)
        if home is not None and (home.rule == "predicted" or now_ns - case.changed_ns <= WINDOW_NS):
            return home
    return None


def about(cases: Cases, component: str) -> Case | None:
    """The open incident in which this component is at fault or predicted to fail."""
    for case in cases.open_ones():
        if component in case.culprits or component == case.component:
            return case
    return None


def _home(
    case: Case, culprits: list[str], verdict: FaultAttributed, inventory: Inventory
) -> Home | None:
    if case.component and _common(culprits, [case.component]):
        return Home(case, "predicted", case.component, leads=True)
    if shared := _common(culprits, case.culprits):
        return Home(case, "component", shared)
    if set(culprits) <= set(case.victims):
        return Home(case, "victim", culprits[0])
    if case.culprits and set(case.culprits) <= set(verdict.victims):
        return Home(case, "victim", case.culprits[0], leads=True)
    if verdict.fault_class in _NETWORK and case.fault_class in _NETWORK:
        switches = sorted(_switches(culprits, inventory) & _switches(case.culprits, inventory))
        if switches:
            return Home(case, "leaf", f"switch/{switches[0]}")
    return None


def _common(some: Iterable[str], others: Iterable[str]) -> str:
    """A component of both, or a node of one that holds a part of the other."""
    for one in some:
        for other in others:
            if one == other or one == f"node/{node_of(other)}" or other == f"node/{node_of(one)}":
                return one
    return ""


def _switches(components: Iterable[str], inventory: Inventory) -> set[str]:
    found: set[str] = set()
    for component in components:
        kind, _, name = component.partition("/")
        if kind in ("port", "switch"):
            found.add(name.split("/")[0])
        elif node := node_of(component):
            found.update(inventory.uplinks_of(node))
    return found
