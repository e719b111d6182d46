"""Faults as the scenarios of the release plan them, with other targets, times or parameters."""

from typing import Any

from msgspec.structs import replace

from nemesis.sim.faults.planned import FaultPlanned
from nemesis.sim.faults.scenario import scenarios

_ALL = [fault for each in scenarios() for fault in each.faults]
_BY_KIND = {fault.kind: fault for fault in sorted(_ALL, key=lambda each: each.answer != "nothing")}


def planned(kind: str, **fields: Any) -> FaultPlanned:
    """A fault of this kind in the scenarios of the release, a decoy only where there is no other,
    changed where it can be."""
    plan = _BY_KIND[kind]
    return replace(plan, **{name: each for name, each in fields.items() if hasattr(plan, name)})
