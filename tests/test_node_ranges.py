"""Promises of node ranges: every list of names comes back, and large jobs fit into a fact."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemesis.processors.attribution.inventory import Inventory
from nemesis.processors.healer.replicas import world_of
from nemesis.schemas.envelope import EVENT_BYTES_MAX
from nemesis.schemas.errors import BadNameError, MalformedFactError
from nemesis.schemas.facts import decode_conclusion, encode_conclusion
from nemesis.schemas.node_ranges import NODES_MAX, count_nodes, format_nodes, parse_nodes
from nemesis.schemas.operated import JobSubmitted

numbered = st.builds(
    lambda prefix, first, count, width, suffix: [
        f"{prefix}{number:0{width}}{suffix}" for number in range(first, first + count)
    ],
    st.sampled_from(("n", "gpu-", "r1c", "7x", "")),
    st.integers(0, 1_000),
    st.integers(1, 12),
    st.integers(1, 5),
    st.sampled_from(("", ".dc1", "-ib")),
)
any_names = st.lists(st.text(st.characters(exclude_characters="[]"), max_size=8), max_size=4)


def job(*nodes: str) -> JobSubmitted:
    return JobSubmitted(at_ns=1, by="ann", reason="", job="llama", nodes=nodes)


@given(st.lists(st.one_of(numbered, any_names), max_size=5))
def test_a_list_of_names_comes_back_in_its_order(lists: list[list[str]]) -> None:
    names = tuple(name for each in lists for name in each)
    written = format_nodes(names)
    assert parse_nodes(written) == names
    assert count_nodes(written) == len(names)


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (("n1", "n2", "n3"), ("n[1-3]",)),
        (("n1", "n2"), ("n1", "n2")),
        (("n08", "n09", "n10", "n11"), ("n[08-11]",)),
        (("n8", "n9", "n10", "n11", "n12"), ("n8", "n9", "n[10-12]")),
        (("n3", "n2", "n1"), ("n3", "n2", "n1")),
        (("r1n1.a", "r1n2.a", "r1n3.a", "r2n1.a"), ("r1n[1-3].a", "r2n1.a")),
    ],
)
def test_names_that_count_up_are_one_range(names: tuple[str, ...], short: tuple[str, ...]) -> None:
    assert format_nodes(names) == short


@pytest.mark.parametrize("name", ["n[1-9", "n[1-10]", "n[a-b]", "n[-3]", "[]", "n[1-2][3-4]"])
def test_what_is_no_range_is_a_name(name: str) -> None:
    assert parse_nodes((name,)) == (name,)


def test_a_node_that_is_called_like_a_range_is_refused() -> None:
    with pytest.raises(BadNameError, match="like a range"):
        format_nodes(("n[1-2]",))


def test_a_job_of_twelve_thousand_nodes_fits_into_a_fact_and_means_each_of_them() -> None:
    names = tuple(f"n{number:05}" for number in range(1, 12_501))
    with pytest.raises(MalformedFactError):
        written(job(*names))
    payload = written(job(*format_nodes(names)))
    assert len(payload) < EVENT_BYTES_MAX // 100
    _, data = decode_conclusion("job_submitted", payload)
    assert data.node_names == names
    assert world_of(data) == 100_000
    short, long = Inventory(), Inventory()
    short.submit(data)
    long.submit(job(*names))
    assert short == long


def test_a_slip_in_a_range_fills_no_memory() -> None:
    slip = msgspec.json.encode({**msgspec.to_builtins(job()), "nodes": ["n[0000000-9999999]"]})
    with pytest.raises(msgspec.ValidationError, match=f"at most {NODES_MAX}"):
        msgspec.json.decode(slip, type=JobSubmitted)


def written(data: JobSubmitted) -> bytes:
    return encode_conclusion(id="x", source="/s", at_ns=1, data=data, key=data.job)[1]
