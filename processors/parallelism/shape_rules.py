"""Whether a model can be cut that way."""

from collections.abc import Iterator

from nemesis.processors.parallelism.case import Case, Finding
from nemesis.processors.parallelism.degrees import divisors, instead
from nemesis.processors.parallelism.model import ModelShape


def _model(case: Case) -> ModelShape:
    assert case.model is not None, "rules of this phase run where there is a model"
    return case.model


def s1(case: Case) -> Iterator[Finding]:
    """TP divides the attention heads."""
    tp, heads = case.layout.degree("TP"), _model(case).heads
    if heads % tp:
        text = f"{heads} heads over TP {tp}"
        yield Finding(
            code="S1", part=case.part("TP"), text=text, legal=instead("TP", tp, divisors(heads))
        )


def s2(case: Case) -> Iterator[Finding]:
    """TP divides the key-value heads, or is a multiple of them: then they are replicated."""
    tp, groups = case.layout.degree("TP"), _model(case).kv_groups
    if groups % tp and tp % groups:
        text = f"{groups} key-value heads and TP {tp}: neither divides the other"
        options = [n for n in divisors(_model(case).heads) if groups % n == 0 or n % groups == 0]
        yield Finding(code="S2", part=case.part("TP"), text=text, legal=instead("TP", tp, options))


def s3(case: Case) -> Iterator[Finding]:
    """Heads divide the hidden width; TP divides the feed-forward (a vocabulary is padded)."""
    model, layout = _model(case), case.layout
    tp, etp = layout.degree("TP"), layout.expert_tensor
    if not model.head_dim and model.hidden % model.heads:
        text = f"hidden {model.hidden} over {model.heads} heads: give head_dim"
        yield Finding(
            code="S3", text=text, legal=instead("heads", model.heads, divisors(model.hidden))
        )
    if model.ffn % tp:
        text = f"feed-forward of {model.ffn} over TP {tp}"
        legal = instead("TP", tp, divisors(model.ffn))
        yield Finding(code="S3", part=case.part("TP"), text=text, legal=legal)
    if model.experts and model.expert_ffn % etp:
        text = f"experts of {model.expert_ffn} over ETP {etp}"
        legal = instead("ETP", etp, divisors(model.expert_ffn))
        yield Finding(code="S3", part=case.part("ETP"), text=text, legal=legal)


def s4(case: Case) -> Iterator[Finding]:
    """Stages are equal, embedding and loss counted or not, or they are listed."""
    model, stages = _model(case), case.layout.degree("PP")
    listed = case.settings.stages
    part = case.part("PP")
    if listed:
        parts = stages * case.layout.chunks
        if sum(listed) != model.layers:
            text = f"the stages listed have {sum(listed)} layers, the model {model.layers}"
            yield Finding(code="S4", part=part, text=text)
        elif len(listed) not in (stages, parts):
            text = f"{len(listed)} stages are listed, not {stages}"
            yield Finding(
                code="S4", part=part, text=text, legal=instead("PP", stages, (len(listed),))
            )
        return
    if model.layers % stages == 0:
        return
    if any((model.layers + ends) % stages == 0 for ends in (1, 2)):
        ends = next(ends for ends in (1, 2) if (model.layers + ends) % stages == 0)
        what = "embedding and loss are" if ends == 2 else "embedding or loss is"
        text = (
            f"{model.layers} layers over PP {stages} come out even only if {what} counted as layers"
        )
        yield Finding(code="S4", severity="warning", part=part, text=text)
        return
    text = f"{model.layers} layers over PP {stages}: unequal stages have to be listed"
    options = {n for extra in (0, 1, 2) for n in divisors(model.layers + extra)}
    yield Finding(code="S4", part=part, text=text, legal=instead("PP", stages, options))


