"""Promises of the healer about failures that have not come yet: leave in time, or watch."""

import pytest

from nemesis.schemas.decided import QuiesceDecided, RecoveryDecided, RecoveryWithheld
from nemesis.schemas.operated import DecisionVetoed, NodeProtected, PauseSet
from tests.healer_cell import ACT, Cell


def made(policy: dict[str, object] | None = None, **job: object) -> Cell:
    cell = Cell(policy=ACT | (policy or {}))
    cell.submit(**job)
    return cell


def test_a_rank_on_a_part_that_is_about_to_fail_leaves_without_a_hold() -> None:
    cell = made()
    cell.predict("act", 3)
    assert cell.kinds == ["RecoveryDecided"]
    decided = cell.last(RecoveryDecided)
    assert (decided.action, decided.mode, decided.incident) == ("shrink", "act", "p-1")
    assert (decided.removed_ranks, decided.members, decided.epoch) == ((3,), "0-2,4-7", 1)
    assert decided.reason == (
        "Because gpu.memory is likely at gpu/n1/0000:1b:00.0, where rank 3 of llama runs: shrink,"
        " 7 of 8 ranks go on."
    )
    cell.carry_out()
    cell.tick(100)
    cell.predict("act", 3)
    assert cell.kinds == ["RecoveryDecided"]


def test_where_the_job_cannot_shrink_a_spare_takes_over() -> None:
    cell = made(spares=("s0",), world_min=8)
    cell.predict("act", 3)
    decided = cell.last(RecoveryDecided)
    assert (decided.action, decided.joined_nodes) == ("swap_node", ("s0",))
    assert (decided.started, decided.state_from) == ("2-3", "peer")


@pytest.mark.parametrize(
    ("spares", "ready"),
    [(("s0",), "s0 is free to take over"), ((), "no spare node could take over")],
)
def test_a_part_to_watch_is_watched_and_the_spare_for_it_is_named(
    spares: tuple[str, ...], ready: str
) -> None:
    cell = made(spares=spares)
    cell.predict("watch", 3)
    decided = cell.last(RecoveryDecided)
    assert (decided.action, decided.mode, decided.members) == ("watch", "shadow", "")
    assert decided.target == "gpu/n1/0000:1b:00.0"
    assert decided.reason == (
        "gpu.memory is likely at gpu/n1/0000:1b:00.0 but has not come: watch for now, "
        + ready
        + "."
    )
    cell.tick(100)
    assert len(cell.said) == 1
    cell.predict("act", 3)
    assert cell.last(RecoveryDecided).action == "shrink"
    cell.predict("watch", 3)
    assert len(cell.said) == 2


@pytest.mark.parametrize("band", ["record", "clear"])
def test_what_is_only_for_the_record_leads_to_nothing(band: str) -> None:
    cell = made()
    cell.predict(band, 3)  # type: ignore[arg-type]
    cell.tick(10)
    assert cell.said == []


def test_what_was_taken_back_before_it_was_answered_leads_to_nothing() -> None:
    cell = made()
    cell.exit(0, node="n0")
    cell.predict("act", 3)
    cell.predict("clear", 3)
    cell.blame("app.program", 0, node="")
    cell.carry_out()
    cell.carry_out()
    cell.tick(10)
    assert cell.kinds == ["QuiesceDecided", "RecoveryDecided"]


def test_what_has_failed_is_answered_first_and_by_its_own_rung() -> None:
    cell = made()
    cell.exit(0, node="n0")
    cell.predict("act", 3)
    cell.carry_out()
    cell.tick(2)
    assert cell.last(RecoveryDecided).started == "0"
    cell.carry_out()
    cell.tick()
    assert cell.last(RecoveryDecided).removed_ranks == (3,)


def test_a_prediction_does_not_undo_what_is_under_way() -> None:
    cell = made()
    cell.exit(0, node="n0")
    cell.carry_out()
    cell.tick(2)
    assert cell.last(RecoveryDecided).action == "restart_rank"
    cell.predict("act", 3)
    cell.tick(3)
    assert len(cell.all(RecoveryDecided)) == 1


def test_even_a_greater_recovery_leaves_the_rank_where_it_is_and_it_leaves_afterwards() -> None:
    cell = made()
    cell.blame("app.program", 0, node="")
    cell.predict("act", 3)
    cell.carry_out()
    cell.tick()
    assert cell.last(RecoveryDecided).action == "restart_job"
    cell.carry_out()
    cell.tick()
    assert cell.last(RecoveryDecided).removed_ranks == (3,)


