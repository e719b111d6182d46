"""Whatever fails and whenever: one group an epoch, one state in a group, and always an end.

Each budget below is explored whole (tests/membership_model.py), larger ones by `make campaign`.
"""

from collections.abc import Mapping

import msgspec
import pytest

from nemesis.training.membership import NO_STATE, Deed, Member, Order, State
from tests import membership_model
from tests.membership_model import BrokenPromiseError, Budget, begin, explore

LEAVING = Budget(kills=0, predictions=1, steps=1)
BUDGETS = [
    (2, Budget(kills=1, predictions=1)),
    (2, Budget(kills=0, predictions=1, breaks=1)),
    (3, Budget(kills=1)),
    (3, Budget(kills=2, steps=1)),
    (3, Budget(kills=1, steps=1, rivals=1)),
    (3, Budget(kills=0, suspicions=1, zombies=1)),
    (3, Budget(kills=1, steps=1, zombies=1)),
    (3, LEAVING),
    (4, Budget(kills=1, steps=1)),
]


@pytest.mark.parametrize(("ranks", "budget"), BUDGETS, ids=str)
def test_no_order_of_events_mixes_states_or_leaves_a_rank_waiting(
    ranks: int, budget: Budget
) -> None:
    explored = explore(begin(ranks, budget))
    assert explored.worlds_count > explored.ends_count > 0


def test_who_leaves_at_a_boundary_breaks_nobodys_step() -> None:
    assert explore(begin(3, LEAVING)).breaks_count == 0


def test_a_step_that_went_with_who_alone_had_it_is_done_again_by_all_who_are_left() -> None:
    # what the search holds against every end is that all have one state, and no step is undone
    assert explore(begin(3, Budget(kills=1, steps=1))).alone_count > 0


class _Hasty(Member, frozen=True):
    """Leaves the group as soon as it holds the plan itself."""

    def reduced(self, epoch: int, waiting: int) -> tuple[Member, Deed]:
        return super().reduced(epoch, min(waiting, self.waiting))


class _Deaf(Member, frozen=True):
    """Takes a plan that comes late for the latest."""

    def heard(self, order: Order) -> tuple[Member, Deed]:
        if self.order and order.place < self.order.place:
            return msgspec.structs.replace(self, order=None).heard(order)
        return super().heard(order)


class _Counting(Member, frozen=True):
    """Takes equal numbers of steps for equal states."""

    def source(self, epoch: int, states: Mapping[int, State]) -> int:
        counts = {rank: State(0, state.steps_count) for rank, state in states.items()}
        own = msgspec.structs.replace(self, state=State(0, self.state.steps_count))
        return Member.source(own, epoch, counts)


class _Proud(Member, frozen=True):
    """Keeps what it has when it enters an epoch."""

    def source(self, epoch: int, states: Mapping[int, State]) -> int:
        return self.rank


class _Emptied(Member, frozen=True):
    """Has nothing where its group breaks before it stands."""

    def broken(self, epoch: int) -> tuple[Member, Deed]:
        after, deed = super().broken(epoch)
        return after.has(NO_STATE) if self.stage == "forming" else after, deed


class _Forgetful(Member, frozen=True):
    """Calls what it has taken by the name of what it had."""

    def has(self, state: State) -> Member:
        return self


class _Patient(Member, frozen=True):
    """Waits on where its group is broken."""

    def broken(self, epoch: int) -> tuple[Member, Deed]:
        return self, "none"

    def heard(self, order: Order) -> tuple[Member, Deed]:
        return (self, "none") if order.kind == "hold" else super().heard(order)


@pytest.mark.parametrize(
    ("wrong", "ranks", "budget"),
    [
        (_Hasty, 3, LEAVING),
        (_Deaf, 3, Budget(kills=1)),
        (_Counting, 3, Budget(kills=1, steps=1, rivals=1)),
        (_Proud, 3, Budget(kills=1)),
        (_Emptied, 2, Budget(kills=1)),
        (_Forgetful, 3, Budget(kills=1)),
        (_Patient, 2, Budget(kills=1)),
    ],
)
def test_the_search_finds_what_is_wrong_with_a_protocol_that_is(
    wrong: type[Member], ranks: int, budget: Budget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership_model, "Member", wrong)
    with pytest.raises(BrokenPromiseError):
        explore(begin(ranks, budget))


