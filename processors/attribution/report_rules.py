"""What the rules about logs, settings and trials share: proofs of what was told, and findings."""

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from msgspec.structs import replace

from nemesis.processors.attribution.findings import Finding, Proof
from nemesis.processors.attribution.reports import Told

PROOFS_MAX: Final = 12


class Rule(Protocol):
    """Reads everything told of one job."""

    def __call__(self, told: Told) -> list[Finding]:
        """What it proves."""
        ...


class HasProof(Protocol):
    """Something told, with its fact."""

    @property
    def proof(self) -> Proof:
        """The fact."""
        ...


def proofs_of(each_says: Iterable[tuple[HasProof, str]]) -> tuple[Proof, ...]:
    """The facts and what each proves, the first few."""
    proofs = [replace(told.proof, says=says) for told, says in each_says]
    return tuple({proof.fact: proof for proof in proofs}.values())[:PROOFS_MAX]


def proofs(told: Sequence[HasProof], says: str) -> tuple[Proof, ...]:
    """Facts that all prove the same."""
    return proofs_of((each, says) for each in told)


def shown(names: Iterable[object], most: int = 4) -> str:
    """Names for a sentence."""
    known = [str(each) for each in names]
    rest = len(known) - most
    return ", ".join(known[:most]) + (f" and {rest} more" if rest > 0 else "")
