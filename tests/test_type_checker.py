"""What is refused before it may queue, by which rule, and what is not."""

from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nemesis.processors.parallelism.case import Case, Settings
from nemesis.processors.parallelism.check import Checked, check
from nemesis.processors.parallelism.model import ModelShape, published_models
from nemesis.processors.parallelism.parsing import parse
from nemesis.processors.parallelism.rules import BY_SIZE, RULES
from nemesis.processors.parallelism.spec import Spec
from nemesis.processors.topology.pool import Pool
from tests.pools import nvl72, pool
from tests.published_runs import runs
from tests.specs import specs

ROOT: Final = Path(__file__).parent.parent
MODELS: Final = published_models()
BIG: Final = pool((16,) * 32, pods=(8, 8, 8, 8))
A100: Final = pool((16,) * 8, gpu_class="A100")


def table(page: str) -> list[list[str]]:
    lines = (ROOT / page).read_text().splitlines()
    return [[cell.strip() for cell in row.split("|")[1:-1]] for row in lines if row[:1] == "|"]


def case(
    text: str, model: str = "", at: Pool | None = None, gpus: int = 0, **settings: Any
) -> Case:
    return Case(
        spec=parse(text),
        model=MODELS[model] if model else None,
        pool=at,
        gpu_count=gpus,
        settings=Settings(**settings),
    )


def judged(*arguments: Any, **settings: Any) -> Checked:
    return check(case(*arguments, **settings))


def codes(checked: Checked) -> list[str]:
    return [finding.code for finding in checked.findings]


# the vectors of the reference, section 2.3


def test_links_of_a_gpu_are_counted() -> None:
    assert judged("TP8_NVL12+PP4_IB2", "", A100, 64).outcome == "accepted"
    checked = judged("TP8_NVL18", "", A100, 8)
    assert (checked.outcome, codes(checked)) == ("rejected", ["F2"])
    assert "18 NVLinks a GPU, but A100 has 12" in checked.findings[0].text
    assert checked.findings[0].legal == "NVL18 -> NVL12"


def test_a_group_is_no_wider_than_its_domain() -> None:
    checked = judged("TP16_NVL12", "", A100, 64)
    assert (checked.outcome, codes(checked)[0]) == ("rejected", "F1")
    assert checked.findings[0].legal == "TP 16 -> 8"
    wide = judged("TP16_NVL18", "", nvl72(), 64)
    assert (wide.outcome, codes(wide)) == ("accepted", ["F3"])
    assert "8 of 72 GPUs of a domain, 11%" in wide.findings[0].text
    assert codes(judged("TP8_NVL18/d72", "", nvl72(), 64)) == []


def llm(**fields: Any) -> ModelShape:
    plain = ModelShape(
        name="plain", layers=64, hidden=8192, heads=64, ffn=32768, vocab=32000, seq=4096
    )
    return replace(plain, **fields)


@pytest.mark.parametrize(
    ("text", "model", "settings", "found"),
    [
        ("TP8", llm(kv_heads=4), {}, []),
        ("TP8", llm(kv_heads=12), {}, ["S2"]),
        ("PP16", MODELS["llama3-405b"], {}, ["S4"]),
        ("PP16v4", MODELS["llama3-405b"], {}, ["S4"]),
        ("PP16", MODELS["deepseek-v3"], {}, ["S4"]),
        ("PP16", MODELS["deepseek-v3"], {"stages": (4,) * 13 + (3,) * 3}, []),
        ("CP16", MODELS["llama3-405b"], {"seq": 131072}, []),
        ("EP64+DP64", MODELS["deepseek-v3"], {}, []),
        ("EP64+DP64", MODELS["llama3-70b"], {}, ["S8"]),
        ("PP1v2", MODELS["llama3-70b"], {}, ["S5"]),
        ("TP8+EP8+DP8", MODELS["mixtral-8x7b"], {}, ["S9"]),
        ("TP8+PP16+DP128;mbs=1,gbs=2048", MODELS["llama3-405b"], {}, ["S4"]),
    ],
)
def test_models_are_cut_as_the_frameworks_can(
    text: str, model: ModelShape, settings: Mapping[str, Any], found: list[str]
) -> None:
    whole = Case(spec=parse(text), model=model, settings=Settings(**settings))
    assert codes(check(whole)) == found