def s5(case: Case) -> Iterator[Finding]:
    """Chunks of an interleaved pipeline are equal, and there is a pipeline."""
    model, stages, chunks = _model(case), case.layout.degree("PP"), case.layout.chunks
    part, listed = case.part("PP"), case.settings.stages
    if chunks == 1:
        return
    if stages == 1:
        text = f"v {chunks} without a pipeline: chunks are parts of a stage"
        yield Finding(code="S5", part=part, text=text, legal="PP1, or PP2 and more")
        return
    if listed:
        if len(listed) == stages and any(each % chunks for each in listed):
            text = f"stages of {', '.join(map(str, listed))} layers over v {chunks}"
            yield Finding(code="S5", part=part, text=text)
        return
    totals = [n for n in (model.layers, model.layers + 1, model.layers + 2) if n % stages == 0]
    if totals and all((total // stages) % chunks for total in totals):
        text = f"{totals[0] // stages} layers a stage over v {chunks}"
        options = {n for total in totals for n in divisors(total // stages)}
        yield Finding(code="S5", part=part, text=text, legal=instead("v", chunks, options))


def s6(case: Case) -> Iterator[Finding]:
    """An interleaved pipeline has microbatches for all stages, in groups without a short rest."""
    stages, count = case.layout.degree("PP"), case.microbatches
    if case.layout.chunks == 1 or stages == 1 or not case.spec.global_batch:
        return
    group = case.settings.microbatch_group or stages
    step = case.layout.replicas * case.micro_batch
    if count < stages:
        text = f"{count} microbatches for {stages} interleaved stages"
        legal = f"gbs {stages * step}"
        yield Finding(code="S6", part="global_batch", text=text, legal=legal)
    elif not stages <= group <= count:
        text = f"groups of {group} microbatches must be of {stages} (PP) to {count} (all)"
        yield Finding(code="S6", part=case.part("PP"), text=text)
    elif 0 < count % group < stages:
        options = [n for n in range(stages, count + 1) if count % n == 0 or count % n >= stages]
        rest = f"leave {count % group}, fewer than PP {stages}"
        text = f"{count} microbatches in groups of {group} {rest}"
        legal = instead("group", group, options)
        yield Finding(code="S6", part=case.part("PP"), text=text, legal=legal)


def s7(case: Case) -> Iterator[Finding]:
    """A sequence is cut evenly over CP, two parts for each rank, and over TP."""
    seq, cp, tp = case.seq, case.layout.degree("CP"), case.layout.degree("TP")
    if cp > 1 and seq % (2 * cp):
        text = f"sequence of {seq} over 2 x CP {cp}, two parts a rank to balance causal attention"
        legal = instead("CP", cp, [n // 2 for n in divisors(seq) if n % 2 == 0])
        yield Finding(code="S7", part=case.part("CP"), text=text, legal=legal)
    elif case.spec.sequence_parallel and (seq // cp) % tp:
        text = f"sequence of {seq // cp} a CP rank over TP {tp} with sp"
        legal = instead("TP", tp, divisors(seq // cp))
        yield Finding(code="S7", part=case.part("TP"), text=text, legal=legal)


def s8(case: Case) -> Iterator[Finding]:
    """EP divides the experts, of a model that has some."""
    model, ep = _model(case), case.layout.expert_parallel
    part = case.part("EP")
    if ep > 1 and not model.experts:
        yield Finding(
            code="S8", part=part, text=f"EP {ep}, and {model.name} has no experts", legal="no EP"
        )
    elif model.experts and model.experts % ep:
        text = f"{model.experts} experts over EP {ep}"
        yield Finding(
            code="S8", part=part, text=text, legal=instead("EP", ep, divisors(model.experts))
        )
    elif model.top_k > model.experts:
        text = f"{model.top_k} experts a token of {model.experts}"
        yield Finding(code="S8", text=text)


def s9(case: Case) -> Iterator[Finding]:
    """Sequence parallelism goes with TP, and TP with experts needs it."""
    tp, ep = case.layout.degree("TP"), case.layout.expert_parallel
    if case.spec.sequence_parallel and tp == 1:
        text = "sp without TP: there is nothing that it could be cut over"
        yield Finding(
            code="S9", part="sequence_parallel", text=text, legal="no sp, or TP2 and more"
        )
    elif tp > 1 and ep > 1 and not case.spec.sequence_parallel:
        text = f"TP {tp} with EP {ep} needs sp: experts take tokens by rank"
        yield Finding(code="S9", part=case.part("TP"), text=text, legal="add ;sp")
