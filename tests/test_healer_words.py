"""Promises of the healer's words: names that count up, sentences, urgency, what is cited."""

from typing import Any

import msgspec
import pytest

from nemesis.processors.healer.healer import Healer
from nemesis.processors.healer.state import CAUSES_MAX, ENDED_MAX, HealerState
from nemesis.schemas.decided import (
    PolicyRefused,
    QuiesceDecided,
    RecoveryDecided,
    RecoveryWithheld,
)
from nemesis.schemas.done import AttemptCompleted, AttemptFailed, AttemptStarted
from nemesis.schemas.errors import MalformedFactError
from nemesis.schemas.inferred import Culprit
from nemesis.schemas.kept import ConclusionUndeliverable
from nemesis.schemas.operated import BreakerReset, JobEnded
from nemesis.schemas.policy import Policy
from tests.healer_cell import ACT, Cell
from tests.log_cell import SECOND_NS

EVERY_NODE = {"nodes_out_max": 100, "nodes_out_share_max_ppm": 1_000_000}


def made(policy: dict[str, Any] | None, *, at_once: bool = True, **job: Any) -> Cell:
    cell = Cell(policy=policy, at_once=at_once)
    cell.submit(**job)
    return cell


@pytest.mark.parametrize(
    ("seen", "following"),
    [
        ("llama/7", "llama/8"),
        ("a/b/7", "llama/8"),
        ("llama", "llama/1"),
        ("llama/x", "llama/1"),
        ("llama/²", "llama/1"),
        ("llama/", "llama/1"),
        (f"llama/{10**18 - 1}", f"llama/{10**18}"),
        (f"llama/{10**18}", "llama/1"),  # more digits than any count has
    ],
)
def test_names_go_on_behind_the_highest_number_that_was_read(seen: str, following: str) -> None:
    cell = made(ACT)
    decided = QuiesceDecided(
        at_ns=1,
        reason="",
        decision=seen,
        incident="",
        mode="act",
        deadline_ns=1,
        job="llama",
        epoch=0,
    )
    cell.event(decided, "llama", "llama")
    cell.exit(3)
    assert cell.last(QuiesceDecided).decision == following


def test_an_older_decision_that_passes_by_is_not_the_one_that_is_awaited() -> None:
    cell = made(ACT, at_once=False)
    cell.exit(3)
    older = msgspec.structs.replace(cell.last(QuiesceDecided), decision="llama/0", job_revision=0)
    cell.event(older, "llama", "llama")
    cell.tick(10)
    assert cell.kinds == ["QuiesceDecided"]


def test_every_decision_has_a_name_of_its_own_also_where_some_were_lost() -> None:
    cell = made(ACT, at_once=False)
    cell.exit(3)
    cell.tick(2)
    for _ in range(2):
        lost = ConclusionUndeliverable(
            at_ns=cell.now_ns, reason="", name="healer", error="", sha256=""
        )
        cell.event(lost, "healer")
        cell.operate(BreakerReset, "x", limit="undeliverable")
    assert [each.decision for each in cell.said] == ["llama/1", "llama/2", "llama/3"]


def test_of_ended_jobs_the_one_that_ended_first_is_forgotten() -> None:
    cell = Cell(policy=ACT)
    ended = {f"j{at}": 1 for at in range(ENDED_MAX)}
    state = HealerState(policy=Policy(mode="act"), ended=ended)
    cell.fold.processor.restore(msgspec.msgpack.encode(state))
    cell.submit()
    cell.operate(JobEnded, "llama", job="llama")
    kept = msgspec.msgpack.decode(cell.fold.processor.snapshot(), type=HealerState).ended
    assert list(kept) == [f"j{at}" for at in range(1, ENDED_MAX)] + ["llama"]


def test_what_a_person_or_an_actor_must_do_is_urgent_and_advice_on_a_part_is_not() -> None:
    cell = made(ACT | {"world_min": 7})
    cell.exit(3)
    cell.blame("gpu.off_bus", 3)
    cell.carry_out()
    cell.carry_out()
    cell.exit(5, node="n2", epoch=1)
    cell.carry_out()
    cell.tick(2)
    cell.apply({"mode": "act", "world_min": 0})
    assert cell.emissions[-1].subject == "nemesis.events.policy_refused.policy"
    cell.blame("gpu.off_bus", node="n9", jobs=())
    assert [
        (type(each).__name__, emission.urgent)
        for each, emission in zip(cell.said, cell.emissions, strict=True)
    ] == [
        ("QuiesceDecided", True),
        ("RecoveryDecided", True),
        ("QuiesceDecided", True),
        ("RecoveryDecided", True),
        ("PolicyRefused", True),
        ("RecoveryDecided", False),
    ]


