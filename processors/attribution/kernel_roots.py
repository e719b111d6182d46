"""What the rules about kernel messages share: roots, and findings that rest on them."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from nemesis.processors.attribution.findings import Finding
from nemesis.processors.attribution.incidents import Clue
from nemesis.processors.attribution.kernel_rules import Role
from nemesis.schemas import components

PARTS_MAX: Final = 2  # more of one kind at once on one node: what they share is at fault


class Rooted(NamedTuple):
    """A message that names a fault, and what it is worth among the others."""

    clue: Clue
    role: Role


def gpus_of(node: str, roots: Sequence[Rooted]) -> tuple[str, ...]:
    """The GPUs that messages are about, by their canonical names, sorted."""
    return tuple(sorted({components.gpu(node, each.clue.message.device) for each in roots}))


def attributed(
    roots: Sequence[Rooted], culprits: tuple[str, ...], reason: str, confidence_ppm: int
) -> Finding:
    """These components are at fault."""
    role = roots[0].role
    return Finding(
        verdict="attributed",
        fault_class=role.fault_class,
        reason=reason,
        confidence_ppm=confidence_ppm,
        level=role.level,
        culprits=culprits,
    )


def class_only(
    roots: Sequence[Rooted], reason: str, confidence_ppm: int, missing: tuple[str, ...] = ()
) -> Finding:
    """What kind of fault it is, and not which part has it."""
    role = roots[0].role
    return Finding(
        verdict="class-only",
        fault_class=role.fault_class,
        reason=reason,
        confidence_ppm=confidence_ppm,
        level=role.level,
        missing=missing,
    )
