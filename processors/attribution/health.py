"""What among the facts of a bundle shows that something works.

Why: that no rule found a fault is no proof that there is none; `no fault` wants evidence as every
verdict does. How: something was tried and went right (a job that ended as it should, a test that
ran, a service that is up), or a part was asked and answered with nothing out of order (a GPU's own
report, counters, a kernel's log), or went on (steps, operations that all ranks completed). A
setting shows nothing: it may be right or wrong for what is done with it. One sign is enough where
nothing speaks against it; what speaks against it is the rules' to say.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from nemesis.processors.attribution.log_messages import parse_line
from nemesis.schemas.observed import (
    CollectiveRecorded,
    CountersRead,
    KernelLineLogged,
    LogLineWritten,
    Observation,
    SettingRead,
    StepsTimed,
    TrialFinished,
)

STEPS_MIN: Final = 5  # fewer may be the first steps of a job that never came further
SHOWN_EACH: Final = 3
_PARTS: Final = ("gpu/", "nic/", "port/", "switch/", "nvlink/")
# states of services, nodes and jobs: systemctl(1), scontrol(1), sacct(1), dcgmi
_WELL: Final = re.compile(
    r"active \(running\)|(?:IDLE|ALLOCATED|MIXED|COMPLETED|Pass|Healthy|no errors)\b"
)
_ENDED_WELL: Final = frozenset({"finished", "ports_ok"})
_HOW_FAR: Final = frozenset({"launched", "communicator"})


class Sign(msgspec.Struct, frozen=True):
    """An observation and what it shows to be well."""

    observation: Observation
    says: str


def signs_of_health(facts: Iterable[Observation]) -> list[Sign]:
    """The first few signs of each kind, in the order of the facts."""
    found: list[Sign] = []
    count: dict[str, int] = {}
    for sign in _signs(facts):
        if count.setdefault(sign.says, 0) < SHOWN_EACH:
            found.append(sign)
        count[sign.says] += 1
    return found


def _signs(facts: Iterable[Observation]) -> Iterator[Sign]:
    steps = 0
    for fact in facts:
        steps += isinstance(fact, StepsTimed)
        if isinstance(fact, StepsTimed) and steps != STEPS_MIN:
            continue
        if says := _says(fact):
            yield Sign(fact, says)


def _says(fact: Observation) -> str:
    """What an observation shows to be well, "" for nothing."""
    match fact:
        case LogLineWritten():
            return _said(fact)
        case TrialFinished(outcome="passed" | "measured"):
            return "a test ran to its end"
        case SettingRead():
            if _WELL.match(fact.value):
                return "a state as it should be"
            return _answered(fact.component)
        case CountersRead():
            return _answered(fact.component)
        case StepsTimed():
            return "steps went on"
        case KernelLineLogged():
            return "a kernel's log in which nothing is out of order"
        case CollectiveRecorded(dump_missing=False):
            return "this rank waits for nobody"
        case _:
            return ""


def _answered(component: str) -> str:
    is_part = component.startswith(_PARTS) or component.endswith("/pcie-link")
    return "this part answered" if is_part else ""


def _said(fact: LogLineWritten) -> str:
    message = parse_line(fact.source, fact.text)
    if message is None:
        return ""
    if message.kind in _ENDED_WELL:
        return "something ended as it should"
    return "no rank lags" if message.kind in _HOW_FAR else ""