def test_what_is_wrong_with_a_policy_is_said_in_two_thousand_characters() -> None:
    cell = made(ACT)
    cell.apply({"x" * 3000: 1})
    assert len(cell.last(PolicyRefused).broken) == 2000


def test_settings_are_refused_with_a_word_on_where_they_belong() -> None:
    with pytest.raises(
        MalformedFactError, match=r"^healer: takes no settings, its policy is policy_applied$"
    ):
        Healer().configure(b"[]")


def test_an_attempt_that_says_nothing_new_is_not_cited() -> None:
    cell = made(ACT)
    first = cell.exit(3)
    cell.attempt(AttemptStarted, "llama/77")
    cell.carry_out()
    cell.tick(2)
    assert cell.causes() == (first,)
    cell.attempt(AttemptStarted, "llama/2", deadline_ns=cell.now_ns + SECOND_NS)
    cell.attempt(AttemptFailed, "llama/2", withdrawn=True)
    assert cell.causes() == (first,)
    third = cell.attempt(AttemptFailed, "llama/3")
    assert cell.last(RecoveryDecided).action == "shrink"
    assert cell.causes() == (first, third)


def test_the_first_facts_are_cited_and_not_more_than_a_decision_can_hold() -> None:
    cell = made(ACT)
    cited = [cell.exit(3)]
    cited += [cell.blame("gpu.off_bus", 3, revision=at) for at in range(CAUSES_MAX + 5)]
    cell.carry_out()
    assert cell.causes() == tuple(cited[:CAUSES_MAX])


def test_the_same_revision_again_is_not_cited_again() -> None:
    cell = made(ACT)
    cited = (cell.exit(3), cell.blame("gpu.off_bus", 3))
    cell.blame("gpu.off_bus", 3)
    cell.carry_out()
    assert cell.causes() == cited


def test_a_job_without_a_fault_is_well_and_a_dead_rank_is_named_before_that() -> None:
    cell = made(ACT)
    cell.blame("none", 3)
    assert cell.last(RecoveryDecided).reason == (
        "llama is well: nothing is done, the job's membership stays as it is."
    )
    again = made(ACT)
    again.exit(3)
    again.blame("none", 3)
    again.carry_out()
    assert again.last(RecoveryDecided).reason == (
        "Because rank 3 of llama is lost: restart_rank, 8 of 8 ranks go on, 1 started anew from"
        " peer."
    )


def test_a_swap_names_who_comes_and_who_goes() -> None:
    cell = made(ACT | EVERY_NODE, spares=("s0", "s1"))
    culprits = tuple(Culprit(kind="node", id=f"node/{node}") for node in ("n0", "n1"))
    cell.blame("host.memory", culprits=culprits)
    cell.carry_out()
    assert cell.last(RecoveryDecided).reason == (
        "Because host.memory at node/n0, rank 0-3 of llama is lost: swap_node, 8 of 8 ranks go on,"
        " on s0, s1 instead of n0, n1, 4 started anew from peer."
    )


def test_of_two_equally_grave_verdicts_the_first_names_the_reason() -> None:
    cell = made(ACT)
    cell.blame("gpu.off_bus", 3)
    cell.blame("nic", 6, node="n3", incident="i-2")
    cell.carry_out()
    assert cell.last(RecoveryDecided).reason == (
        "Because gpu.off_bus at gpu/n1/0000:1b:00.0, rank 3,6 of llama is lost: shrink, 6 of 8"
        " ranks go on."
    )


def test_a_limit_says_which_rungs_were_refused_before() -> None:
    cell = made(ACT | {"shrinks_max": 0})
    cell.exit(3)
    cell.blame("gpu.off_bus", 3)
    cell.carry_out()
    withheld = cell.last(RecoveryWithheld)
    assert (withheld.limit, withheld.rungs_refused) == (
        "shrinks_max",
        ("swap_node: 1 spare nodes are needed, 0 are there",),
    )


def test_a_hold_that_is_read_late_counts_from_the_fault() -> None:
    cell = made(ACT, at_once=False)
    cell.exit(3)
    cell.tick()
    cell.flush()
    cell.attempt(AttemptCompleted, "llama/1")
    cell.tick()
    assert cell.kinds == ["QuiesceDecided", "RecoveryDecided"]
