"""Who starts now, in which order, and what is kept for whom.

Order: higher priority first; of one priority the team that had less of what its share gives; then
who came first. From the top, jobs start as long as each finds a place. The first one that does not
gets a reservation: the moment by which jobs that run now will have made room for it, if they end as
they said, and the nodes that it then takes. Whoever stands behind may start before it on what the
reservation leaves, or anywhere if it ends in time (EASY backfill: Lifka 1995, Mu'alem and Feitelson
2001): so nobody who is let through delays the head.

A gang starts whole or not at all, for a place is a whole one or none.
"""

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from nemesis.processors.parallelism.case import Case
from nemesis.processors.parallelism.rules import RULES
from nemesis.processors.placement.ground import Placement
from nemesis.processors.scheduler.admission import Admission, admit
from nemesis.processors.scheduler.following import Broken, followed
from nemesis.processors.scheduler.placing import Place, placed
from nemesis.processors.scheduler.settings import SECOND_NS, Settings
from nemesis.processors.scheduler.state import State, Waiting, team_of
from nemesis.processors.topology.pool import Pool
from nemesis.schemas.scheduled import JobFinding

LOOK_MAX: Final = 64
"""Jobs from the top that are looked at in one go; Slurm's bf_max_job_test is 500."""
BY_SIZE: Final = frozenset(rule.code for rule in RULES if rule.by_size)
"""Rules of the checker that ask how much there is: more of it may come."""


