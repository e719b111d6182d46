"""What processors concluded."""

from typing import Annotated, Literal

import msgspec

from nemesis.schemas.codes import ComponentKind, FaultClass, Signature, Verdict
from nemesis.schemas.observed import Count, Index, Ns, Sha256

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


class RuledOut(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True):
    """Another explanation that was considered, and what speaks against it."""

    says: str
    """What else it could have been: a component, or a kind of fault."""
    because: str
    fact: str = ""
    """The id of the producer's fact that rules it out, where one does."""


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
    """How often a verdict of this kind is right: measured, where it was (calibration.py)."""
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
    ruled_out: tuple[RuledOut, ...] = ()
    """What else it could have been, the most likely first."""
    claimed_ppm: Ppm = 0
    """How sure the rule itself is, before calibration: what decides whether a part is named."""


RiskBand = Literal["clear", "record", "watch", "act"]


class FailurePredicted(Inference, kw_only=True, frozen=True):
    """A component is likely to fail; said again only when the band changes, or its chance on record
    passes another of a few levels."""

    component: str
    fault_class: FaultClass
    band: RiskBand
    """clear: taken back; record: for the record; watch: prepare a spare; act: leave it."""
    probability_ppm: Ppm = 0
    """Of failing within horizon_ns; both are 0 where nobody has published a figure."""
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


class InputShift(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True):
    """How far one input of a model lies from what it was trained on."""

    name: str
    shift_ppm: Ppm
    """The part of its values that lie elsewhere: half the sum of the differences of the shares."""


class ModelDriftMeasured(Inference, kw_only=True, frozen=True):
    """What a model was shown and concluded in a day, against its training."""

    model: Sha256
    """Of its file."""
    seen_count: Count
    """Readings of GPUs that were counted, one a minute of each."""
    inputs: tuple[InputShift, ...] = ()
    """Those that moved at all."""
    score_shift_ppm: Ppm = 0
    """Of the logit that moved farthest."""


IncidentTrigger = Literal["verdict", "prediction", "decision", "withheld", "reopened"]
GroupingRule = Literal["named", "cited", "component", "victim", "leaf", "predicted"]
"""named: a decision that names the incident; cited: a name that is a fact which the verdict cites;
component: the same component is at fault; victim: what is at fault there only suffers here; leaf:
both hang on one switch that is in trouble; predicted: the failure that was predicted."""

IncidentOutcome = Literal[
    "recovered",
    "no_action",
    "advised",
    "withheld",
    "vetoed",
    "expired",
    "failed",
    "refuted",
    "cleared",
    "quiet",
]
"""recovered: a new membership went on; no_action: the decision was that none is needed; advised:
decided in shadow or for a person to do; withheld: policy forbade the recovery; expired: nobody
approved or carried it out; failed: it was carried out and did not work; refuted: nothing was wrong;
cleared: the prediction was taken back; quiet: no decision, and no news for long."""


class IncidentOpened(Inference, kw_only=True, frozen=True):
    """Something is wrong, or about to be: the first fact that names the incident was read."""

    incident: str
    trigger: IncidentTrigger
    revision: Count = 0
    """How often it was closed before."""
    began_ns: Ns = 0
    """Log time of the earliest fact that it was drawn from, in whole ticks."""
    component: str = ""
    """What is at fault as far as known."""
    jobs: tuple[str, ...] = ()


class IncidentGrouped(Inference, kw_only=True, frozen=True):
    """What goes by another name belongs to this incident: facts that name the member are its."""

    incident: str
    member: str
    """The name of a decision, of another incident, or of the fact that a decision answers."""
    rule: GroupingRule
    component: str = ""
    """What the two have in common, where that is a component."""


class IncidentClosed(Inference, kw_only=True, frozen=True):
    """It is over, until a later fact opens it again under the same name."""

    incident: str
    outcome: IncidentOutcome
    revision: Count = 0
    """How often it was closed before."""
    began_ns: Ns = 0
    ended_ns: Ns = 0
    confirmed: bool = False
    """Of recovered: the steps of every job concerned were seen going on."""
    fault_class: FaultClass = "unknown"
    culprits: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    """Every other name that its facts go by."""


class TimeParts(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True):
    """Where time went; the parts add up to the whole. What each is: processors/goodput."""

    start_ns: Ns = 0
    productive_ns: Ns = 0
    degraded_ns: Ns = 0
    redone_ns: Ns = 0
    detection_ns: Ns = 0
    decision_ns: Ns = 0
    recovery_ns: Ns = 0
    waiting_ns: Ns = 0
    """For a person."""
    stalled_ns: Ns = 0
    """No step, and no fact says why."""
    open_ns: Ns = 0
    """Since the last step seen: which part it is will be known later."""


class GoodputAccounted(Inference, kw_only=True, frozen=True):
    """Where the time of a job went, from its submission on."""

    job: str
    since_ns: Ns
    until_ns: Ns
    parts: TimeParts
    """They add up to until_ns - since_ns exactly."""
    step: Count = 0
    """The highest step finished."""
    redone_count: Count = 0
    """Steps that were, or are to be, done more than once."""
    world: Count = 0
    """Ranks now."""
    world_full: Count = 0
    """Ranks at submission."""
    step_ns: Ns = 0
    """How long a step usually takes; 0 where it is not known yet."""
    ended: bool = False
    """The job is over: this is its last account."""


class JobResumed(Inference, kw_only=True, frozen=True):
    """The first step of a new membership was seen: the job goes on."""

    job: str
    step: Count
    world: Count = 0
    decision: str = ""
    """The decision that made the membership; empty where the agents made it alone."""
    lost_ns: Ns = 0
    """Since the last step before it."""


class IncidentCosted(Inference, kw_only=True, frozen=True):
    """What an incident cost one job; a later one of the same incident and job replaces it."""

    incident: str
    job: str
    parts: TimeParts
    """Only what it lost; degraded and redone time as far as it is known by now."""
    lost_ns: Ns = 0
    """The sum of the parts."""
    lost_gpu_ms: Count = 0
    """The same in GPU-milliseconds: every rank that the job has at submission occupies one GPU."""
    final: bool = False
    """Nothing more will follow from it."""


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
