"""Which ranks form which groups, once every degree of a description is a number.

A rank is a number in mixed radix: coordinate times stride, summed over the dims, the innermost
first; a group of one dim are the ranks that differ in that coordinate alone (Megatron-LM,
`generate_masked_orthogonal_rank_groups`). Experts are folded: they take their ranks out of those of
TP, CP and DP, and a pipeline has the same stages for both.
"""

from collections.abc import Mapping
from math import prod
from typing import Final

import msgspec

from nemesis.processors.parallelism.spec import DIMS, INFERRED, Dim, Spec, Term

DATA: Final[tuple[Dim, ...]] = ("DP", "FSDP")
"""One dim by two names: replicas that average gradients; under FSDP each keeps a shard of all."""
EXPERT: Final[tuple[Dim, ...]] = ("EP", "ETP")
ORDERS: Final[Mapping[str, tuple[Dim, ...]]] = {
    "megatron": ("TP", "CP", "EP", "DP", "PP"),
    "megatron-pp-dp": ("TP", "CP", "EP", "PP", "DP"),
    "llama3": ("TP", "CP", "PP", "DP"),
    "torchtitan": ("TP", "CP", "FSDP", "DPR", "PP"),
}
"""Innermost first: Megatron-LM `--order tp-cp-ep-dp-pp` and `--use-tp-pp-dp-mapping`; arXiv
2407.21783, section 3.3.2; torchtitan ParallelDims."""


class Layout(msgspec.Struct, frozen=True):
    """Degrees of all dims, in the order of ranks."""

    dense: tuple[tuple[Dim, int], ...]
    """Innermost first, without experts; DP or FSDP is always among them."""
    expert_parallel: int = 1
    expert_tensor: int = 1
    chunks: int = 1
    """Of a pipeline's stage."""

    @property
    def gpu_count(self) -> int:
        """Ranks, one a GPU."""
        return prod(degree for _, degree in self.dense)

    def degree(self, dim: Dim) -> int:
        """Members of a group of a dim, 1 where the job is not cut that way; DP stands for FSDP."""
        if dim in EXPERT:
            return self.expert_parallel if dim == "EP" else self.expert_tensor
        same = DATA if dim in DATA else (dim,)
        return next((degree for own, degree in self.dense if own in same), 1)

    def stride(self, dim: Dim) -> int:
        """Distance between neighbours of a group of a dense dim, in ranks."""
        names = [own for own, _ in self.dense]
        same = DATA if dim in DATA else (dim,)
        at = next((at for at, own in enumerate(names) if own in same), 0)
        return prod(degree for _, degree in self.dense[:at])

    @property
    def sharded(self) -> bool:
        """Weights are sharded over the replicas (FSDP)."""
        return any(own == "FSDP" for own, _ in self.dense)

    @property
    def replicas(self) -> int:
        """Of the whole model: how many take their own samples."""
        return self.degree("DP") * self.degree("DPR")

    @property
    def expert_ranks(self) -> int:
        """Ranks of a pipeline's stage that hold experts, where EP may take from them."""
        return self.degree("TP") * self.degree("CP") * self.degree("DP")

    @property
    def expert_replicas(self) -> int:
        """EDP: copies of each expert, 0 where the experts need more ranks than there are."""
        return self.expert_ranks // (self.expert_parallel * self.expert_tensor)


def terms_by_dim(spec: Spec) -> Mapping[Dim, Term]:
    """The first term of each dim."""
    found: dict[Dim, Term] = {}
    for term in spec.terms:
        found.setdefault(term.dim, term)
    return found


def order_of(spec: Spec) -> tuple[Dim, ...]:
    """The dims of a description, innermost first; a DP that is not said is the outermost.

    A named order moves the dims that it names and leaves out those that the job lacks. () where
    the name is none, or does not name every dim of the job.
    """
    own: list[Dim] = list(dict.fromkeys(term.dim for term in spec.terms))
    if not any(dim in DATA for dim in own):
        own.append("DP")
    if not spec.order:
        return tuple(own)
    words: tuple[Dim, ...] = ORDERS.get(spec.order) or tuple(
        dim for word in spec.order.split("-") for dim in DIMS if dim.lower() == word
    )
    if spec.order not in ORDERS and len(words) != spec.order.count("-") + 1:
        return ()
    data: Dim = "FSDP" if "FSDP" in own else "DP"
    found: list[Dim] = []
    for dim in words:
        name = data if dim in DATA else dim
        if name in own and name not in found:
            found.append(name)
    missing: list[Dim] = [dim for dim in own if dim not in found]
    if any(dim not in EXPERT for dim in missing):
        return ()
    return (*found, *missing)


def stated(spec: Spec) -> int:
    """The product of all dense degrees that are said."""
    own = terms_by_dim(spec)
    return prod(
        term.degree for dim, term in own.items() if dim not in EXPERT and term.degree != INFERRED
    )


def infers(spec: Spec) -> bool:
    """DP or FSDP is left to the number of GPUs."""
    own = terms_by_dim(spec)
    return all(dim not in own or own[dim].degree == INFERRED for dim in DATA)


def layout_of(spec: Spec, data_degree: int) -> Layout:
    """The layout of a description that passes W4; `data_degree` stands for what is inferred."""
    own = terms_by_dim(spec)
    dense: tuple[tuple[Dim, int], ...] = tuple(
        (dim, (own[dim].degree if dim in own else INFERRED) or data_degree)
        for dim in order_of(spec)
        if dim not in EXPERT
    )
    return Layout(
        dense=dense,
        expert_parallel=own["EP"].degree if "EP" in own else 1,
        expert_tensor=own["ETP"].degree if "ETP" in own else 1,
        chunks=own["PP"].chunks if "PP" in own else 1,
    )
