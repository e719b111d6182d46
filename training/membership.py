"""Who trains together: one rank's part in it, as a state machine. Pure.

Ranks that train together are the *members* of an *epoch* and form one group. A rank knows the plans
that it was told, the state that it has, and whether its group still works; from that follows what
it does next. It never decides who is a member: plans do, and their makers see to it that an epoch
has one.

What ranks do between plans keeps their states equal:

- A step counts where its reduction completed; a rank whose reduction broke has not applied it, and
  its parameters are those of before. So members of an epoch differ by one step at most.
- Every reduction carries a number of each rank: 1, "I do not hold the plan of the next epoch", or
  0. The sum is exactly 0 where everybody holds it, in every data type, average and order; all see
  the same sum, so all leave the group after the same step. Its connections stay open until the next
  group stands, or whoever is a moment behind would see them break. Who is told to go *now* does not
  wait.
- A state is named by the epoch in which its last step was applied and the number of its steps. Who
  enters an epoch tells the others what it has, and who has another state than the latest takes that
  one. The epoch counts first: where two plans claimed one epoch, one of them alone got a group, and
  equal numbers of steps are no equal states. A rank that takes a state keeps its own until the
  other is there whole: if all that had the latest are lost meanwhile, the older is gone on from.
- Plans are ordered (schemas/plans.py). A later one counts, whatever has become of an earlier one;
  the same again, and what comes late, change nothing.

`tests/test_membership.py` explores all that can happen to up to four ranks.
"""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

import msgspec

from nemesis.schemas.plans import PlanKind, order_of

Stage = Literal["training", "held", "forming", "left"]
"""training: in a group that works, as far as the rank knows. held: its group is given up, it waits
for a plan. forming: on the way into the group of `epoch`. left: not among the members any more, or
at the end of the job with all of them."""

Deed = Literal["none", "give_up", "form", "apply", "apply_and_form", "apply_and_leave", "leave"]
"""What the process has to do now; `give_up`: whatever it waits for in a collective. Who forms or
leaves gives up what it waits for as well."""


class State(NamedTuple):
    """The name of what a rank has: its parameters, its optimizer's state, its place in the data."""

    epoch: int
    """In which its last step was applied."""
    steps_count: int


NO_STATE: Final = State(-1, -1)
"""Of a rank whose parameters are no state: it is to join a job, and has nobody's yet."""
FIRST_STATE: Final = State(0, 0)


class Order(msgspec.Struct, frozen=True):
    """What a plan says to one rank."""

    epoch: int
    kind: PlanKind
    members: tuple[int, ...] = ()
    """Of the new epoch, ascending, named by their rank at submission."""
    at_boundary: bool = False
    """Go on until everybody holds it; else now."""

    @property
    def place(self) -> int:
        """Its place among the plans of the job."""
        return order_of(self.epoch, self.kind)


class Member(msgspec.Struct, frozen=True):
    """One rank, as it sees itself."""

    rank: int
    members: tuple[int, ...]
    """Of its epoch, ascending."""
    epoch: int = 0
    """Of the group that it is in, was in last, or forms."""
    stage: Stage = "forming"
    state: State = FIRST_STATE
    order: Order | None = None
    """The latest that it was told."""

    @property
    def waiting(self) -> int:
        """Its number in a reduction: 0 where it holds the plan of the next epoch."""
        return 0 if self._next() else 1

    def heard(self, order: Order) -> tuple["Member", Deed]:
        """A plan came; plans that change nothing (`observe`) are not for a rank."""
        if self.stage == "left" or (self.order and order.place <= self.order.place):
            return self, "none"
        told = msgspec.structs.replace(self, order=order)
        match order.kind:
            case "membership":
                if order.at_boundary and self.stage in ("training", "forming"):
                    return told, "none"
                return told._entering(order)
            case "stop":
                return told._at("left"), "leave"
            case _:
                return told._at("held"), "give_up"

    def reduced(self, epoch: int, waiting: int) -> tuple["Member", Deed]:
        """The reduction of a step completed in an epoch's group, with the sum of all numbers."""
        if self.stage != "training" or epoch != self.epoch:
            return self, "none"
        state = State(epoch, self.state.steps_count + 1)
        applied = msgspec.structs.replace(self, state=state)
        order = self._next()
        if waiting or order is None:
            return applied, "apply"
        entering, deed = applied._entering(order)
        return entering, "apply_and_form" if deed == "form" else "apply_and_leave"

    def broken(self, epoch: int) -> tuple["Member", Deed]:
        """The group of an epoch does not work: a peer is gone, or it was not formed in time."""
        if self.stage not in ("training", "forming") or epoch != self.epoch:
            return self, "none"
        return self._at("held"), "give_up"

    def source(self, epoch: int, states: Mapping[int, State]) -> int:
        """All members told what they have; from whom to take the state, its own rank for nobody."""
        latest = max(states.values())
        if self.stage != "forming" or epoch != self.epoch or self.state == latest:
            return self.rank
        return min(rank for rank, state in states.items() if state == latest)

    def has(self, state: State) -> "Member":
        """Its parameters are this state now, whatever it was told while it took or applied it."""
        return msgspec.structs.replace(self, state=state)

    def formed(self, epoch: int, state: State) -> tuple["Member", Deed]:
        """The group of an epoch stands, and the rank has this state."""
        if self.stage != "forming" or epoch != self.epoch:
            return self, "none"
        return msgspec.structs.replace(self, stage="training", state=state), "none"

    def finished(self, epoch: int) -> "Member":
        """All members of an epoch are at the end of their loops: nobody needs anybody."""
        if self.stage != "training" or epoch != self.epoch:
            return self
        return self._at("left")

    def _next(self) -> Order | None:
        """The plan of the next epoch, to be followed at a boundary."""
        order = self.order
        if order is None or order.kind != "membership" or order.epoch <= self.epoch:
            return None
        return order

    def _entering(self, order: Order) -> tuple["Member", Deed]:
        if self.rank not in order.members:
            return self._at("left"), "leave"
        entering = msgspec.structs.replace(
            self, stage="forming", epoch=order.epoch, members=order.members
        )
        return entering, "form"

    def _at(self, stage: Stage) -> "Member":
        return msgspec.structs.replace(self, stage=stage)
