"""Everything that can happen to a few ranks, their plans and their groups: an explicit search.

A world is what the ranks think (training/membership.py, the real code), who is dead, which plans
were made, and how far each group has got. From each world all possible next ones follow: a rank
goes into a collective, its result reaches one rank, a peer's death is noticed or not, a plan comes,
late, again, or overtaken by a later one, a process is killed, a hung one is fenced or outlives its
fencing, a link breaks for nobody's fault, two plans claim one epoch. A rank that is not moved is a
rank that stalls, so stalls of any length are among them.

Makers of plans are as the healer and its actor are: a failed member, or one that gave up its group,
leads to a hold; once everybody who lives is held, a membership follows of those who are.
"""

from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from nemesis.training.membership import Deed, Member, Order, State


class Budget(NamedTuple):
    """How much may go wrong in one run, and how far it goes."""

    steps: int = 2
    """Ranks that have applied so many begin no further one."""
    kills: int = 1
    predictions: int = 0
    """Plans to leave somebody out at a boundary."""
    suspicions: int = 0
    """Live ranks that are taken for hung."""
    zombies: int = 0
    """Of those, such that survive their fencing."""
    breaks: int = 0
    """Links that break although nobody failed."""
    rivals: int = 0
    """Second plans for an epoch that has one."""
    plans: int = 12


BROKEN: Final = "is without its group"

History = tuple[tuple[int, int], ...]
"""Of each applied step: in which epoch, and which of its reductions."""


class Rank(NamedTuple):
    """One process."""

    member: Member
    history: History = ()
    lives: bool = True
    arrived: tuple[int, int] | None = None
    """(epoch, round) of the reduction that it is in."""
    rounds: int = 0
    """Reductions of its group that it has come out of."""
    joined: int = -1
    """The epoch whose forming it takes part in."""
    copies_from: int = -1
    """Whose state it is taking."""
    keeps: int = -1
    """The epoch that it left at a boundary, with its connections open."""


class Group(NamedTuple):
    """What an epoch's store and group know."""

    epoch: int
    members: tuple[int, ...]
    joined: tuple[tuple[int, State, History], ...] = ()
    """(rank, its state, its history) of who came, ascending."""
    rounds: tuple[tuple[tuple[int, int, History], ...], ...] = ()
    """Of each reduction: (rank, its number, its history) of who is in it, ascending."""


class World(NamedTuple):
    """One moment."""

    ranks: tuple[Rank, ...]
    orders: tuple[Order, ...]
    groups: tuple[Group, ...]
    left: Budget

    @property
    def membership(self) -> Order:
        """The latest."""
        return max((o for o in self.orders if o.kind == "membership"), key=lambda o: o.place)

    @property
    def latest(self) -> Order:
        """The latest plan."""
        return max(self.orders, key=lambda o: o.place)


class Explored(NamedTuple):
    """A whole search."""

    worlds_count: int
    ends_count: int
    breaks_count: int
    """Ways in which somebody's group broke."""
    alone_count: int
    """Ways in which a rank was lost with a step that it alone had applied."""


class BrokenPromiseError(Exception):
    """A world that must not be; carries how it came about."""


def begin(ranks: int, budget: Budget) -> World:
    """All ranks form the first group."""
    everybody = tuple(range(ranks))
    first = Order(0, "membership", everybody)
    return World(
        tuple(Rank(Member(r, everybody, order=first)) for r in everybody), (first,), (), budget
    )


def explore(start: World) -> Explored:
    """Visit every world that can follow.

    Raises:
        BrokenPromiseError: one that must not be, or one from which no good end can be reached.
    """
    came_from: dict[World, tuple[World | None, str]] = {start: (None, "begin")}
    before: dict[World, list[World]] = {}
    ends: list[World] = []
    waiting = deque([start])
    breaks_count = alone_count = 0
    while waiting:
        world = waiting.popleft()
        is_end = True
        for what, after in map(_tidied, follows(world)):
            is_end = False
            breaks_count += what.endswith(BROKEN)
            alone_count += _is_lost_alone(world, after)
            before.setdefault(after, []).append(world)
            # of two groups that claim one epoch the later state counts, and the other's steps go
            if not start.left.rivals and (wrong := undone(world, after)):
                raise BrokenPromiseError(f"{wrong}: {told(world, came_from)}; {what}")
            if after not in came_from:
                came_from[after] = (world, what)
                if wrong := violation(after):
                    raise BrokenPromiseError(f"{wrong}: {told(after, came_from)}")
                waiting.append(after)
        if is_end:
            if not is_good(world):
                raise BrokenPromiseError(f"stuck: {told(world, came_from)}")
            ends.append(world)
    _expect_reachable(ends, before, came_from)
    return Explored(len(came_from), len(ends), breaks_count, alone_count)