ALL = (0, 1, 2)
HOLD = Order(0, "hold")
WITHOUT_2 = Order(1, "membership", (0, 1))
SOON = Order(1, "membership", (0, 1), at_boundary=True)
TRAINING = Member(1, ALL, stage="training", order=Order(0, "membership", ALL))


def test_a_rank_goes_on_with_its_group_until_everybody_holds_the_plan() -> None:
    told, deed = TRAINING.heard(SOON)
    assert (deed, TRAINING.waiting, told.waiting) == ("none", 1, 0)
    after, deed = told.reduced(0, waiting=1)
    assert (deed, after.stage, after.state) == ("apply", "training", State(0, 1))
    after, deed = after.reduced(0, waiting=0)
    assert (deed, after.epoch, after.state) == ("apply_and_form", 1, State(0, 2))


def test_who_is_left_out_applies_the_last_step_and_leaves_for_good() -> None:
    leaver, _ = msgspec.structs.replace(TRAINING, rank=2).heard(SOON)
    gone, deed = leaver.reduced(0, waiting=0)
    assert (deed, gone.stage) == ("apply_and_leave", "left")
    assert gone.heard(Order(2, "membership", ALL)) == (gone, "none")


def test_a_hold_stops_at_once_and_what_still_arrives_of_the_step_is_not_applied() -> None:
    held, deed = TRAINING.heard(HOLD)
    assert (deed, held.stage) == ("give_up", "held")
    assert held.reduced(0, waiting=0) == (held, "none")
    forming, deed = held.heard(WITHOUT_2)
    assert (deed, forming.epoch, forming.state) == ("form", 1, State(0, 0))


def test_a_plan_that_was_overtaken_changes_nothing() -> None:
    forming, _ = TRAINING.heard(WITHOUT_2)
    assert forming.heard(HOLD) == (forming, "none")
    assert forming.heard(WITHOUT_2) == (forming, "none")


def test_a_hold_of_a_group_that_was_never_formed_holds_the_one_before() -> None:
    told, _ = TRAINING.heard(SOON)
    held, deed = told.heard(Order(1, "hold"))
    assert (deed, held.epoch) == ("give_up", 0)
    assert held.waiting == 1


def test_who_is_behind_takes_the_latest_state_and_has_its_own_until_that_is_there() -> None:
    forming, _ = TRAINING.heard(WITHOUT_2)
    assert forming.source(1, {0: State(0, 1), 1: State(0, 0)}) == 0
    held, _ = forming.broken(1)
    assert held.state == State(0, 0)
    held, _ = forming.has(State(0, 1)).heard(Order(1, "hold"))
    assert (held.stage, held.state) == ("held", State(0, 1))
    done, _ = forming.has(State(0, 1)).formed(1, State(0, 1))
    assert (done.stage, done.state) == ("training", State(0, 1))


def test_a_later_epoch_counts_for_more_than_more_steps() -> None:
    forming, _ = TRAINING.heard(Order(3, "membership", (0, 1)))
    assert forming.source(3, {0: State(2, 5), 1: State(0, 0)}) == 0
    ahead = msgspec.structs.replace(forming, state=State(1, 9))
    assert ahead.source(3, {0: State(2, 5), 1: State(1, 9)}) == 0


def test_nobody_has_a_state_to_give() -> None:
    empty, _ = msgspec.structs.replace(TRAINING, state=NO_STATE).heard(WITHOUT_2)
    assert empty.source(1, {0: NO_STATE, 1: NO_STATE}) == 1


def test_results_of_an_epoch_that_is_over_change_nothing() -> None:
    forming, _ = TRAINING.heard(WITHOUT_2)
    assert forming.reduced(0, waiting=0) == (forming, "none")
    assert forming.broken(0) == (forming, "none")
    assert forming.formed(0, State(0, 7)) == (forming, "none")


def test_a_stop_ends_the_rank() -> None:
    stopped, deed = TRAINING.heard(Order(0, "stop"))
    assert (deed, stopped.stage) == ("leave", "left")
