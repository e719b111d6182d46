"""What a job needs, as `TP8_NVL12+PP4_IB2` says it, and its one canonical spelling.

Terms stand from the innermost to the outermost: ranks of the first are neighbours. The bare number
of a fabric is a class of links, the same thing on both fabrics: `NVL12` at least 12 NVLinks a GPU,
`IB2` at least 2 rails. How wide a domain must be (`/d72`) and how far apart its members may lie
(`@t2`) are said beside it. docs/scheduling.md has the grammar.
"""

from typing import Final, Literal, get_args

import msgspec

Dim = Literal["TP", "CP", "EP", "ETP", "PP", "DP", "FSDP", "DPR"]
FabricKind = Literal["NVL", "IB", "ROCE", "EFA", "PCIE", "ANY"]
Scope = Literal["t", "g"]
"""t: of a pipeline the hops from stage to stage, of all others the whole group; g: the group."""
Force = Literal["hard", "soft"]

DIMS: Final[tuple[Dim, ...]] = get_args(Dim)
FABRICS: Final[tuple[FabricKind, ...]] = get_args(FabricKind)
INFERRED: Final = 0
"""The degree that `*` stands for."""


class Fabric(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the members of a group talk over."""

    kind: FabricKind
    link_count: int = 0
    """NVLinks of a GPU or rails of a node, at least; 0: any."""
    width: int = 0
    """GPUs of an NVLink domain, exactly; 0: any."""
    scope: Scope = "t"
    tier: int = 0
    """They lie below one switch of this tier: 1 leaf, 2 pod, 3 core; 0: any."""
    force: Force = "hard"
    wait_s: int = 0
    """A soft one is waited for so long, then given up."""


class Term(msgspec.Struct, frozen=True, omit_defaults=True):
    """One way to cut the job."""

    dim: Dim
    degree: int
    """Members of a group; INFERRED: what the number of GPUs leaves."""
    chunks: int = 1
    """Of a pipeline: parts of the model that a stage holds, `v4`."""
    fabric: Fabric | None = None


class Spec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job's whole description."""

    terms: tuple[Term, ...]
    sequence_parallel: bool = False
    micro_batch: int = 0
    """Sequences that a replica takes at a time; 0: not said."""
    global_batch: int = 0
    """Sequences of a step; 0: not said."""
    order: str = ""
    """A framework's order of ranks in place of that of the terms."""
    spares: int = 0
    """Nodes to be held ready beside those that work."""


def printed(spec: Spec) -> str:
    """The canonical spelling: upper case, suffixes in the grammar's order, no defaults."""
    options = [
        *(["sp"] if spec.sequence_parallel else []),
        *([f"mbs={spec.micro_batch}"] if spec.micro_batch else []),
        *([f"gbs={spec.global_batch}"] if spec.global_batch else []),
        *([f"order={spec.order}"] if spec.order else []),
        *([f"spare={spec.spares}"] if spec.spares else []),
    ]
    terms = "+".join(_printed_term(term) for term in spec.terms)
    return f"{terms};{','.join(options)}" if options else terms


def _printed_term(term: Term) -> str:
    degree = "*" if term.degree == INFERRED else str(term.degree)
    chunks = f"v{term.chunks}" if term.chunks > 1 else ""
    fabric = f"_{_printed_fabric(term.fabric)}" if term.fabric else ""
    return f"{term.dim}{degree}{chunks}{fabric}"


def _printed_fabric(fabric: Fabric) -> str:
    count = str(fabric.link_count) if fabric.link_count else ""
    width = f"/d{fabric.width}" if fabric.width else ""
    tier = f"@{fabric.scope}{fabric.tier}" if fabric.tier else ""
    wait = f"{fabric.wait_s}s" if fabric.wait_s else ""
    soft = f"?{wait}" if fabric.force == "soft" else ""
    return f"{fabric.kind}{count}{width}{tier}{soft}"
