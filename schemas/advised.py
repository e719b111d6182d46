"""What the advisor, a language model, said of a job: words and proposals, never an act.

Nothing follows from an `AdviceGiven` by itself. The scheduler reads it as it reads any other fact,
asks its own rules again, and decides; replay reads the same words and asks no network.
"""

from typing import Annotated, Literal

import msgspec

from nemesis.schemas.inferred import Inference
from nemesis.schemas.observed import Count, Ns

AdvisedKind = Literal["place", "order", "spares", "offer", "release"]
CallOutcome = Literal["done", "refused", "malformed", "unknown_tool"]
AdviceEnd = Literal["answered", "spent", "too_long", "declined", "unavailable"]

TEXT_CHARS_MAX = 8_000
ACTS_MAX = 16
CALLS_MAX = 64
WHY_CHARS_MAX = 300
Why = Annotated[str, msgspec.Meta(max_length=WHY_CHARS_MAX)]


class AdvisedAct(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True):
    """One thing that the advisor would have done."""

    kind: AdvisedKind
    """place: put the job on these nodes; order: before another one of the same priority; spares:
    hold these nodes ready for it; offer: show its owner another description, which he may submit;
    release: give its nodes back."""
    job: str
    nodes: tuple[str, ...] = ()
    """Of place and spares, in node_ranges form."""
    before: str = ""
    """Of order: the job that is to come later."""
    spec: str = ""
    """Of offer: the description, canonical."""
    why: Why = ""
    """In the advisor's words."""
    rule: str = ""
    """Which rule refused it when it was proposed; "": none did."""
    refusal: Why = ""
    """What that rule said."""


class AdvisorCall(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True):
    """One call of a tool."""

    tool: str
    outcome: CallOutcome = "done"
    rule: str = ""
    """Of a refused call: the rule."""


class AdviceGiven(Inference, kw_only=True, frozen=True):
    """What the advisor said of one job, and what it took to say it."""

    advice: str
    """Its name: `<job>/<number>`, or one of the question where no job is meant."""
    job: str = ""
    spec: str = ""
    """What was asked about, as its owner wrote it."""
    text: Annotated[str, msgspec.Meta(max_length=TEXT_CHARS_MAX)] = ""
    """What it says to the job's owner, in words."""
    acts: Annotated[tuple[AdvisedAct, ...], msgspec.Meta(max_length=ACTS_MAX)] = ()
    """In the order in which they were proposed. An answer that did not come to its end holds none
    but refused ones."""
    calls: Annotated[tuple[AdvisorCall, ...], msgspec.Meta(max_length=CALLS_MAX)] = ()
    ended: AdviceEnd = "answered"
    """spent: a limit of the budget, `limit`, was reached; too_long: the answer had to be cut;
    declined: the model would not answer; unavailable: it could not be reached, `limit` says why."""
    limit: str = ""
    model: str = ""
    requests: Count = 0
    """That were sent, those that failed too."""
    tokens_in: Count = 0
    tokens_out: Count = 0
    cost_microusd: Count = 0
    """By the prices of the settings; of what a cut connection took, an estimate from above."""
    duration_ns: Ns = 0
    """By the advisor's own clock: for people, never compared."""


class AdviceJudged(Inference, kw_only=True, frozen=True):
    """What the scheduler's rules said of the acts of an advice, when it read it."""

    advice: str
    job: str
    acts: Annotated[tuple[AdvisedAct, ...], msgspec.Meta(max_length=ACTS_MAX)] = ()
    """Those that had passed when they were proposed, each with the rule that refuses it now."""
