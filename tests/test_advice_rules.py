"""Promises of the rules that stand between what an advisor proposes and what comes of it."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nemesis.processors.advice.rules import RULES, judge
from nemesis.processors.advice.situation import Situation, Standing
from nemesis.processors.parallelism.rules import RULES as CHECKS
from nemesis.schemas.advised import AdvisedAct, AdvisedKind
from tests.advising import situation, waiting
from tests.pools import pool

LEAF = waiting("llama", "TP8_NVL18+DP2_IB8@t1")
"""Two nodes below one leaf."""


def act(kind: AdvisedKind, job: str = "llama", **said: Any) -> AdvisedAct:
    return AdvisedAct(kind=kind, job=job, **said)


def rule(now: Situation, of: AdvisedAct) -> str:
    broken = judge(now, "llama", of)
    return broken.rule if broken else ""


def running(job: str, *nodes: str, **more: Any) -> Standing:
    return Standing(job=job, spec="TP8+DP2", stage="running", nodes=nodes, **more)


BUSY = situation(
    LEAF,
    running("gpt", "n001", "n002"),
    waiting("bert", priority=5),
    waiting("opt"),
    Standing(job="done", spec="TP8", stage="over"),
    held={"n003": "on probation"},
)


@pytest.mark.parametrize(
    ("proposed", "refused_by"),
    [
        (act("place", nodes=("n005", "n006")), ""),
        (act("place", nodes=("n[005-006]",)), ""),
        (act("place", nodes=("n007", "n008")), ""),
        (act("place", nodes=("n004", "n005")), "shape"),
        (act("place", nodes=("n001", "n004")), "not_free"),
        (act("place", nodes=("n003", "n004")), "held"),
        (act("place", nodes=("n005", "n005")), "no_such_node"),
        (act("place", nodes=("n005", "n999")), "no_such_node"),
        (act("place"), "no_such_node"),
        (act("place", nodes=("n[0000000-9999999]",)), "no_such_node"),
        (act("place", nodes=("n005",)), "nodes"),
        (act("place", nodes=("n[005-007]",)), "nodes"),
        (act("place", "gpt", nodes=("n005", "n006")), "other_job"),
        (act("place", "nobody", nodes=("n005", "n006")), "other_job"),
        (act("order", before="bert"), "same_priority"),
        (act("order", before="gpt"), "not_waiting"),
        (act("order", before="nobody"), "unknown_job"),
        (act("order", before="opt"), "in_order"),
        (act("order", before="llama"), "in_order"),
        (act("spares", nodes=("n005",)), ""),
        (act("spares", nodes=("n003",)), "held"),
        (act("spares", nodes=("n[005-013]",)), "spares"),
        (act("release"), "running"),
        (act("release", "gpt"), "other_job"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_act_that_breaks_a_rule_is_refused_and_the_rule_named(
    proposed: AdvisedAct, refused_by: str
) -> None:
    assert rule(BUSY, proposed) == refused_by


def test_a_job_may_go_before_one_of_its_own_priority() -> None:
    now = situation(waiting("opt"), LEAF)
    assert rule(now, act("order", before="opt")) == ""


def test_a_job_that_runs_is_neither_placed_again_nor_released_and_one_that_is_over_is() -> None:
    now = situation(running("llama", "n001", "n002"))
    assert rule(now, act("place", nodes=("n003", "n004"))) == "not_waiting"
    assert rule(now, act("release")) == "running"
    assert rule(situation(Standing(job="llama", spec="", stage="over")), act("release")) == ""


@pytest.mark.parametrize(
    ("own", "offered", "refused_by"),
    [
        ("TP8+DP3", "TP8+DP2", ""),
        ("TP8+DP3", "TP4+DP4", ""),
        ("TP8+DP3", "TP8+DP4", "W1"),
        ("TP8+DP3", "TP8+DP3", "same"),
        ("TP8+DP3", "TP16_NVL18", "F1"),
        ("TP8+DP3", "TP8+", "language"),
        ("TP8+DP3;gbs=1024", "TP8+DP2;gbs=512", "batch"),
        ("TP8+DP3;gbs=1024", "TP8+DP2;gbs=1024", ""),
        ("what I want", "TP8+DP2", ""),
    ],
)
def test_another_description_is_offered_if_it_passes_and_keeps_what_was_asked(
    own: str, offered: str, refused_by: str
) -> None:
    job = Standing(job="llama", spec=own, stage="rejected", gpu_count=16)
    assert rule(situation(job), act("offer", spec=offered)) == refused_by


def test_an_offer_is_for_as_many_gpus_where_only_the_description_says_how_many() -> None:
    now = situation(waiting("llama", "TP8_NVL18+DP2"))
    assert rule(now, act("offer", spec="TP4_NVL18+DP4")) == ""
    assert rule(now, act("offer", spec="TP4_NVL18+DP8")) == "gpus"


def test_nobody_overtakes_a_job_of_higher_priority_that_has_a_place() -> None:
    urgent = waiting("urgent", "TP8_NVL18+DP4", priority=9)
    small = pool((4,))
    taking = act("place", nodes=("n001", "n002"))
    assert rule(situation(urgent, LEAF, on=small), taking) == "priority"
    assert rule(situation(urgent, LEAF, on=small), act("spares", nodes=("n001",))) == "priority"
    # one that has no place anyway is not overtaken, and one of the same priority may be
    large = replace(urgent, spec="TP8_NVL18+DP8")
    assert rule(situation(large, LEAF, on=small), taking) == ""
    equal = replace(urgent, priority=0)
    assert rule(situation(equal, LEAF, on=small), taking) == ""


def test_every_rule_that_refuses_says_what_it_means() -> None:
    told = {*RULES, *(check.code for check in CHECKS)}
    names = {"not_free", "held", "shape", "nodes", "priority", "same_priority", "running", "W1"}
    assert names <= told


@settings(max_examples=12)
@given(st.text(max_size=80), st.text(max_size=80))
def test_no_name_and_no_label_makes_a_rule_let_pass_what_it_refuses(name: str, why: str) -> None:
    job = replace(LEAF, job=name or "x", team=name, reason=why)
    now = situation(job, running("gpt", "n001", "n002"), held={"n003": why})
    for proposed in (
        act("place", job.job, nodes=("n001", "n004"), why=why),
        act("place", job.job, nodes=("n004", "n005"), why=why),
        act("release", job.job, why=why),
    ):
        assert judge(now, job.job, proposed) is not None