def _tidied(step: tuple[str, World]) -> tuple[str, World]:
    """Without what cannot matter any more, so that equal futures are one world."""
    what, world = step
    ranks = tuple(
        rank if rank.lives else Rank(Member(at, (), stage="left"), lives=False)
        for at, rank in enumerate(world.ranks)
    )
    going = [rank for rank in ranks if rank.member.stage != "left"]
    heard = min((rank.member.order.place for rank in going if rank.member.order), default=0)
    epoch = min((rank.member.epoch for rank in going), default=0)
    orders = (o for o in world.orders if o.place > heard or o in (world.membership, world.latest))
    groups = tuple(_emptied(group, going) for group in world.groups if group.epoch >= epoch)
    return what, world._replace(ranks=ranks, groups=groups, orders=tuple(orders))


def _emptied(group: Group, going: list[Rank]) -> Group:
    """Without who took part in reductions whose results are with everybody."""
    inside = [rank for rank in going if rank.member.epoch == group.epoch]
    waiting = [rank for rank in inside if rank.member.stage == "training"]
    if len(waiting) < len(inside) or not waiting:
        return group
    over = min(rank.rounds for rank in waiting)
    return group._replace(rounds=((),) * over + group.rounds[over:])


def _expect_reachable(
    ends: list[World],
    before: dict[World, list[World]],
    came_from: dict[World, tuple[World | None, str]],
) -> None:
    good = set(ends)
    waiting = list(ends)
    while waiting:
        for world in before.get(waiting.pop(), ()):
            if world not in good:
                good.add(world)
                waiting.append(world)
    for world in came_from:
        if world not in good:
            raise BrokenPromiseError(f"never ends: {told(world, came_from)}")


def told(world: World, came_from: dict[World, tuple[World | None, str]]) -> str:
    """How a world came about, as a sentence a step."""
    steps: list[str] = []
    at: World | None = world
    while at is not None:
        at, what = came_from[at]
        steps.append(what)
    return "; ".join(reversed(steps))


def violation(world: World) -> str:
    """What of the promises a world breaks, or nothing."""
    for group in world.groups:
        for arrivals in group.rounds:
            if len({history for _, _, history in arrivals}) > 1:
                return f"states are mixed in epoch {group.epoch}"
            if not {rank for rank, _, _ in arrivals} <= set(group.members):
                return f"a stranger in epoch {group.epoch}"
    by_epoch: dict[int, list[History]] = {}
    for rank in world.ranks:
        if rank.lives and rank.member.stage == "training":
            if rank.member.state.steps_count != len(rank.history):
                return f"rank {rank.member.rank} has not the steps that it says"
            by_epoch.setdefault(rank.member.epoch, []).append(rank.history)
    for epoch, histories in by_epoch.items():
        longest = max(histories, key=len)
        if any(h != longest and h != longest[:-1] for h in histories):
            return f"epoch {epoch} trains on different states"
    return ""


def undone(world: World, after: World) -> str:
    """Who lives on without a step that he had applied, or nothing."""
    for rank, later in zip(world.ranks, after.ranks, strict=True):
        is_kept = later.history[: len(rank.history)] == rank.history
        if later.lives and not is_kept:
            return f"a step of rank {rank.member.rank} is undone"
    return ""


def _is_lost_alone(world: World, after: World) -> bool:
    return any(
        rank.lives
        and not later.lives
        and all(len(other.history) < len(rank.history) for other in after.ranks if other.lives)
        for rank, later in zip(world.ranks, after.ranks, strict=True)
    )


def is_good(world: World) -> bool:
    """An end that is one: all members that live train on, with one state."""
    members = [world.ranks[each] for each in _alive(world, world.membership)]
    return (
        all(
            rank.member.stage == "training" and rank.member.epoch == world.membership.epoch
            for rank in members
        )
        and len({rank.history for rank in members}) <= 1
    )