class Ground(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to be had."""

    whole: Pool
    """All nodes, all of them free."""
    barred: Mapping[str, str]
    doubtful: Mapping[str, str]
    taken: Collection[str]

    def free(self, also_taken: Collection[str] = ()) -> Pool:
        """What a job may have."""
        return self.whole.without({*self.barred, *self.doubtful, *self.taken, *also_taken})

    def spares(self, also_taken: Collection[str] = ()) -> Pool:
        """What may be a spare."""
        return self.whole.without({*self.barred, *self.taken, *also_taken})


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """A job that gets nodes now."""

    name: str
    place: Place
    backfilled: bool
    case: Case


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept for the first job that finds no place."""

    name: str
    start_ns: int
    """Log time by which the nodes are free, as jobs that run say."""
    nodes: frozenset[str]
    waits_for: tuple[str, ...]
    """Jobs that have to end."""


class Delay(msgspec.Struct, frozen=True, kw_only=True):
    """A job that waits."""

    name: str
    position: int
    admission: Admission
    reservation: Reservation | None
    """Its own, or that of the job which it may not delay."""
    for_advice: bool = False
    """It has a place, which is kept for it."""


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """A job that could be judged only now, and can never run."""

    name: str
    findings: tuple[JobFinding, ...]


Outcome = Start | Delay | Refusal
NOTHING_PROPOSED: Final[Mapping[str, Placement]] = {}


def ordered(state: State, settings: Settings) -> list[str]:
    """Who waits, the first to start first."""

    def key(name: str) -> tuple[int, int, tuple[int, int]]:
        waiting = state.queue[name]
        team = team_of(waiting.job)
        had = state.had_s.get(team, 0) * 1_000_000 // settings.shares.get(team, 1)
        return -waiting.job.priority, had, waiting.turn

    return sorted(state.queue, key=key)


def ground_of(state: State, whole: Pool) -> Ground:
    """What there is to be had now; `whole`: all nodes that told what they are made of."""
    return Ground(
        whole=whole,
        barred=state.health.barred(),
        doubtful=state.health.doubtful(),
        taken=state.taken(),
    )


def decide(
    state: State,
    settings: Settings,
    ground: Ground,
    now_ns: int,
    proposals: Mapping[str, Placement] = NOTHING_PROPOSED,
) -> list[Outcome]:
    """What becomes of each job from the top of the queue; proposals are taken where they hold."""
    deciding = _Deciding(state, settings, ground, now_ns, proposals)
    names = ordered(state, settings)[:LOOK_MAX]
    return [deciding.look(name, position) for position, name in enumerate(names)]


def kept_before(
    state: State, settings: Settings, ground: Ground, now_ns: int, job: str
) -> Mapping[str, str]:
    """By node that a job may not take, the one before it that gets it now or later."""
    deciding = _Deciding(state, settings, ground, now_ns, NOTHING_PROPOSED)
    names = ordered(state, settings)
    for position, name in enumerate(names[: min(names.index(job), LOOK_MAX)]):
        deciding.look(name, position)
    return deciding.kept()


class _Deciding:
    """One pass over the queue."""

    def __init__(
        self,
        state: State,
        settings: Settings,
        ground: Ground,
        now_ns: int,
        proposals: Mapping[str, Placement],
    ) -> None:
        self._state, self._settings, self._now_ns = state, settings, now_ns
        self._ground, self._proposals = ground, proposals
        self._given: dict[str, str] = {}
        """By node, the job that gets it."""
        self._ends = sorted(
            (job.ends_ns(settings, now_ns), name, job.nodes) for name, job in state.running.items()
        )
        self._reservation: Reservation | None = None
        self._free = ground.free()

    def kept(self) -> Mapping[str, str]:
        """By node, the job that gets it now or for which it is reserved."""
        reserved = self._reservation
        return {**(dict.fromkeys(reserved.nodes, reserved.name) if reserved else {}), **self._given}

    def look(self, name: str, position: int) -> Outcome:
        """What becomes of the next job."""
        waiting = self._state.queue[name]
        admission = admit(waiting.job, self._free if self._known else None)
        final = {finding.code for finding in admission.findings} - BY_SIZE
        if admission.outcome == "rejected" and final:
            return Refusal(name=name, findings=admission.findings)
        held: Sequence[Collection[str]] = ((),)
        if self._known and admission.outcome != "accepted":
            held = ()  # not even on all that is free
        elif self._reservation is not None:
            held = (self._reservation.nodes, ())[: 2 if self._in_time(waiting) else 1]
        for kept in held:
            found = self._start(waiting, kept)
            if found is not None:
                case, place = found
                nodes = (*place.nodes, *place.spares)
                self._given.update(dict.fromkeys(nodes, name))
                self._free = self._free.without(nodes)
                if advice_left_ns(waiting, self._settings, self._now_ns):
                    return Delay(
                        name=name,
                        position=position,
                        admission=admission,
                        reservation=self._reservation,
                        for_advice=True,
                    )
                self._ends = sorted([*self._ends, (self._end_ns(waiting), name, nodes)])
                backfilled = self._reservation is not None
                return Start(name=name, place=place, backfilled=backfilled, case=case)
        if self._reservation is None:
            self._reservation = self._reserve(name, waiting)
        return Delay(
            name=name, position=position, admission=admission, reservation=self._reservation
        )

    @property
    def _known(self) -> bool:
        return bool(self._ground.whole.nodes)

    def _end_ns(self, waiting: Waiting) -> int:
        return self._now_ns + self._settings.runs_ns(waiting.job.runtime_ns)

    def _in_time(self, waiting: Waiting) -> bool:
        assert self._reservation is not None
        return self._end_ns(waiting) <= self._reservation.start_ns

    def _start(self, waiting: Waiting, kept: Collection[str]) -> tuple[Case, Place] | None:
        if not self._known:
            return None
        taken = {*self._given, *kept}
        proposed = self._proposals.get(waiting.job.job, ())
        found = fit(self._state, self._ground, waiting, taken, self._now_ns, proposed=proposed)
        return (found.case, found.place) if found else None

    def _reserve(self, name: str, waiting: Waiting) -> Reservation | None:
        """The first moment at which it finds a place; None: not even with all jobs over."""
        if not self._known:
            return None
        ends = self._ends
        places: dict[int, Place | None] = {}
        quick = replace(waiting, job=replace(waiting.job, model={}))

        def fits(ended: int) -> bool:
            free = replace(self._ground, taken=())
            taken = {node for _, _, nodes in ends[ended:] for node in nodes}
            at_ns = ends[ended - 1][0]
            found = fitted(self._state, free, quick, taken, at_ns)
            places[ended] = found[1] if found else None
            return found is not None

        counts = range(1, len(ends) + 1)
        at = bisect_left(counts, True, key=fits)
        if at == len(counts):
            return None
        ended = counts[at]
        place = places[ended] if ended in places or fits(ended) else None
        assert place is not None, "the last one tried on this side fits"
        nodes = frozenset((*place.nodes, *place.spares))
        return Reservation(
            name=name,
            start_ns=ends[ended - 1][0],
            nodes=nodes,
            waits_for=tuple(each for _, each, own in ends[:ended] if not nodes.isdisjoint(own)),
        )


def advice_left_ns(waiting: Waiting, settings: Settings, now_ns: int) -> int:
    """How long a job that has a place is still held back for advice."""
    if not settings.follow_advice or waiting.advised.advice:
        return 0
    return max(0, waiting.since_ns + settings.advice_wait_ns - now_ns)


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """A place for a job."""

    case: Case
    place: Place
    broken: Broken | None = None
    """Why it is not the one that was advised."""


def fit(
    state: State,
    ground: Ground,
    waiting: Waiting,
    taken: Collection[str],
    now_ns: int,
    *,
    proposed: Placement = (),
) -> Fit | None:
    """A place for a job on what is free besides these nodes, on the first kind that has one.

    The one that was advised, where it holds; else the `proposed` one, where it holds on the first
    kind; else the rules' own.
    """
    admission = admit(waiting.job, ground.free(taken))
    if admission.outcome != "accepted":
        return None
    waited_s = max(0, now_ns - waiting.since_ns) // SECOND_NS
    told, advised = state.told.nodes, waiting.advised
    for case in admission.cases:
        assert case.pool is not None
        kind = case.pool
        if case.spec.spares or advised.nodes or advised.spares:
            kind = ground.spares(taken).only(set(case.pool.nodes))
        own = placed(case, spare_pool=kind, told=told, waited_s=waited_s)
        broken: Broken | None = None
        if own is not None and (advised.nodes or advised.spares):
            came = followed(case, own, advised, spare_pool=kind, told=told, waited_s=waited_s)
            if not isinstance(came, Broken):
                return Fit(case=case, place=came)
            broken = came
        if proposed:
            solved = placed(
                case,
                spare_pool=kind,
                told=told,
                waited_s=waited_s,
                proposed=("solver", proposed),
            )
            own, proposed = solved or own, ()
        if own is not None:
            return Fit(case=case, place=own, broken=broken)
    return None


def fitted(
    state: State, ground: Ground, waiting: Waiting, taken: Collection[str], now_ns: int
) -> tuple[Case, Place] | None:
    """As `fit`, without why."""
    found = fit(state, ground, waiting, taken, now_ns)
    return (found.case, found.place) if found else None
