"""What processors concluded."""

from typing import Annotated, Literal

import msgspec

from nemesis.schemas.codes import ComponentKind, FaultClass, Signature, Verdict
from nemesis.schemas.observed import Count, Index, Ns

Ppm = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]


class Inference(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True):
    """What every conclusion starts with."""

    at_ns: Ns
    """Log time of the input that it answers."""
    reason: str
    """Why, in one sentence a person at 3 a.m. understands."""


class Culprit(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True):
    """A component that is at fault."""

    kind: ComponentKind
    id: str
    """Its canonical name."""
    label: str = ""


class Evidence(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True):
    """One observation and what it proves."""

    fact: str
    """The id of the producer's fact."""
    says: str
    text: str = ""
    """The observation itself, quoted raw, where it is text."""


class FaultAttributed(Inference, kw_only=True, frozen=True):
    """A verdict on one incident; a later one of the same incident replaces it."""

    incident: str
    revision: Count
    """0 for the first verdict of the incident, one more each time it changes."""
    verdict: Verdict
    fault_class: FaultClass
    culprits: tuple[Culprit, ...] = ()
    victims: tuple[str, ...] = ()
    """Components that show symptoms and are innocent."""
    confidence_ppm: Ppm = 0
    evidence: tuple[Evidence, ...] = ()
    missing: tuple[str, ...] = ()
    """What to collect next, where the evidence does not suffice."""
    driver_action: str = ""
    """The driver's own word (Xid 154, NVML field 230): it sets the rung, never the class."""
    jobs: tuple[str, ...] = ()
    """Jobs with ranks on the culprits."""
    ranks: tuple[Index, ...] = ()
    """Ranks of jobs[0] that sit on the culprits."""
    signature: Signature = ""
    """What the evidence says beyond the class, where the recovery depends on it."""
    late: bool = False
    """Opened by facts that came late: for the record, no decision may follow from it."""


RiskBand = Literal["clear", "record", "watch", "act"]


class FailurePredicted(Inference, kw_only=True, frozen=True):
    """A component is likely to fail; said again only when the band changes."""

    component: str
    fault_class: FaultClass
    band: RiskBand
    """clear: taken back; record: for the record; watch: prepare a spare; act: leave it."""
    probability_ppm: Ppm = 0
    """Of failing within horizon_ns."""
    horizon_ns: Ns = 0
    rule: str = ""
    """The rule or model that says so."""
    evidence: tuple[Evidence, ...] = ()
    jobs: tuple[str, ...] = ()
    """Jobs with ranks on it."""
    ranks: tuple[Index, ...] = ()
    """Ranks of jobs[0] that sit on it."""
    incident: str = ""
    """Derived from the first fact that raised the band; the same until it is clear again."""


class InputRejected(Inference, kw_only=True, frozen=True):
    """A malformed observation; its sequence is the cause."""

    subject: str
    sha256: str
    head: bytes
    """The first 2 KiB of the payload."""


class InputsSuppressed(Inference, kw_only=True, frozen=True):
    """More rejections from one node than are worth a fact each."""

    node: str
    rejected_count: Count