def follows(world: World) -> Iterator[tuple[str, World]]:
    """Everything that can happen next."""
    for number, rank in enumerate(world.ranks):
        if rank.lives:
            yield from _told_plans(world, number)
            match rank.member.stage:
                case "forming":
                    yield from _forming(world, number)
                case "training":
                    yield from _training(world, number)
                case "held" | "left":
                    pass
    yield from _misfortunes(world)
    yield from _plans(world)


def _told_plans(world: World, number: int) -> Iterator[tuple[str, World]]:
    for order in world.orders:
        member, deed = world.ranks[number].member.heard(order)
        if member != world.ranks[number].member:
            what = f"{number} hears {order.kind} {order.epoch}"
            yield what, _changed(world, number, member, deed)


def _changed(world: World, number: int, member: Member, deed: Deed) -> World:
    """A rank's own view has changed, and what it has to do is done."""
    rank = world.ranks[number]
    if deed in ("give_up", "form", "leave"):
        rank = rank._replace(arrived=None, joined=-1, copies_from=-1, rounds=0)
    return _put(world, number, rank._replace(member=member))


def _put(world: World, number: int, rank: Rank) -> World:
    ranks = list(world.ranks)
    ranks[number] = rank
    return world._replace(ranks=tuple(ranks))


def _group(world: World, epoch: int) -> Group | None:
    return next((group for group in world.groups if group.epoch == epoch), None)


def _with_group(world: World, group: Group) -> World:
    others = (each for each in world.groups if each.epoch != group.epoch)
    return world._replace(groups=tuple(sorted((*others, group))))


def _gone(world: World, group: Group) -> bool:
    """Whether a member of a group is dead or has given it up; one may still be on its way to it."""
    return any(
        not rank.lives
        or (rank.member.stage == "left" and rank.keeps != group.epoch)
        or (rank.member.epoch > group.epoch and rank.keeps != group.epoch)
        or (rank.member.epoch == group.epoch and rank.member.stage == "held")
        for rank in (world.ranks[each] for each in group.members)
    )


def _forming(world: World, number: int) -> Iterator[tuple[str, World]]:
    rank = world.ranks[number]
    member = rank.member
    group = _group(world, member.epoch) or Group(member.epoch, member.members)
    if rank.joined != member.epoch:
        if group.members != member.members:  # the store has the epoch as somebody else's
            yield f"{number} is refused", _changed(world, number, *member.broken(member.epoch))
            return
        came = (*group.joined, (number, member.state, rank.history))
        joined = _with_group(world, group._replace(joined=tuple(sorted(came))))
        yield (
            f"{number} joins {member.epoch}",
            _put(joined, number, rank._replace(joined=member.epoch)),
        )
        return
    if _gone(world, group):  # a deadline passes, or a connection ends
        yield f"{number} {BROKEN}", _changed(world, number, *member.broken(member.epoch))
    if len(group.joined) < len(group.members):
        return
    states = {each: state for each, state, _ in group.joined}
    latest = max(states.values())
    if rank.copies_from < 0:
        source = member.source(member.epoch, states)
        if source == number:
            formed, _ = member.formed(member.epoch, latest)
            yield f"{number} formed", _put(world, number, rank._replace(member=formed, rounds=0))
        else:
            copies = rank._replace(copies_from=source)
            yield f"{number} copies from {source}", _put(world, number, copies)
        return
    source_rank = world.ranks[rank.copies_from]
    if source_rank.lives and (source_rank.member.epoch, source_rank.member.stage) in (
        (member.epoch, "forming"),
        (member.epoch, "training"),
    ):
        history = next(h for each, _, h in group.joined if each == rank.copies_from)
        copied = rank._replace(member=member.has(latest), history=history, copies_from=-1)
        yield f"{number} has copied", _put(world, number, copied)


