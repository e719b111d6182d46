"""Promises of names: one component has one name, a set of ranks has one short spelling."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemesis.schemas import codes
from nemesis.schemas.components import gpu, kind_of, node, node_of, pci_address, rank
from nemesis.schemas.errors import BadNameError, NemesisError
from nemesis.schemas.rank_ranges import RANKS_MAX, count_ranks, format_ranks, parse_ranks


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0000:1b:00.0", "0000:1b:00.0"),
        ("1B:00", "0000:1b:00.0"),
        ("00000000:1B:00.0", "0000:1b:00.0"),
        ("0000:1B:00", "0000:1b:00.0"),
        (" 1b:00.7 ", "0000:1b:00.7"),
        ("10000:e1:00.0", "10000:e1:00.0"),
    ],
)
def test_a_pci_address_has_one_spelling(text: str, address: str) -> None:
    assert pci_address(text) == address
    assert pci_address(address) == address


@pytest.mark.parametrize("text", ["", "GPU 3", "1b", "0000:1b:00.8", "0000:1b:00.0\nx", "1g:00.0"])
def test_what_is_no_pci_address_is_refused(text: str) -> None:
    with pytest.raises(BadNameError, match=r"expected dddd:bb:dd\.f"):
        pci_address(text)


def test_components_are_named_by_their_owner() -> None:
    assert gpu("n012", "1B:00") == "gpu/n012/0000:1b:00.0"
    assert node("n012") == "node/n012"
    assert rank("llama", 417) == "rank/llama/417"


@pytest.mark.parametrize(
    ("component", "kind", "owner"),
    [
        ("gpu/n012/0000:1b:00.0", "gpu", "n012"),
        ("node/n012", "node", "n012"),
        ("nvlink/n012/0000:1b:00.0/14", "nvlink", "n012"),
        ("rank/llama/417", "rank", None),
        ("switch/leaf03", "switch", None),
    ],
)
def test_a_component_says_its_kind_and_its_node(
    component: str, kind: str, owner: str | None
) -> None:
    assert kind_of(component) == kind
    assert node_of(component) == owner


@pytest.mark.parametrize("text", ["gpu", "gpu/", "cable/n1", "", "/n1"])
def test_what_is_no_component_is_refused(text: str) -> None:
    with pytest.raises(BadNameError, match="not a component"):
        kind_of(text)


def test_codes_are_closed_lists_without_repetition() -> None:
    for codes_of in (codes.COMPONENT_KINDS, codes.FAULT_CLASSES, codes.ACTIONS):
        assert len(set(codes_of)) == len(codes_of) > 10
    assert {"none", "unknown"} <= set(codes.FAULT_CLASSES)


@given(st.sets(st.integers(min_value=0, max_value=9_999_999), max_size=60))
def test_every_set_of_ranks_comes_back_from_its_spelling(ranks: set[int]) -> None:
    assert parse_ranks(format_ranks(ranks)) == tuple(sorted(ranks))


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([], ""),
        ([5], "5"),
        ([0, 1], "0-1"),
        ([0, 8], "0,8"),
        (range(8), "0-7"),
        (range(0, 512, 8), "0-504:8"),
        ([*range(8), 16, 3], "0-7,16"),
    ],
)
def test_a_set_of_ranks_is_short_text(ranks: list[int], text: str) -> None:
    assert format_ranks(ranks) == text


@pytest.mark.parametrize("text", ["a", "1-", "-3", "1,,2", "0-7:", "1 2", "0-7:0:1", "99999999"])
def test_what_is_no_set_of_ranks_is_refused(text: str) -> None:
    with pytest.raises(BadNameError, match="not a set of ranks"):
        parse_ranks(text)


@pytest.mark.parametrize("text", ["0-9999999", "0-999999,1000000-1000001"])
def test_a_set_of_ranks_cannot_fill_the_memory(text: str) -> None:
    with pytest.raises(BadNameError, match=f"more than {RANKS_MAX} ranks"):
        parse_ranks(text)


def test_ranks_are_counted_without_being_made() -> None:
    assert count_ranks("0-9999999,3,0-504:8") == 10_000_000 + 1 + 64
    assert count_ranks("") == 0
    with pytest.raises(BadNameError, match="not a set of ranks"):
        count_ranks("0-")


def test_a_run_that_ends_before_it_starts_is_empty() -> None:
    assert parse_ranks("7-0") == ()


def test_an_error_has_a_name_for_programs_and_a_next_step_for_people() -> None:
    error = BadNameError("no", hint="do this")
    assert (error.code, error.message, error.hint, error.exit_code) == (
        "bad_name",
        "no",
        "do this",
        2,
    )
    assert NemesisError("x").code == "nemesis"
