"""How far each rank gets in its step when something is broken, and what it waits in then.

Pure, in arrays over ranks. A collective completes when every member of its group has arrived, calls
the same and can be reached; an exchange when each neighbour has posted the other end. Who does not
get on never arrives at what follows, so a stall spreads from group to group until nobody moves: the
fixed point, which does not depend on the order in which it is found. A rank is two threads of
control: the GPU works off what was enqueued, in order; the host enqueues ahead until an operation
that it waits for. A GPU that stops leaves its host running up to there, and a host that stops
leaves its GPU to finish what it has.
"""

from collections.abc import Iterable
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from nemesis.sim.jobs.inversions import invertible
from nemesis.sim.jobs.layout import Kind, Layout, Ranks
from nemesis.sim.jobs.program import PPM
from nemesis.sim.jobs.rings import Pattern
from nemesis.sim.jobs.table import COUNTERPARTS, MESSAGES, ProgramTable, at_positions

Flags = NDArray[np.bool_]
Use = tuple[Kind, Pattern]
NEVER_NS: Final = 2**62
WHOLE_KINDS: Final[frozenset[Kind]] = frozenset({"tp", "cp", "pp", "mp", "ep"})
"""Groups that hold parts of one model: without one member nothing of the rest is of use."""


class Broken(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with ranks and with what lies between them; arrays over ranks."""

    member: Flags
    """Whether the rank belongs to the epoch; who does not is not waited for."""
    stopped_ns: Ranks
    """When its GPU stopped; NEVER_NS: it works."""
    halted_ns: Ranks
    """When its host enqueued the last time."""
    strays_ns: Ranks
    """From when on its next collective is not that of the others."""
    inverts: Flags
    """Whether it strays by calling two groups in the opposite order, where that is felt."""
    cut: dict[Use, Flags]
    """What is crossed by something cut, by row of groups, of exchanges by rank (Network)."""


class Standing(msgspec.Struct, frozen=True):
    """How far every rank came; matrices have a row a position in the program, a column a rank."""

    arrived_ns: Ranks
    """When its GPU came to the operation; NEVER_NS: it did not."""
    done_ns: Ranks
    """When the operation completed there; NEVER_NS: it did not."""
    host_last: Ranks
    """By rank: the last position that its host enqueued before it stopped; NEVER_NS: it works."""
    strays: Flags
    """By rank: whether the operation that it stands at is not what the others call."""

    def position(self, now_ns: int) -> Ranks:
        """By rank: the operation that its GPU is at or computes for, at a time."""
        position: Ranks = (self.done_ns <= now_ns).sum(axis=0)
        return position

    def waiting_since_ns(self) -> Ranks:
        """By rank: when it came to the operation that it does not leave; NEVER_NS: to none."""
        waits = (self.arrived_ns < NEVER_NS) & (self.done_ns == NEVER_NS)
        since_ns: Ranks = np.where(waits, self.arrived_ns, NEVER_NS).min(axis=0)
        return since_ns


class Solver:
    """Lets a step run as far as it goes."""

    def __init__(self, layout: Layout, table: ProgramTable, microbatches: int) -> None:
        self._layout: Final = layout
        self._table: Final = table
        self._invertible: Final = invertible(layout, table)
        # of a step's time the pipeline spends this much filling and draining
        self._scale: Final = (microbatches, microbatches + layout.pp - 1)

    def solve(self, began_ns: Ranks, own_ns: Ranks, broken: Broken, last_ns: int) -> Standing:
        """Where the step stands in the end.

        `began_ns`, `own_ns`: when each rank began the step and how long it computes in it;
        `last_ns`: how long the step's last collective of all takes.
        """
        run = _Run(self._layout, self._table, broken, self._invertible)
        parts, whole = self._scale
        run.start(began_ns, own_ns * parts // whole, last_ns)
        while run.turn():
            pass
        return run.standing()


class _Run:
    """One step under way."""

    def __init__(
        self, layout: Layout, table: ProgramTable, broken: Broken, invertible: Flags
    ) -> None:
        self._layout = layout
        self._table = table
        self._broken = broken
        self._invertible = invertible
        self._stages = layout.stages
        world = layout.world
        self._position = np.zeros(world, np.int64)
        self._limit = np.full(world, NEVER_NS, np.int64)
        self._arrived_ns = np.full(world, NEVER_NS, np.int64)
        self._left_ns = np.zeros(world, np.int64)
        self._came_ns = np.full((table.use.shape[1], world), NEVER_NS, np.int64)
        self._done_ns = np.full((table.use.shape[1], world), NEVER_NS, np.int64)
        messages_count = int(table.messages.max()) + 1
        self._posted_ns = {
            use: np.full((len(MESSAGES), messages_count, world), NEVER_NS, np.int64)
            for use in table.uses
            if use[1] == "exchange"
        }
        self._own_ns = np.zeros(world, np.int64)
        self._last_ns = 0
        self._neighbours = {use: _neighbours(layout, use[0]) for use in self._posted_ns}
        self._strays = np.zeros(world, np.bool_)
        self._ranks = np.arange(world)

    def start(self, began_ns: Ranks, own_ns: Ranks, last_ns: int) -> None:
        self._left_ns = began_ns.copy()
        self._own_ns = own_ns
        self._last_ns = last_ns
        self._move(self._broken.member)

    def turn(self) -> bool:
        """Complete everything that can complete now; whether anything did."""
        done_ns = np.full(self._layout.world, NEVER_NS, np.int64)
        use_at = at_positions(self._table.use, self._stages, self._position)
        here = self._arrived_ns < NEVER_NS
        for index, use in enumerate(self._table.uses):
            at = here & (use_at == index)
            if not at.any():
                continue
            if use in self._neighbours:
                self._exchange(use, at, done_ns)
            else:
                self._collective(use, at, done_ns)
        moved = done_ns < NEVER_NS
        if not moved.any():
            return False
        self._left_ns = np.where(moved, done_ns, self._left_ns)
        self._done_ns[self._position[moved], self._ranks[moved]] = done_ns[moved]
        self._position += moved
        self._arrived_ns[moved] = NEVER_NS
        self._move(moved)
        return True

    def standing(self) -> Standing:
        return Standing(self._came_ns, self._done_ns, self._limit, self._strays)

    def _move(self, moved: Flags) -> None:
        """Let those who left an operation compute, and arrive at the next one."""
        share_ppm = at_positions(self._table.share_ppm, self._stages, self._position)
        arrives_ns = self._left_ns + self._own_ns * share_ppm // PPM
        halted = moved & (arrives_ns >= self._broken.halted_ns) & (self._limit == NEVER_NS)
        limit = at_positions(self._table.host_limit, self._stages, self._position)
        # enqueued while the GPU was still before this operation: up to where the host waited
        began = self._left_ns >= self._broken.halted_ns
        before = at_positions(
            self._table.host_limit, self._stages, np.maximum(self._position - 1, 0)
        )
        before = np.where(self._position == 0, -1, before)
        self._limit = np.where(halted, np.where(began, before, limit), self._limit)
        comes = (
            moved
            & (arrives_ns < self._broken.stopped_ns)
            & (self._position <= self._limit)
            & (self._position < self._table.lengths[self._stages])
        )
        self._arrived_ns = np.where(comes, arrives_ns, self._arrived_ns)
        self._came_ns[self._position[comes], self._ranks[comes]] = arrives_ns[comes]
        use_at = at_positions(self._table.use, self._stages, self._position)
        exchanges = np.zeros(self._layout.world, np.bool_)
        for use, posted_ns in self._posted_ns.items():
            here = comes & (use_at == self._table.uses.index(use))
            exchanges |= here
            for message in range(len(MESSAGES)):
                number = self._table.messages[message, self._stages, self._position]
                posts = here & (number > 0)
                posted_ns[message, number[posts], self._ranks[posts]] = arrives_ns[posts]
        may = ~self._broken.inverts | self._invertible[self._stages, self._position]
        self._strays |= comes & ~exchanges & may & (arrives_ns >= self._broken.strays_ns)

    def _collective(self, use: Use, at: Flags, done_ns: Ranks) -> None:
        kind = use[0]
        members = self._layout.members[kind]
        member = self._broken.member[members]
        needed = np.ones_like(member) if kind in WHOLE_KINDS else member
        arrived = at[members] & ~self._strays[members]
        complete = (arrived | ~needed).all(axis=1) & at[members].any(axis=1)
        complete &= ~self._broken.cut[use]
        if not complete.any():
            return
        rows = members[complete]
        times_ns = np.where(needed[complete], self._arrived_ns[rows], 0).max(axis=1)
        times_ns = times_ns + (self._last_ns if kind == "world" else 0)
        # a GPU that stops while its kernel runs takes the others' kernels with it
        stops_ns = np.where(needed[complete], self._broken.stopped_ns[rows], NEVER_NS).min(axis=1)
        goes = times_ns < stops_ns
        rows, member, times_ns = rows[goes], member[complete][goes], times_ns[goes]
        done_ns[rows[member]] = np.broadcast_to(times_ns[:, None], rows.shape)[member]

    def _exchange(self, use: Use, at: Flags, done_ns: Ranks) -> None:
        """Each message needs the neighbour that posts its other end, and a way there."""
        following, preceding = self._neighbours[use]
        cut_next = self._broken.cut[use]
        ready_ns = self._arrived_ns.copy()
        for message, name in enumerate(MESSAGES):
            number = self._table.messages[message, self._stages, self._position]
            peer = following if name.endswith("next") else preceding
            cut = cut_next if name.endswith("next") else cut_next[preceding]
            other_ns = self._posted_ns[use][COUNTERPARTS[message], number, peer]
            other_ns = np.where(cut, NEVER_NS, other_ns)
            ready_ns = np.where(number > 0, np.maximum(ready_ns, other_ns), ready_ns)
        ready_ns = np.where(ready_ns < self._broken.stopped_ns, ready_ns, NEVER_NS)
        done_ns[at] = ready_ns[at]


def _neighbours(layout: Layout, kind: Kind) -> tuple[Ranks, Ranks]:
    members = layout.members[kind]
    following = np.zeros(layout.world, np.int64)
    preceding = np.zeros(layout.world, np.int64)
    following[members] = np.roll(members, -1, axis=1)
    preceding[members] = np.roll(members, 1, axis=1)
    return following, preceding


def merged(parts: Iterable[tuple[Flags, Standing]], positions_count: int, world: int) -> Standing:
    """Several standings in one, each for the ranks that it is flagged for; the rest got nowhere."""
    shape = (positions_count, world)
    whole = Standing(
        arrived_ns=np.full(shape, NEVER_NS, np.int64),
        done_ns=np.full(shape, NEVER_NS, np.int64),
        host_last=np.full(world, -1, np.int64),
        strays=np.zeros(world, np.bool_),
    )
    for there, part in parts:
        whole.arrived_ns[:, there] = part.arrived_ns[:, there]
        whole.done_ns[:, there] = part.done_ns[:, there]
        whole.host_last[there] = part.host_last[there]
        whole.strays[there] = part.strays[there]
    return whole


def nothing_broken(layout: Layout, table: ProgramTable) -> Broken:
    """Every rank works, and everyone reaches everyone."""
    world = layout.world
    return Broken(
        member=np.ones(world, np.bool_),
        stopped_ns=np.full(world, NEVER_NS, np.int64),
        halted_ns=np.full(world, NEVER_NS, np.int64),
        strays_ns=np.full(world, NEVER_NS, np.int64),
        inverts=np.zeros(world, np.bool_),
        cut={
            (kind, pattern): np.zeros(
                world if pattern == "exchange" else len(layout.members[kind]), np.bool_
            )
            for kind, pattern in table.uses
        },
    )
