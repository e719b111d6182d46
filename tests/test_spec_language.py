"""The language in which a job says how it is cut over GPUs."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemesis.processors.parallelism.parsing import BadSpecError, parse, read
from nemesis.processors.parallelism.spec import INFERRED, Fabric, Spec, Term, printed
from tests.specs import specs


def outcome(text: str) -> tuple[Spec | None, BadSpecError | None]:
    try:
        return parse(text), None
    except BadSpecError as error:
        return None, error


@given(specs())
def test_what_is_printed_is_read_as_the_same(spec: Spec) -> None:
    assert parse(printed(spec)) == spec


@given(specs(), st.integers(0, 2**64))
def test_case_and_blanks_change_nothing(spec: Spec, seed: int) -> None:
    text = printed(spec)
    changed = "".join(
        char.swapcase() if seed >> (at % 64) & 1 and spec.order == "" else char
        for at, char in enumerate(text.replace("+", " + ").replace(";", " ; "))
    )
    assert parse(changed) == spec


@given(st.text(max_size=60) | st.text("TPCEDFR0123456789+_;,=*/!?@vdtgsIBNVLAY ", max_size=40))
def test_any_text_is_a_description_or_is_refused_with_code_and_place(text: str) -> None:
    found, refusal = outcome(text)
    if found is None:
        assert refusal is not None
        assert refusal.spec_code in ("L1", "L2", "L3")
        assert 0 <= refusal.at <= len(text)
        assert "\n" not in refusal.message
    else:
        assert parse(printed(found)) == found


def test_a_bare_number_is_a_class_of_links_on_either_fabric() -> None:
    assert parse("TP8_NVL12+PP4_IB2") == Spec(
        terms=(
            Term("TP", 8, fabric=Fabric(kind="NVL", link_count=12)),
            Term("PP", 4, fabric=Fabric(kind="IB", link_count=2)),
        )
    )


def test_suffixes_say_width_tier_and_how_hard() -> None:
    spec = parse("TP8_NVL18+CP2_NVL18/d72+PP8v4_IB8@t2!+DP*_IB8@g3?300s;sp,mbs=1,gbs=2048,spare=2")
    tp, cp, pp, dp = spec.terms
    assert tp.fabric == Fabric(kind="NVL", link_count=18)
    assert cp.fabric == Fabric(kind="NVL", link_count=18, width=72)
    assert (pp.chunks, pp.fabric) == (4, Fabric(kind="IB", link_count=8, tier=2))
    assert dp.degree == INFERRED
    assert dp.fabric == Fabric(kind="IB", link_count=8, scope="g", tier=3, force="soft", wait_s=300)
    assert (spec.sequence_parallel, spec.micro_batch, spec.global_batch) == (True, 1, 2048)
    assert spec.spares == 2


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("tp8_nvl18 + pp4v1_ib2!", "TP8_NVL18+PP4_IB2"),
        ("ETP1+EP64_NVL18/D72+DP*", "ETP1+EP64_NVL18/d72+DP*"),
        ("FSDP064_ib8+dpr4_IB8@T3?", "FSDP64_IB8+DPR4_IB8@t3?"),
        ("TP8;gbs=2048,sp,order=Megatron,mbs=1", "TP8;sp,mbs=1,gbs=2048,order=megatron"),
    ],
)
def test_one_spelling_is_canonical(text: str, canonical: str) -> None:
    assert printed(parse(text)) == canonical


@pytest.mark.parametrize(
    ("text", "code", "at", "word"),
    [
        ("", "L2", 0, "one of TP, CP"),
        ("é", "L1", 0, "one of TP, CP"),
        ("TPP8", "L2", 2, "a number"),
        ("TP8+", "L2", 4, "one of TP, CP"),
        ("TP8 DP8", "L2", 4, '"+"'),
        ("TP8_NV", "L2", 4, "NVL, IB, ROCE, EFA, PCIE or ANY"),
        ("TP8_IB2@x2", "L2", 8, '"t" or "g"'),
        ("TP8;foo=2", "L2", 4, "mbs, gbs, spare or order or sp"),
        ("TP0", "L3", 2, "at least 1"),
        ("TP99999999999", "L3", 2, "at most 10000000"),
        ("TP8v2", "L3", 4, "only a pipeline has chunks"),
        ("TP*", "L3", 0, "for DP and FSDP"),
        ("DP*+FSDP*", "L3", 4, 'one "*" at most'),
        ("TP8_IB2/d72", "L3", 9, "not for IB"),
        ("TP8;sp,sp", "L3", 7, "twice"),
        ("TP8" + "+TP8" * 200, "L1", 40, "at most 500"),
    ],
)
def test_what_is_no_description_is_refused_where_it_goes_wrong(
    text: str, code: str, at: int, word: str
) -> None:
    with pytest.raises(BadSpecError) as raised:
        parse(text)
    assert (raised.value.spec_code, raised.value.at) == (code, at)
    assert word in raised.value.message


def test_the_place_of_every_part_is_known() -> None:
    parsed = read("TP8_NVL12 + PP4;gbs=64")
    assert {part: parsed.text[slice(*span)] for part, span in parsed.spans.items()} == {
        "0": "TP8_NVL12",
        "0.fabric": "NVL12",
        "1": "PP4",
        "global_batch": "gbs=64",
    }


def test_a_description_is_data_that_can_be_logged() -> None:
    spec = parse("TP8_NVL18+PP4v2_IB2@t2?60s+DP*;sp,gbs=64")
    assert msgspec.json.decode(msgspec.json.encode(spec), type=Spec) == spec