def test_126_layers_over_16_stages_need_embedding_and_loss_counted() -> None:
    checked = judged("TP8+PP16+DP128;mbs=1,gbs=2048", "llama3-405b")
    assert checked.outcome == "accepted"
    assert "embedding and loss are counted as layers" in checked.findings[0].text
    assert judged("PP16v8", "llama3-405b").outcome == "accepted"
    assert codes(judged("PP16v3", "llama3-405b")) == ["S5", "S4"]


def test_the_misprint_of_the_first_llama_3_paper_is_refused() -> None:
    checked = judged("TP8+CP16+PP16+DP4", "llama3-405b", None, 16384, seq=131072)
    assert (checked.outcome, codes(checked)) == ("rejected", ["W1"])
    assert "8192, not 16384 GPUs" in checked.findings[0].text
    assert checked.findings[0].legal == "DP 4 -> 8"
    third = judged("TP8+CP16+PP16+DP8", "llama3-405b", None, 16384, seq=131072)
    assert third.outcome == "accepted"


def test_every_published_run_is_accepted() -> None:
    found = [(run.name, run.text, check(run.case)) for run in runs()]
    refused = [(*each[:2], codes(each[2])) for each in found if each[2].outcome != "accepted"]
    assert refused == []
    assert len(found) == 637


# one rule broken at a time

DENSE: Final = case(
    "TP8_NVL18+PP4v2_IB2@t2+DP16_IB;sp,mbs=1,gbs=256", "llama3-70b", BIG, 512, recompute="full"
)
MOE: Final = case(
    "ETP1+EP8_NVL18+DP16+PP4;mbs=1,gbs=256", "mixtral-8x7b", BIG, 64, recompute="full"
)
FULL: Final = replace(BIG, free_counts=(0,) * 400 + (4, 4, 4, 4) + (0,) * 108)


def said(text: str) -> Callable[[Case], Case]:
    return lambda own: replace(own, spec=parse(text))


def with_model(**fields: Any) -> Callable[[Case], Case]:
    def changed(own: Case) -> Case:
        assert own.model is not None
        return replace(own, model=replace(own.model, **fields))

    return changed


def at(where: Pool) -> Callable[[Case], Case]:
    return lambda own: replace(own, pool=where)


def set_to(**settings: Any) -> Callable[[Case], Case]:
    return lambda own: replace(own, settings=replace(own.settings, **settings))


def some(*changes: Callable[[Case], Case]) -> Callable[[Case], Case]:
    def changed(own: Case) -> Case:
        for change in changes:
            own = change(own)
        return own

    return changed


