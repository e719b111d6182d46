"""What the job actor and the node agents say to each other: plans, answers, reports.

Agents do not read the log. The actor sends a Plan by request on `nemesis.plan.<node>` until it is
answered with a PlanAnswer; an agent says what became of it in Reports on
`nemesis.report.<node>.ranks`, and one that (re)connects asks for its last plans by a Hello request
on `nemesis.report.<node>.hello`, answered with Plans. A node's producer
listens on `nemesis.plan.<node>.polls` alone. All payloads are JSON, so that people can watch the
channel with `nats sub`.

A job's membership has an epoch: 0 as submitted, one more with each new membership. Plans of a job
are ordered by its life, then by `order_of`: hold(e) comes before membership(e + 1), which comes
before hold(e + 1).
An agent keeps the latest plan of each job over its own restarts, carries out a plan that is later,
answers a repetition with its present state without doing anything again, and refuses what is
earlier ("stale") or meant for another boot ("other_boot"). That last check is what makes an effect
happen once, whatever the actor does.
"""

from typing import Any, Final, Literal, TypeVar

import msgspec

from nemesis.schemas.errors import MalformedFactError
from nemesis.schemas.observed import Count, Index, Ns
from nemesis.schemas.tokens import token_of

PlanKind = Literal["hold", "membership", "observe", "stop"]
"""hold: bring the ranks to their last common state and keep them there, fence `fenced`.
membership: go on as `members` in `epoch`; start what is to be started, stop what left.
observe: change nothing, answer with the state (never stored as the last plan).
stop: end every rank of the job on this node."""

RankStage = Literal["starting", "running", "held", "fenced", "left", "failed", "unknown"]
"""fenced: the agent made sure that nothing of the rank can run on; left: ended on request,
or by itself at the end of its work."""

StateSource = Literal["memory", "peer", "checkpoint"]
"""Where a started rank takes its state from; memory: it still has it."""

Outcome = Literal["accepted", "repeated", "stale", "other_boot", "unknown_job", "refused"]


class Placement(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True):
    """Ranks that run on a node from this plan on, where that differs from the submission."""

    node: str
    ranks: str
    """In rank_ranges form, named by their rank at submission."""


class Plan(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True):
    """What is to become of a job, the same for all its nodes; idempotent by (job, epoch, kind)."""

    job: str
    epoch: Count
    """hold, stop, observe: the epoch it applies to; membership: the new one."""
    kind: PlanKind
    decision: str = ""
    """The decision that it carries out, for people."""
    members: str = ""
    """Ranks that go on, in rank_ranges form, named by their rank at submission."""
    world: Count = 0
    """How many those are."""
    fenced: str = ""
    """Ranks of which nothing may run on: dead, or removed."""
    started: str = ""
    """Members whose process is to be started anew."""
    state_from: StateSource = "memory"
    """Where the started ones take their state from; the others keep theirs."""
    placements: tuple[Placement, ...] = ()
    """Where members run, all that moved since the submission; the latest plan says it whole."""
    step: int = -1
    """The step to go on from; -1: the last common one, which members agree on."""
    issued_ns: Ns = 0
    """Log time of the decision."""
    deadline_ns: Ns = 0
    """Log time after which the actor gives the plan up; agents do not compare it."""
    boot_ids: dict[str, str] = {}
    """Boot of each node that the plan is meant for; a node that booted since refuses it."""
    on_log_loss: Literal["wait", "restart", "shrink"] = "wait"
    """What an agent does, once, under the next epoch, when the log is away for `grace_ns`."""
    grace_ns: Ns = 30_000_000_000
    at_boundary: bool = False
    """Of a membership: members finish steps together until all of them know it, and go on in it
    from one same step; else they give up what they wait for."""
    store: str = ""
    """Of a membership: `host:port` where its members meet, "" where they know it."""
    checkpoint: str = ""
    """Path of what the started ones are to load, as the job told of it; `step` is its step."""
    why: str = ""
    """The decision's reason, for those who are started."""
    life: Count = 0
    """Sequence of the fact with which the job began: one that is placed again under its name counts
    its epochs anew. 0: nobody says, and it is the same life."""


