"""The tools of the advisor: what the model calls becomes a question to the desk, or a proposal.

Every call is read by a strict struct and asked of the rules; what is refused is kept with its rule,
for people will ask what the model wanted. No tool changes anything.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

import msgspec

from nemesis.actors.advisor.answer import Call
from nemesis.actors.advisor.desk import Desk
from nemesis.actors.advisor.fence import escaped
from nemesis.processors.parallelism.parsing import BadSpecError, read
from nemesis.processors.parallelism.spec import printed
from nemesis.processors.scheduler.following import Broken
from nemesis.schemas.advised import (
    ACTS_MAX,
    TEXT_CHARS_MAX,
    WHY_CHARS_MAX,
    AdvisedAct,
    AdvisorCall,
)
from nemesis.schemas.printable import one_line

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
SpecText = Annotated[str, msgspec.Meta(min_length=1, max_length=500)]
Nodes = Annotated[tuple[Name, ...], msgspec.Meta(max_length=1000)]


class _Input(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a tool is called with."""


class _Validate(_Input, frozen=True, kw_only=True):
    spec: SpecText
    gpus: Annotated[int, msgspec.Meta(ge=0, le=10_000_000)] = 0


class _Propose(_Input, frozen=True, kw_only=True):
    job: Name
    avoid: Nodes = ()
    only: Nodes = ()


class _Schedule(_Input, frozen=True, kw_only=True):
    job: Name
    why: str
    nodes: Nodes = ()
    before: str = ""
    spares: Nodes = ()
    spec: str = ""


class _Release(_Input, frozen=True, kw_only=True):
    job: Name
    why: str


class _Explain(_Input, frozen=True, kw_only=True):
    words: Annotated[str, msgspec.Meta(min_length=1)]


class Said(msgspec.Struct, frozen=True):
    """What a tool answers the model."""

    text: str
    """JSON."""
    malformed: bool = False
    failed: bool = False


class Tools:
    """The tools of one advice, and what was proposed with them."""

    def __init__(self, desk: Desk) -> None:
        self.acts: Final[list[AdvisedAct]] = []
        self.calls: Final[list[AdvisorCall]] = []
        self.words = ""
        """What `explain` was told; "" until then."""
        self._desk: Final = desk

    def answer(self, call: Call) -> Said:
        """Do what a call asks for, or say why not."""
        tool = _TOOLS.get(call.tool)
        if tool is None:
            self.calls.append(AdvisorCall(tool=_short(call.tool, 60), outcome="unknown_tool"))
            told = {"error": "unknown_tool", "tools": sorted(_TOOLS)}
            return Said(escaped(told), malformed=True, failed=True)
        shape, run = tool
        try:
            if call.input is None:
                raise msgspec.ValidationError("not a JSON object")
            given = msgspec.convert(call.input, shape)
        except msgspec.ValidationError as error:
            self.calls.append(AdvisorCall(tool=call.tool, outcome="malformed"))
            told = {"error": "malformed_call", "why": str(error)}
            return Said(escaped(told), malformed=True, failed=True)
        found = run(self, given)
        if isinstance(found, Broken):
            self.calls.append(AdvisorCall(tool=call.tool, outcome="refused", rule=found.rule))
            return Said(escaped({"refused": found.rule, "why": found.why}), failed=True)
        self.calls.append(AdvisorCall(tool=call.tool))
        return Said(escaped(found))

    def _validate(self, given: _Validate) -> dict[str, Any] | Broken:
        return self._desk.validate(given.spec, given.gpus)

    def _propose(self, given: _Propose) -> dict[str, Any] | Broken:
        return self._desk.propose(given.job, avoid=given.avoid, only=given.only)

    def _schedule(self, given: _Schedule) -> dict[str, Any] | Broken:
        said = [name for name in ("nodes", "before", "spares", "spec") if getattr(given, name)]
        if len(said) != 1:
            told = ", ".join(said) or "none"
            return Broken("one_act", f"exactly one of nodes, before, spares, spec; got {told}")
        why = _short(given.why, WHY_CHARS_MAX)
        match said[0]:
            case "nodes":
                act = AdvisedAct(kind="place", job=given.job, nodes=given.nodes, why=why)
            case "before":
                act = AdvisedAct(kind="order", job=given.job, before=given.before, why=why)
            case "spares":
                act = AdvisedAct(kind="spares", job=given.job, nodes=given.spares, why=why)
            case _:
                try:
                    spec = printed(read(given.spec).spec)
                except BadSpecError as error:
                    return Broken("language", error.message)
                act = AdvisedAct(kind="offer", job=given.job, spec=spec, why=why)
        return self._propose_act(act)

    def _release(self, given: _Release) -> dict[str, Any] | Broken:
        why = _short(given.why, WHY_CHARS_MAX)
        return self._propose_act(AdvisedAct(kind="release", job=given.job, why=why))

    def _propose_act(self, act: AdvisedAct) -> dict[str, Any] | Broken:
        if len(self.acts) >= ACTS_MAX:
            return Broken("acts_max", f"an advice holds at most {ACTS_MAX} acts")
        refusal = self._desk.judge(act)
        if refusal is not None:
            told = _short(refusal.why, WHY_CHARS_MAX)
            act = msgspec.structs.replace(act, rule=refusal.rule, refusal=told)
        self.acts.append(act)
        return refusal or {"passed": "no rule refuses it now; the scheduler decides"}

    def _explain(self, given: _Explain) -> dict[str, Any]:
        self.words = given.words[:TEXT_CHARS_MAX]
        return {"said": True}


_Run = Callable[[Tools, Any], dict[str, Any] | Broken]
_TOOLS: Final[Mapping[str, tuple[type[_Input], _Run]]] = {
    "validate": (_Validate, Tools._validate),
    "propose_placement": (_Propose, Tools._propose),
    "schedule": (_Schedule, Tools._schedule),
    "release": (_Release, Tools._release),
    "explain": (_Explain, Tools._explain),
}
TOOL_NAMES: Final = tuple(_TOOLS)


def _short(text: str, chars_max: int) -> str:
    return one_line(text)[:chars_max]
