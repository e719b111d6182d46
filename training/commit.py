"""When a step counts whose gradients no single reduction brings to all members. Pure.

Where ranks hold different parts of a model, each part is reduced among those who hold it, and a
fault may let one reduction complete and break another. Then one part would have the step and the
other not, and nobody could give what is missing: it is nowhere. So after its own reductions, and
before it applies anything, each member adds a number to a sum over all: who gets the sum knows that
everybody has all gradients of the step. Who does not get it, because a member was lost meanwhile,
holds the step *prepared*, and asks in the next group: if anybody applied it, so does he, with the
gradients that he still has; if nobody did, nobody does, and the step is done again.
"""

from collections.abc import Iterable
from typing import NamedTuple

from nemesis.training.membership import NO_STATE, State


class Part(NamedTuple):
    """What a member of a new group has, of its part of the model."""

    state: State
    prepared: State = NO_STATE
    """What it would have if it applied what it holds."""


def latest(parts: Iterable[Part]) -> State:
    """The state that all go on from."""
    return max(part.state for part in parts)


def is_applied_by_others(own: Part, parts: Iterable[Part]) -> bool:
    """Whether the step that a member holds prepared counts."""
    return own.prepared != NO_STATE and own.prepared == latest(parts)


def settled(own: Part, parts: Iterable[Part]) -> State:
    """What a member has once it has done what follows for what it holds prepared."""
    return own.prepared if is_applied_by_others(own, parts) else own.state