class RankState(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True):
    """One rank as its agent sees it."""

    rank: Index
    stage: RankStage
    epoch: Count = 0
    """The epoch that the rank itself is in."""
    step: Count = 0
    """The last step that it finished."""
    pid: Index = 0
    attached: bool = True
    """It, or an earlier process of it, has called the hook; who never does cannot regroup."""
    stopped: bool = False
    """Its process has been stopped by a signal for a while: it hears nothing."""


class PlanAnswer(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True):
    """An agent's reply to a plan: what it makes of it, and how things stand at that moment."""

    node: str
    boot_id: str
    job: str
    outcome: Outcome
    epoch: Count = 0
    """Epoch of the last plan that the agent accepted for the job."""
    kind: PlanKind = "membership"
    """Kind of that plan."""
    why: str = ""
    ranks: tuple[RankState, ...] = ()
    members: str = ""
    """As in a Report: where agents made that epoch alone, who goes on in it."""
    start_ns: Ns = 0
    """As in a Report; 0 of an agent that does not say."""
    n: Count = 0
    """The report that it made last: what `ranks` says is as new as that one, or newer."""


class Report(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True):
    """What an agent says unasked, at each change of stage: all its ranks of one job."""

    node: str
    boot_id: str
    start_ns: Ns
    """When the agent process started; with n it orders its reports."""
    n: Count
    job: str
    epoch: Count
    """Epoch of the last plan that the agent accepted for the job."""
    kind: PlanKind = "membership"
    ranks: tuple[RankState, ...] = ()
    by: Literal["plan", "agent"] = "plan"
    """agent: it acted by itself, on a dead rank or after `grace_ns` without the log."""
    members: str = ""
    """All ranks that go on in the epoch, in rank_ranges form, where agents agreed on it alone."""
    store: str = ""
    """`host:port` of a store that this agent keeps for memberships to come."""


class Hello(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True):
    """An agent (re)connected and asks for its last plans."""

    node: str
    boot_id: str
    start_ns: Ns


class Plans(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True):
    """The last plan of each job that has ranks on the node, hold and membership alike."""

    plans: tuple[Plan, ...] = ()


class PollPlan(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True):
    """A node's producer is asked to poll more often for a while; it does not answer."""

    node: str
    period_ns: Ns
    """From poll to poll; a producer polls no oftener than once a second."""
    for_ns: Ns
    """For so long from when it hears of it; who still wants it asks again."""
    why: str = ""
    """The incident for which it is asked."""


def order_of(epoch: int, kind: PlanKind) -> int:
    """The place of a plan among those of its job; observe has none and counts as membership."""
    return epoch * 3 + {"membership": 0, "observe": 0, "hold": 1, "stop": 2}[kind]


def plan_subject(node: str) -> str:
    """Where a node's agent listens."""
    return f"nemesis.plan.{token_of(node)}"


def poll_plan_subject(node: str) -> str:
    """Where a node's producer listens."""
    return f"{plan_subject(node)}.polls"


def report_subject(node: str) -> str:
    """Where a node's agent reports."""
    return f"nemesis.report.{token_of(node)}.ranks"


def hello_subject(node: str) -> str:
    """Where a node's agent asks for its last plans."""
    return f"nemesis.report.{token_of(node)}.hello"


ALL_REPORTS: Final = "nemesis.report.*.ranks"
ALL_HELLOS: Final = "nemesis.report.*.hello"

Message = Plan | PlanAnswer | Report | Hello | Plans | PollPlan
M = TypeVar("M", Plan, PlanAnswer, Report, Hello, Plans, PollPlan)

_encoder: Final = msgspec.json.Encoder()
_decoders: Final[dict[Any, msgspec.json.Decoder[Any]]] = {
    struct: msgspec.json.Decoder(struct)
    for struct in (Plan, PlanAnswer, Report, Hello, Plans, PollPlan)
}


def encode_message(message: Message) -> bytes:
    """A message's bytes on the channel."""
    return _encoder.encode(message)


def decode_message(struct: type[M], payload: bytes) -> M:
    """The message in these bytes.

    Raises:
        MalformedFactError: they are not one of that kind.
    """
    try:
        message = _decoders[struct].decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedFactError(f"{struct.__name__}: {error}") from error
    assert isinstance(message, struct)
    return message
