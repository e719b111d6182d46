"""Promises of an agent whose log is away: it holds, and does once what was logged for that."""

from typing import Any

import pytest

from nemesis.actors.agent.log_loss import Absence
from nemesis.actors.following import Accepted
from nemesis.schemas.plans import Plan, RankStage
from nemesis.training.membership import Order

SECOND_NS = 1_000_000_000


class Rank:
    """As an agent knows it."""

    def __init__(self, stage: RankStage = "running", *, is_alive: bool = True) -> None:
        self.stage: RankStage = stage
        self.is_alive = is_alive


LOST = {0: Rank("held"), 1: Rank("fenced", is_alive=False), 2: Rank()}
WELL = {0: Rank(), 1: Rank(), 2: Rank()}


def due(
    ranks: dict[int, Rank], seconds: float, *, by_itself: bool = False, **fields: Any
) -> list[Order | Plan | None]:
    """What is due when the log is first missed, when that was held for, and so much later."""
    usual: dict[str, Any] = {"members": "0-2", "on_log_loss": "shrink", "grace_ns": 3 * SECOND_NS}
    plan = Plan(job="llama", epoch=4, kind="membership", **(usual | fields))
    absence = Absence()
    return [
        absence.due(
            round(at * SECOND_NS),
            connected=False,
            last=Accepted(plan=plan, by_itself=by_itself),
            members=(0, 1, 2),
            ranks=ranks,
        )
        for at in (0.0, 0.1, seconds)
    ]


def test_a_lost_rank_holds_the_others_once_and_after_the_grace_they_go_on_without_it() -> None:
    held, nothing, plan = due(LOST, 3.0)
    assert (held, nothing) == (Order(4, "hold"), None)
    assert isinstance(plan, Plan)
    assert (plan.epoch, plan.members, plan.fenced, plan.started) == (5, "0,2", "1", "")


def test_a_restart_starts_all_of_them_from_the_checkpoint() -> None:
    *_, plan = due(LOST, 3.0, on_log_loss="restart")
    assert isinstance(plan, Plan)
    assert (plan.members, plan.started, plan.state_from) == ("0-2", "0-2", "checkpoint")


@pytest.mark.parametrize(
    ("ranks", "seconds", "fields"),
    [
        (LOST, 2.9, {}),
        (LOST, 99.0, {"on_log_loss": "wait"}),
        (LOST, 99.0, {"by_itself": True}),
        ({0: LOST[0], 1: LOST[1]}, 99.0, {}),
        ({rank: LOST[1] for rank in range(3)}, 99.0, {}),
    ],
    ids=["before the grace", "told to wait", "a second time", "others elsewhere", "all are dead"],
)
def test_nobody_goes_on(ranks: dict[int, Rank], seconds: float, fields: dict[str, Any]) -> None:
    assert due(ranks, seconds, **fields)[1:] == [None, None]


def test_a_job_that_trains_is_left_alone_however_long_the_log_is_away() -> None:
    assert due(WELL, 10_000.0) == [None, None, None]


def test_before_any_plan_nothing_was_logged_and_nothing_is_done_but_to_hold() -> None:
    absence, held = Absence(), []
    for at in range(100):
        now_ns = at * SECOND_NS
        held.append(absence.due(now_ns, connected=False, last=None, members=(0, 1, 2), ranks=LOST))
    assert held == [Order(0, "hold"), *[None] * 99]


def test_the_grace_begins_anew_when_the_log_was_there_in_between() -> None:
    plan = Plan(job="llama", epoch=4, kind="membership", members="0-2", on_log_loss="shrink")
    absence, last = Absence(), Accepted(plan=plan)
    found = [
        absence.due(at * SECOND_NS, connected=there, last=last, members=(0, 1, 2), ranks=LOST)
        for at, there in ((0, False), (20, True), (21, False), (50, False), (52, False))
    ]
    assert found[:4] == [Order(4, "hold"), None, None, None]
    assert isinstance(found[4], Plan)
