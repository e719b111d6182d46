"""A description in words: what each term was taken to mean."""

from msgspec.structs import replace

from nemesis.processors.parallelism.fabric import TRANSPORTS
from nemesis.processors.parallelism.spec import INFERRED, Fabric, Spec, Term
from nemesis.processors.topology.pool import TIER_NAMES

NAMES = {
    "TP": "tensor parallel",
    "CP": "context parallel",
    "EP": "expert parallel",
    "ETP": "tensor parallel inside experts",
    "PP": "pipeline stages",
    "DP": "data parallel",
    "FSDP": "data parallel with sharded weights",
    "DPR": "replicas of what FSDP shards",
}
NETWORKS = {"IB": "InfiniBand", "ROCE": "RoCE", "EFA": "EFA"}


def numbers_as_tiers(spec: Spec) -> Spec:
    """The same description, read by somebody for whom `IB2` is two switch tiers, not two rails."""
    return replace(spec, terms=tuple(_as_tier(term) for term in spec.terms))


def _as_tier(term: Term) -> Term:
    fabric = term.fabric
    if fabric is None or fabric.kind not in TRANSPORTS or fabric.tier or not fabric.link_count:
        return term
    return replace(term, fabric=replace(fabric, tier=fabric.link_count, link_count=0))


def meaning(term: Term) -> str:
    """A term in one sentence."""
    count = "as many as the GPUs allow" if term.degree == INFERRED else str(term.degree)
    words = [f"{NAMES[term.dim]}: {count}"]
    if term.chunks > 1:
        words.append(f"{term.chunks} chunks a stage")
    if term.fabric:
        words.extend(_fabric_words(term.fabric))
    return ", ".join(words)


def _fabric_words(fabric: Fabric) -> list[str]:
    words: list[str] = []
    if fabric.kind == "NVL":
        words.append("inside one NVLink domain")
        if fabric.width:
            words[-1] += f" of {fabric.width} GPUs"
        if fabric.link_count:
            words.append(f"at least {fabric.link_count} NVLinks a GPU")
    elif fabric.kind == "PCIE":
        words.append("inside one node")
    elif fabric.kind != "ANY":
        words.append(f"over {NETWORKS[fabric.kind]}")
        if fabric.link_count:
            words.append(f"at least {fabric.link_count} rail{'s' if fabric.link_count > 1 else ''}")
    if fabric.tier:
        name = TIER_NAMES[fabric.tier - 1] if fabric.tier <= len(TIER_NAMES) else "switch"
        words.append(f"below one {name} (tier {fabric.tier})")
    if fabric.force == "soft":
        wait = f" after waiting {fabric.wait_s} s for it" if fabric.wait_s else ""
        words.append(f"if it can be had, else anywhere{wait}")
    return words
