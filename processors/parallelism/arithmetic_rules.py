"""Whether degrees and batches go together: no model and no cluster is looked at."""

from collections import Counter
from collections.abc import Iterator

from nemesis.processors.parallelism.case import Case, Finding
from nemesis.processors.parallelism.degrees import divisors, instead
from nemesis.processors.parallelism.layout import (
    DATA,
    EXPERT,
    ORDERS,
    infers,
    order_of,
    stated,
    terms_by_dim,
)
from nemesis.processors.parallelism.spec import Dim


def w4(case: Case) -> Iterator[Finding]:
    """Each dim is named once, and the order names all."""
    spec = case.spec
    own = terms_by_dim(spec)
    counts = Counter(term.dim for term in spec.terms)
    for at, term in enumerate(spec.terms):
        if counts[term.dim] > 1 and spec.terms[at] is not own[term.dim]:
            yield Finding(
                code="W4", part=str(at), text=f"{term.dim} is said {counts[term.dim]} times"
            )
    if all(dim in own for dim in DATA):
        text = (
            "DP and FSDP are the same replicas: with and without sharded weights; say one of them"
        )
        yield Finding(code="W4", part=case.part("DP"), text=text)
    if "DPR" in own and not any(dim in own for dim in DATA):
        text = "DPR replicates what FSDP shards, and no FSDP is said"
        yield Finding(
            code="W4", part=case.part("DPR"), text=text, legal=f"FSDP*+DPR{own['DPR'].degree}"
        )
    if spec.order and not order_of(spec):
        names = ", ".join(ORDERS)
        text = f"order {spec.order} does not name every dim of the job"
        yield Finding(code="W4", part="order", text=text, legal=f"{names}, or as in tp-cp-dp-pp")


def w4_experts(case: Case) -> Iterator[Finding]:
    """With experts the pipeline is the outermost, or experts have as many replicas as the rest."""
    layout = case.layout
    if layout.expert_parallel == 1 or layout.degree("PP") == 1 or layout.dense[-1][0] == "PP":
        return
    if layout.expert_replicas != layout.degree("DP"):
        text = (
            f"PP is not the outermost, so experts need as many replicas as the rest: "
            f"{layout.expert_replicas}, not {layout.degree('DP')}"
        )
        yield Finding(code="W4", part=case.part("PP"), text=text, legal="PP as the last term")


def w1(case: Case) -> Iterator[Finding]:
    """All degrees multiply to the number of GPUs."""
    product, world = stated(case.spec), case.world
    if world == product or (infers(case.spec) and world % product == 0):
        return
    own = terms_by_dim(case.spec)
    said = "·".join(f"{d}{t.degree}" for d, t in own.items() if d not in EXPERT and t.degree)
    part = case.part("DP")
    if infers(case.spec):
        text = f"{said} = {product} GPUs a replica, and {world} GPUs are no multiple of that"
        least = world // product * product
        multiples = [each for each in (least, least + product) if each]
        yield Finding(code="W1", part=part, text=text, legal=instead("GPUs", world, multiples))
        return
    data: Dim = "FSDP" if "FSDP" in own else "DP"
    rest = product // own[data].degree
    whole, left = divmod(world, rest)
    legal = f"{data} {own[data].degree} -> {whole}" if whole and not left else f"{product} GPUs"
    text = f"{said} = {product}, not {world} GPUs"
    yield Finding(code="W1", part=part, text=text, legal=legal)


def w2(case: Case) -> Iterator[Finding]:
    """Experts fit into a stage's ranks: at least one replica of them."""
    layout = case.layout
    etp, ep, ranks = layout.expert_tensor, layout.expert_parallel, layout.expert_ranks
    if etp * ep > ranks:
        text = f"ETP {etp} x EP {ep} = {etp * ep} ranks, but a stage has {ranks} (TP·CP·DP)"
        options = [each for each in divisors(ranks) if each * etp <= ranks]
        yield Finding(code="W2", part=case.part("EP"), text=text, legal=instead("EP", ep, options))
    elif ranks % etp:
        text = f"ETP {etp} does not divide the {ranks} ranks of a stage (TP·CP·DP)"
        legal = instead("ETP", etp, divisors(ranks))
        yield Finding(code="W2", part=case.part("ETP"), text=text, legal=legal)


def w3(case: Case) -> Iterator[Finding]:
    """EP divides the ranks that it is taken from."""
    layout = case.layout
    ep, etp, ranks = layout.expert_parallel, layout.expert_tensor, layout.expert_ranks
    if ranks % etp == 0 and ep * etp <= ranks and (ranks // etp) % ep:
        text = f"EP {ep} does not divide TP·CP·DP / ETP = {ranks // etp}"
        legal = instead("EP", ep, divisors(ranks // etp))
        yield Finding(code="W3", part=case.part("EP"), text=text, legal=legal)


def b1(case: Case) -> Iterator[Finding]:
    """Every replica gets a whole number of microbatches, enough to fill its pipeline."""
    spec, layout = case.spec, case.layout
    batch, step = spec.global_batch, layout.replicas * case.micro_batch
    if not batch or step > batch:
        return
    if batch % step:
        text = (
            f"gbs {batch} is no multiple of DP {layout.replicas} x mbs {case.micro_batch} = {step}"
        )
        least = batch // step * step
        legal = instead("gbs", batch, (least, least + step))
        yield Finding(code="B1", part="global_batch", text=text, legal=legal)
        return
    stages, count = layout.degree("PP"), batch // step
    if count < stages:
        share = (stages - 1) / (layout.chunks * count + stages - 1)
        text = f"{count} microbatches for {stages} stages: {share:.0%} of a step is bubble"
        yield Finding(
            code="B1",
            severity="warning",
            part="global_batch",
            text=text,
            legal=f"gbs {stages * step}",
        )


def b2(case: Case) -> Iterator[Finding]:
    """No replica is without a sample."""
    replicas = case.layout.replicas
    most = case.spec.global_batch // case.micro_batch
    if case.spec.global_batch and replicas > most:
        text = f"DP {replicas}, but gbs {case.spec.global_batch} / mbs {case.micro_batch} = {most}"
        legal = instead("DP", replicas, divisors(most)) if most else ""
        yield Finding(code="B2", part=case.part("DP") or "global_batch", text=text, legal=legal)
