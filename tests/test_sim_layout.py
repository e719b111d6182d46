"""Promises of a job's layout: each rank in one group of each kind, and where Megatron puts it."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemesis.sim.jobs.layout import KINDS, BadLayoutError, Layout
from nemesis.sim.jobs.program import programs_of

small = st.integers(1, 4)


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    tp, cp, pp, dp = (draw(small) for _ in range(4))
    ep = draw(st.sampled_from([n for n in range(1, 9) if (tp * cp * dp) % n == 0]))
    return Layout(tp * cp * pp * dp, tp=tp, cp=cp, pp=pp, ep=ep)


@given(layouts())
def test_every_rank_is_in_exactly_one_group_of_each_kind(layout: Layout) -> None:
    for kind in KINDS:
        ranks = sorted(layout.members[kind].ravel().tolist())
        assert ranks == list(range(layout.world))
    for rank in range(layout.world):
        assert all(rank in group.ranks for group in layout.groups_of(rank))


@given(layouts())
def test_degrees_multiply_to_the_world(layout: Layout) -> None:
    assert math.prod((layout.tp, layout.cp, layout.pp, layout.dp)) == layout.world
    assert layout.size("mp") == layout.tp * layout.pp
    assert layout.size("dp_cp") == layout.dp * layout.cp
    assert layout.size("ep") * layout.size("edp") * layout.pp == layout.world


@given(layouts())
def test_two_ranks_share_one_group_at_most_of_those_that_cut_the_model(layout: Layout) -> None:
    for rank in range(layout.world):
        cuts = [set(layout.group_of(rank, kind).ranks) for kind in ("tp", "cp", "pp")]
        assert all(one & two == {rank} for one in cuts for two in cuts if one is not two)


@given(layouts())
def test_every_group_of_a_job_has_a_name_of_its_own(layout: Layout) -> None:
    groups = [layout.group(kind, row) for kind in KINDS for row in range(len(layout.members[kind]))]
    assert [group.name for group in groups] == [str(number) for number in range(len(groups))]


def test_groups_are_those_of_a_real_megatron_job() -> None:
    """As in the dumps of data/nvrx_fr_traces, gpu_error_1st: tp 2, pp 4, ep 4 on 16 ranks."""
    layout = Layout(16, tp=2, pp=4, ep=4)
    assert layout.group_of(0, "tp").ranks == (0, 1)
    assert layout.group_of(0, "pp").ranks == (0, 4, 8, 12)
    assert layout.group_of(0, "dp_cp").ranks == (0, 2)
    assert layout.group_of(2, "mp").ranks == (2, 3, 6, 7, 10, 11, 14, 15)
    assert layout.group_of(13, "ep").ranks == (12, 13, 14, 15)


@given(layouts(), st.integers(1, 6), st.integers(1, 4))
def test_a_step_computes_all_of_its_time_and_sends_what_is_received(
    layout: Layout, microbatches: int, chunks: int
) -> None:
    if layout.pp == 1:
        chunks = 1
    programs = programs_of(layout, microbatches * (layout.pp if chunks > 1 else 1), chunks)
    for program in programs:
        assert 0.999 < sum(each.share_ppm for each in program) / 1e6 <= 1
    sent = [message for program in programs for each in program for message in each.messages]
    assert sent.count("send_next") == sent.count("recv_prev")
    assert sent.count("send_prev") == sent.count("recv_next")


def test_degrees_that_do_not_fit_are_refused() -> None:
    with pytest.raises(BadLayoutError, match="does not divide its 16 ranks"):
        Layout(16, tp=3)
    with pytest.raises(BadLayoutError, match="ep 3 does not divide the 8 ranks of a stage"):
        Layout(16, pp=2, ep=3)
    with pytest.raises(BadLayoutError, match="2 chunks a stage need pp above 1"):
        programs_of(Layout(16), 4, 2)
    with pytest.raises(BadLayoutError, match="not pp 4 and 6"):
        programs_of(Layout(16, pp=4), 6, 2)
