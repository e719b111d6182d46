"""What a person asserts of a run: which conclusions must follow, and which must not.

"If leaf 3 drops, is the leaf named within a minute, and nothing swapped?" An assertion speaks of
one kind of fact, as any reader of the log sees it, by patterns (fnmatch). Pure.
"""

from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final

import msgspec

from nemesis.schemas.facts import Fact
from nemesis.schemas.registry import EVENTS

_NAMING: Final = ("component", "target", "culprit")
"""Fields of a conclusion that hold the name of a component."""


class Assertion(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """How often something is concluded in a run."""

    fact: str
    """The conclusion, for example fault_attributed; a pattern."""
    names: str = "*"
    """A pattern of components: one of those that it names."""
    where: dict[str, str] = {}
    """Patterns of its fields: {fault_class = "network.*"}."""
    within_s: Annotated[float, msgspec.Meta(ge=0.0)] = 0.0
    """From the first fault's onset, simulated; 0: until the end."""
    at_least: Annotated[int, msgspec.Meta(ge=0)] = 1
    at_most: Annotated[int, msgspec.Meta(ge=-1)] = -1
    """-1: any number."""

    def told(self) -> str:
        """In words."""
        fields = "".join(f", {name} {pattern}" for name, pattern in self.where.items())
        named = "" if self.names == "*" else f" naming {self.names}"
        within = f" within {self.within_s:g} s" if self.within_s else ""
        most = f", at most {self.at_most}" if self.at_most >= 0 else ""
        return f"{self.fact}{named}{fields}{within}: at least {self.at_least}{most}"


class Held(msgspec.Struct, kw_only=True, frozen=True):
    """What became of an assertion."""

    assertion: str
    count: int
    holds: bool


def unknown(assertions: Sequence[Assertion]) -> list[str]:
    """What is wrong with assertions that could never hold, or never fail.

    Facts and fields that no conclusion has, bounds that exclude each other, and names in braces:
    `{nic}` stands for a target under `[fault.right]` alone, and no name holds a brace.
    """
    found: list[str] = []
    for each in assertions:
        kinds = [kind for token, kind in EVENTS.items() if fnmatchcase(token, each.fact)]
        if not kinds:
            found.append(f"assert.fact: {each.fact!r}: no such fact, see `nemesis schema list`")
        for name in each.where:
            if kinds and not any(name in kind.struct.__struct_fields__ for kind in kinds):
                found.append(f"assert.where: {name!r}: no field of {each.fact}")
        if "{" in each.names:
            found.append(
                f"assert.names: {each.names!r}: expected a pattern as of a shell, without braces:"
                " *, ? and [...]"
            )
        if 0 <= each.at_most < each.at_least:
            found.append(
                f"assert: at most {each.at_most} and at least {each.at_least} cannot both hold;"
                " at_least is 1 where it is left out"
            )
    return found


def held(
    assertions: Sequence[Assertion], facts: Iterable[Fact], *, began_ns: int, onset_ns: int
) -> list[Held]:
    """Count what was concluded since `began_ns`: nothing earlier can follow from a fault.

    It began with the first of it that could be seen, and strikes at its onset.
    """
    since = [fact for fact in facts if fact.at_ns >= began_ns]
    return [_held(each, since, onset_ns) for each in assertions]


def _held(assertion: Assertion, facts: Sequence[Fact], onset_ns: int) -> Held:
    until_ns = onset_ns + round(assertion.within_s * 1e9)
    count = sum(
        _matches(assertion, fact)
        for fact in facts
        if not assertion.within_s or fact.at_ns <= until_ns
    )
    enough = count >= assertion.at_least
    holds = enough and (assertion.at_most < 0 or count <= assertion.at_most)
    return Held(assertion=assertion.told(), count=count, holds=holds)


def _matches(assertion: Assertion, fact: Fact) -> bool:
    if not fnmatchcase(fact.kind, assertion.fact):
        return False
    for name, pattern in assertion.where.items():
        if not fnmatchcase(str(getattr(fact.data, name, "")), pattern):
            return False
    return assertion.names == "*" or any(
        fnmatchcase(name, assertion.names) for name in _names(fact.data)
    )


def _names(data: Any) -> Iterator[str]:
    for culprit in getattr(data, "culprits", ()):
        yield getattr(culprit, "id", culprit)
    for field in _NAMING:
        if isinstance(name := getattr(data, field, None), str):
            yield name