def _training(world: World, number: int) -> Iterator[tuple[str, World]]:
    rank = world.ranks[number]
    member = rank.member
    group = _group(world, member.epoch)
    assert group is not None
    if rank.arrived is None:
        if member.state.steps_count >= world.left.steps and member.waiting:
            return  # enough seen; only a boundary that everybody waits for is still to come
        entry = (number, member.waiting, rank.history)
        rounds = list(group.rounds)
        if rank.rounds == len(rounds):
            rounds.append(())
        rounds[rank.rounds] = tuple(sorted((*rounds[rank.rounds], entry)))
        arrived = rank._replace(arrived=(member.epoch, rank.rounds))
        yield (
            f"{number} reduces",
            _put(_with_group(world, group._replace(rounds=tuple(rounds))), number, arrived),
        )
        return
    arrivals = group.rounds[rank.arrived[1]]
    if len(arrivals) == len(group.members):
        after, deed = member.reduced(member.epoch, sum(waiting for _, waiting, _ in arrivals))
        applied = rank._replace(
            history=(*rank.history, rank.arrived),
            arrived=None,
            rounds=rank.rounds + 1,
            keeps=-1 if deed == "apply" else member.epoch,
        )
        plain: Deed = "form" if deed == "apply_and_form" else "none"
        if deed == "apply_and_leave":
            plain = "leave"
        yield f"{number} applies", _changed(_put(world, number, applied), number, after, plain)
    if _gone(world, group):
        yield f"{number} {BROKEN}", _changed(world, number, *member.broken(member.epoch))


def _misfortunes(world: World) -> Iterator[tuple[str, World]]:
    left = world.left
    for number, rank in enumerate(world.ranks):
        if not rank.lives:
            continue
        if left.kills:
            dead = _put(world, number, rank._replace(lives=False))
            yield f"{number} is killed", dead._replace(left=left._replace(kills=left.kills - 1))
        if left.breaks and rank.member.stage in ("training", "forming"):
            broken = _changed(world, number, *rank.member.broken(rank.member.epoch))
            yield (
                f"{number}'s links break",
                broken._replace(left=left._replace(breaks=left.breaks - 1)),
            )


def _plans(world: World) -> Iterator[tuple[str, World]]:
    left = world.left
    if not left.plans:
        return
    latest, last = world.membership, world.latest
    alive = _alive(world, latest)
    if last.kind == "hold":
        yield from _after_hold(world, last)
        return
    failed = len(alive) < len(latest.members) or any(
        (member := world.ranks[each].member).stage == "held"
        and member.order is not None
        and member.order.place >= latest.place
        for each in alive
    )
    if failed:
        yield f"hold {latest.epoch}", _ordered(world, Order(latest.epoch, "hold"))
        return
    for each in alive:
        if left.suspicions and len(alive) > 1:
            spent = left._replace(suspicions=left.suspicions - 1)
            hold = _ordered(world._replace(left=spent), Order(latest.epoch, "hold"))
            rank = world.ranks[each]
            yield f"{each} is fenced", _put(hold, each, rank._replace(lives=False))
        if left.predictions and len(alive) > 1:
            spent = left._replace(predictions=left.predictions - 1)
            members = tuple(other for other in latest.members if other != each)
            order = Order(latest.epoch + 1, "membership", members, at_boundary=True)
            yield f"{each} is to leave", _ordered(world._replace(left=spent), order)
        if left.rivals and each != alive[0] and latest.epoch:
            spent = left._replace(rivals=left.rivals - 1)
            members = tuple(other for other in latest.members if other != each)
            rival = msgspec.structs.replace(latest, members=members)
            yield f"a rival without {each}", _ordered(world._replace(left=spent), rival)


def _alive(world: World, order: Order) -> list[int]:
    ranks = ((each, world.ranks[each]) for each in order.members)
    return [each for each, rank in ranks if rank.lives and rank.member.stage != "left"]


def _after_hold(world: World, hold: Order) -> Iterator[tuple[str, World]]:
    """Once everybody who lives is held: those go on, and perhaps a zombie is left out."""
    alive = _alive(world, world.membership)
    settled = all(
        world.ranks[each].member.stage == "held"
        and (order := world.ranks[each].member.order) is not None
        and order.place >= hold.place
        for each in alive
    )
    if settled and alive:
        order = Order(hold.epoch + 1, "membership", tuple(alive))
        yield f"membership {order.epoch} of {alive}", _ordered(world, order)
    for each in alive:
        rest = [other for other in alive if other != each]
        held = all(world.ranks[other].member.stage == "held" for other in rest)
        if world.left.zombies and rest and held:  # it does not answer, and could not be killed
            left = world.left._replace(zombies=world.left.zombies - 1)
            order = Order(hold.epoch + 1, "membership", tuple(rest))
            yield f"membership without zombie {each}", _ordered(world._replace(left=left), order)


def _ordered(world: World, order: Order) -> World:
    left = world.left._replace(plans=world.left.plans - 1)
    return world._replace(orders=(*world.orders, order), left=left)