MIXED: Final = pool((16,) * 8, classes=("H100",) * 63 + ("A100",) * 65)
BREACHES: Final[Mapping[str, tuple[Case, list[Callable[[Case], Case]]]]] = {
    "W1": (DENSE, [said("TP8+PP4+DP8"), said("TP8+PP3"), lambda c: replace(c, gpu_count=500)]),
    "W2": (MOE, [said("ETP4+EP8+DP16+PP4"), said("ETP3+EP1+DP16+PP4")]),
    "W3": (MOE, [said("EP3+DP16+PP4"), said("ETP2+EP3+DP16+PP4")]),
    "W4": (
        MOE,
        [
            said("EP8+DP8+DP2+PP4"),
            said("EP8+DP16+FSDP4"),
            said("DPR4"),
            said("EP2+PP4+DP16"),
            said("EP8+DP16+PP4;order=tp-cp"),
        ],
    ),
    "B1": (DENSE, [said("TP8+PP4+DP16;mbs=1,gbs=250"), said("TP8+PP4+DP16;mbs=3,gbs=256")]),
    "B2": (DENSE, [said("TP8+PP4+DP16;mbs=1,gbs=8"), said("TP8+PP4+DP16;mbs=32,gbs=256")]),
    "S1": (DENSE, [with_model(heads=60, head_dim=128), with_model(heads=4, head_dim=128)]),
    "S2": (DENSE, [with_model(kv_heads=12), with_model(kv_heads=6)]),
    "S3": (DENSE, [with_model(ffn=28673), with_model(heads=56, kv_heads=8)]),
    "S4": (
        DENSE,
        [with_model(layers=81), set_to(stages=(20, 20, 20, 21)), set_to(stages=(40, 40))],
    ),
    "S5": (
        DENSE,
        [said("TP8+PP4v3+DP16"), said("TP8+PP1v2+DP64"), set_to(stages=(21, 19, 20, 20))],
    ),
    "S6": (
        DENSE,
        [
            set_to(microbatch_group=5),
            set_to(microbatch_group=3),
            said("TP8+PP4v2+DP16;mbs=1,gbs=32"),
        ],
    ),
    "S7": (DENSE, [some(said("TP8+CP4+PP4+DP4"), set_to(seq=8196)), set_to(seq=8191)]),
    "S8": (
        MOE,
        [with_model(experts=12), with_model(experts=0, expert_ffn=0, top_k=0), with_model(top_k=9)],
    ),
    "S9": (MOE, [said("TP2+EP8+DP8+PP4"), said("EP8+DP16+PP4;sp")]),
    "M1": (DENSE, [said("TP2+DP256"), some(said("TP8+DP64"), set_to(distributed_optimizer=False))]),
    "M2": (DENSE, [set_to(seq=1 << 20), set_to(recompute="selective", seq=1 << 17)]),
    "M3": (DENSE, [set_to(seq=270_000 // 8 * 8)]),
    "F1": (
        DENSE,
        [
            said("TP16_NVL18+PP4+DP8;sp"),
            said("TP8_NVL18/d72+PP4+DP16;sp"),
            said("TP8_NVL18+CP2_NVL18+PP4+DP8;sp"),
        ],
    ),
    "F2": (DENSE, [at(replace(BIG, gpu_classes=("A100",) * 512)), said("TP8_NVL36+PP4+DP16;sp")]),
    "F4": (
        DENSE,
        [
            at(replace(BIG, transport="roce")),
            said("TP8+PP4_IB9+DP16;sp"),
            at(replace(BIG, gpu_classes=("H100-PCIe",) * 512)),
            said("TP16_PCIE+PP4+DP8;sp"),
        ],
    ),
    "F6": (DENSE, [said("TP8_NVL18+PP4_IB@t9+DP16;sp"), said("TP8_NVL18+DP64_IB@t1;sp")]),
    "F7": (DENSE, [set_to(sharp=("DP", "TP"))]),
    "G1": (DENSE, [some(at(MIXED), said("TP8+PP80"), lambda c: replace(c, gpu_count=640))]),
    "C1": (DENSE, [at(FULL), lambda c: replace(c, pool=pool((4,)))]),
    "C2": (DENSE, [some(said("TP8_NVL18+PP4+DP16_IB@t1;sp"), at(pool((17, 15, 15, 15, 15))))]),
}
WIDE: Final = case("ETP1+EP16+DP16+PP4", "mixtral-8x7b", BIG, 64, recompute="full")
WARNED: Final[Mapping[str, tuple[Case, list[Callable[[Case], Case]]]]] = {
    "B1": (DENSE, [said("TP8+PP4+DP16;sp,mbs=1,gbs=16")]),
    "S4": (DENSE, [some(with_model(layers=78), said("TP8+PP4+DP16;sp"))]),
    "M3": (
        DENSE,
        [set_to(recompute="", gradient_bytes=0, seq=32768), set_to(seq=250_000 // 8 * 8)],
    ),
    "F3": (DENSE, [some(at(nvl72(8)), said("TP16_NVL18+PP4+DP8;sp"))]),
    "F5": (WIDE, [with_model(experts=16)]),
    "G1": (DENSE, [some(at(MIXED), lambda c: replace(c, gpu_count=640), said("TP8+PP4+DP20;sp"))]),
}


def test_there_are_28_codes_and_a_breach_of_each() -> None:
    own = {rule.code for rule in RULES}
    assert len(own) == 28
    assert own == set(BREACHES) | {"F3", "F5"}


def test_the_page_says_what_every_rule_says() -> None:
    rows = {tuple(row[:2]) for row in table("docs/scheduling.md") if len(row) == 4}
    said = {(code, says) for code, says in rows if code in {rule.code for rule in RULES}}
    assert said == {(rule.code, rule.says) for rule in RULES}


@pytest.mark.parametrize("start", [DENSE, MOE], ids=["dense", "experts"])
def test_what_the_breaches_start_from_is_accepted(start: Case) -> None:
    checked = check(start)
    assert (checked.outcome, codes(checked)) == ("accepted", [])


@pytest.mark.parametrize("code", sorted(BREACHES))
def test_one_broken_rule_is_the_first_that_is_reported(code: str) -> None:
    start, changes = BREACHES[code]
    for number, change in enumerate(changes):
        checked = check(change(start))
        assert codes(checked)[:1] == [code], (number, checked)
        assert checked.findings[0].severity == "error"
        assert checked.outcome == "waits" if checked.findings[0].waits else "rejected"


@pytest.mark.parametrize("code", sorted(WARNED))
def test_what_is_unwise_is_accepted_with_that_warning(code: str) -> None:
    start, changes = WARNED[code]
    for number, change in enumerate(changes):
        checked = check(change(start))
        assert checked.outcome == "accepted", (number, checked)
        assert codes(checked)[:1] == [code], (number, checked)
        assert checked.findings[0].severity == "warning"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("TP16_NVL18?+PP4+DP8;sp", "F1"),
        ("TP8_NVL36?60s+PP4+DP16;sp", "F2"),
        ("TP8+PP4_IB9?+DP16;sp", "F4"),
        ("TP8_NVL18+DP64_IB@t1?;sp", "F6"),
    ],
)
def test_what_is_only_wished_for_rejects_nothing(text: str, code: str) -> None:
    checked = check(said(text)(DENSE))
    assert checked.outcome == "accepted"
    assert [(each.code, each.severity) for each in checked.findings] == [(code, "warning")]


def test_what_other_jobs_have_makes_a_job_wait_and_names_where_too_little_is_free() -> None:
    checked = check(at(FULL)(DENSE))
    assert (checked.outcome, codes(checked)) == ("waits", ["C1", "C2"])
    assert "64 units of 8 GPUs: not now, there is room for 0" in checked.findings[0].text
    assert "n401 (4), n402 (4), n403 (4), n404 (4)" in checked.findings[0].text
    small = check(at(pool((4,)))(DENSE))
    assert (small.outcome, "never, the whole cluster holds 4" in small.findings[0].text) == (
        "rejected",
        True,
    )


def test_six_and_two_free_gpus_of_two_domains_are_not_eight() -> None:
    """volcano-sh/volcano#5751: a count per server would promise what no domain can hold."""
    bays = pool((4,), gpus=8, free=(6, 2, 0, 0))
    one_server = replace(bays, nodes=("n001", "n001", "n002", "n002"))
    checked = judged("TP8_NVL18", "", one_server, 8)
    assert (checked.outcome, codes(checked)) == ("waits", ["C1"])
    assert judged("TP2_NVL18+DP4", "", one_server, 8).outcome == "accepted"


def test_only_two_of_fifteen_leaves_hold_a_gang_of_eight_hosts() -> None:
    """marin-community/marin#6950: leaf groups of very different sizes."""
    leaves = (11, 8, 6, 6, 5, 5, 6, 3, 3, 3, 2, 2, 2, 1, 1)
    gang = "TP8_NVL18+DP8_IB@t1"
    assert judged(gang, "", pool(leaves), 64).outcome == "accepted"
    twice = judged(gang + "+PP2", "", pool(leaves), 128)
    assert twice.outcome == "accepted"
    three = judged(gang + "+PP3", "", pool(leaves), 192)
    assert (three.outcome, codes(three)) == ("rejected", ["C2"])
    assert "never, the whole cluster holds 2" in three.findings[0].text


def test_a_segment_of_eighteen_trays_is_the_width_of_a_domain() -> None:
    """NVIDIA-NeMo/RL#2612: segments of 18 nodes, one for each NVLink domain."""
    assert judged("TP8_NVL18/d72+FSDP9_NVL18/d72+DPR4", "", nvl72(), 288).outcome == "accepted"
    short = replace(nvl72(), free_counts=(4,) * 71 + (0,))
    waiting = judged("TP8_NVL18/d72+FSDP9_NVL18/d72+DPR4", "", short, 288)
    assert (waiting.outcome, codes(waiting)) == ("waits", ["C1"])


def bigger(where: Pool, times: int) -> Pool:
    """The same cluster, so many times, below one core."""
    return replace(
        where,
        nodes=tuple(f"{name}-{at}" for at in range(times) for name in where.nodes),
        gpu_classes=where.gpu_classes * times,
        gpu_counts=where.gpu_counts * times,
        free_counts=where.free_counts * times,
        domains=copies(where.domains, times),
        tiers=(
            *(copies(tier, times) for tier in where.tiers[:-1]),
            (0,) * len(where.nodes) * times,
        ),
        rail_counts=where.rail_counts * times,
        nic_mbps=where.nic_mbps * times,
    )


def copies(groups: tuple[int, ...], times: int) -> tuple[int, ...]:
    own = max(groups) + 1
    return tuple(group + own * at for at in range(times) for group in groups)


@given(
    specs(),
    st.sampled_from([*MODELS.values()]),
    st.sampled_from([pool(), nvl72(2), A100]),
    st.integers(1, 256),
    st.integers(2, 3),
)
def test_what_is_rejected_stays_so_on_a_bigger_cluster_but_for_rules_of_size(
    spec: Spec, model: ModelShape, where: Pool, gpus: int, times: int
) -> None:
    small = check(Case(spec=spec, model=model, pool=where, gpu_count=gpus))
    large = check(Case(spec=spec, model=model, pool=bigger(where, times), gpu_count=gpus))
    firm = {each.code for each in small.findings if each.severity == "error"} - BY_SIZE
    later = {each.code for each in large.findings if each.severity == "error"}
    assert firm <= later


@given(st.integers(0, 2**32))
def test_the_names_and_the_order_of_nodes_change_nothing(seed: int) -> None:
    dice = Random(seed)
    order = dice.sample(range(64), 64)
    free = [dice.randrange(9) for _ in range(64)]
    plain = pool((16,) * 4, free=free)
    mixed = replace(
        plain,
        free_counts=tuple(plain.free_counts[at] for at in order),
        domains=tuple(plain.domains[at] for at in order),
        tiers=tuple(tuple(tier[at] for at in order) for tier in plain.tiers),
    )
    text = dice.choice(("TP8_NVL18+DP*", "TP4_NVL18+PP4_IB@t1+DP*", "TP2_NVL18+DP8_IB@t1"))
    found = [judged(text, "", each, 64) for each in (plain, mixed)]
    assert codes(found[0]) == codes(found[1])
    assert found[0].outcome == found[1].outcome