def test_a_protected_node_keeps_the_rank_that_still_lives() -> None:
    cell = made(spares=("s0",))
    cell.operate(NodeProtected, "n1", node="n1", protected=True)
    cell.predict("act", 3)
    withheld = cell.last(RecoveryWithheld)
    assert (withheld.limit, withheld.rungs_refused) == (
        "no_rung",
        ("shrink: node n1 is protected", "swap_node: node n1 is protected"),
    )


@pytest.mark.parametrize("refusal", ["paused", "shrinks_max"])
def test_a_job_that_may_not_leave_in_time_is_held_at_once_when_it_fails(refusal: str) -> None:
    cell = made({"shrinks_max": 0} if refusal == "shrinks_max" else None)
    if refusal == "paused":
        cell.operate(PauseSet, "p", scope="node/n1", paused=True)
    cell.predict("act", 3)
    assert cell.last(RecoveryWithheld).limit == refusal
    cell.tick(10)
    assert len(cell.said) == 1
    cell.exit(3)
    assert cell.kinds[-1] == "QuiesceDecided"


def test_a_rank_that_nobody_took_out_in_time_is_an_incident_of_its_own_when_it_fails() -> None:
    cell = made()
    cell.predict("act", 3)
    cell.tick(61)
    assert cell.last(RecoveryWithheld).limit == "unanswered"
    cell.tick(100)
    assert len(cell.said) == 2
    seq = cell.exit(3)
    assert cell.last(QuiesceDecided).incident == "n1/process/1/1"
    assert cell.causes() == (seq,)


def test_a_person_may_say_no_to_each_way_and_the_job_goes_on_as_it_is() -> None:
    cell = made({"mode": "approve"}, spares=("s0",))
    cell.predict("act", 3)
    for decision, action in (("llama/1", "shrink"), ("llama/2", "swap_node")):
        decided = cell.last(RecoveryDecided)
        assert (decided.decision, decided.action, decided.mode) == (decision, action, "approve")
        cell.operate(DecisionVetoed, decision, decision=decision)
    assert cell.last(RecoveryWithheld).limit == "vetoed"
    cell.exit(3)
    assert cell.kinds[-1] == "QuiesceDecided"


def test_a_spare_that_is_likely_to_fail_does_not_join_until_it_is_clear() -> None:
    cell = made(spares=("s0", "s1"))
    cell.predict("watch", node="s0", jobs=())
    cell.exit(3)
    cell.blame("gpu.off_bus", 3)
    cell.carry_out()
    assert cell.last(RecoveryDecided).joined_nodes == ("s1",)
    again = made(spares=("s0", "s1"))
    again.predict("watch", node="s0", jobs=())
    again.predict("clear", node="s0", jobs=())
    again.exit(3)
    again.blame("gpu.off_bus", 3)
    again.carry_out()
    assert again.last(RecoveryDecided).joined_nodes == ("s0",)


def test_a_playbook_says_what_a_prediction_leads_to() -> None:
    cell = made({"playbooks": {"predicted.act": ["watch"]}})
    cell.predict("act", 3)
    assert cell.last(RecoveryDecided).action == "watch"


def test_ranks_are_those_of_the_first_job_and_another_job_loses_none() -> None:
    cell = made()
    cell.predict("act", 3, jobs=("other", "llama"))
    cell.tick(10)
    assert cell.said == []


def test_a_prediction_about_no_job_or_no_node_is_borne() -> None:
    cell = made()
    cell.predict("act", jobs=())
    cell.predict("act", 3, component="switch/leaf03", incident="p-2")
    assert cell.last(RecoveryDecided).removed_ranks == (3,)


def test_two_who_foresee_the_same_failure_are_answered_once() -> None:
    cell = made()
    cell.predict("act", 3, rule="spare_rows_used")
    cell.predict("act", 3, incident="p-2", rule="ecc_model")
    cell.carry_out()
    cell.tick(10)
    assert cell.kinds == ["RecoveryDecided"]
    assert cell.last(RecoveryDecided).removed_ranks == (3,)


def test_what_one_takes_back_the_other_still_foresees() -> None:
    cell = made({"shrinks_max": 0}, spares=("s0",))
    cell.predict("watch", 3)
    cell.predict("watch", 3, incident="p-2")
    cell.predict("clear", 3)
    cell.predict("act", 3, incident="p-2")
    assert cell.last(RecoveryDecided, RecoveryWithheld).incident == "p-2"
