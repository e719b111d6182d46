"""What the healer remembers: one record a job, counted limits, and what people forbade.

Everything is a list, a tuple or a dict in a stated order, so that equal states have equal bytes.
"""

from collections.abc import Callable, Collection
from functools import lru_cache
from typing import Any, Final, Literal

import msgspec

from nemesis.processors.healer.ladder import JobView
from nemesis.processors.healer.replicas import world_of
from nemesis.schemas.codes import Action, FaultClass, Signature
from nemesis.schemas.decided import Mode
from nemesis.schemas.done import Attempt, AttemptCompleted, AttemptFailed
from nemesis.schemas.errors import BadNameError
from nemesis.schemas.facts import Fact
from nemesis.schemas.inferred import FaultAttributed
from nemesis.schemas.observed import ProcessExited
from nemesis.schemas.operated import JobEnded, JobSubmitted
from nemesis.schemas.plans import Placement
from nemesis.schemas.policy import PREDICTED_WORTH, Policy
from nemesis.schemas.rank_ranges import RANKS_MAX, format_ranks, parse_ranks
from nemesis.schemas.scheduled import JobPlaced, begun

CAUSES_MAX: Final = 32  # sequences that a decision cites; the first ones say why it was opened
VERDICTS_MAX: Final = 16  # incidents that a job can have open at one time
SETTLED_MAX: Final = 64  # incidents of a job whose repetitions are recognised
PARTS_MAX: Final = 1024  # incidents without a job whose repetitions are recognised
TICK_NS: Final = 1_000_000_000  # tickers tick each second
LEAP_NS_MIN: Final = 3 * TICK_NS  # more than a lost tick or two: the log was away
ENDED_MAX: Final = 4096  # ended jobs whose decisions' numbers go on if the name comes back

Phase = Literal["running", "holding", "recovering", "waiting"]
"""holding: something is wrong, cause and extent are awaited; recovering: a new membership was
decided and is carried out; waiting: a person must act."""


class Verdict(msgspec.Struct, array_like=True, frozen=True):
    """What the healer keeps of a fault_attributed."""

    incident: str
    revision: int
    known: bool
    """attributed or class-only: it says what is wrong."""
    fault_class: FaultClass
    signature: Signature
    target: str
    ranks: tuple[int, ...]
    bad_nodes: tuple[str, ...]
    seq: int
    predicted: str = ""
    """The playbook of a failure that has not come yet: its ranks live."""
    chance_ppm: int = 0
    """Of that failure, where its playbook is that of costs."""

    @property
    def by_cost(self) -> bool:
        """Whether only costs speak for an answer."""
        return self.predicted == PREDICTED_WORTH


class Pending(msgspec.Struct, array_like=True):
    """A decision that lies in the log, is not void, and has no outcome yet."""

    decision: str
    action: Action
    mode: Mode
    epoch: int
    deadline_ns: int
    members: str
    removed: tuple[int, ...]
    started: str
    joined: tuple[str, ...]
    placements: tuple[Placement, ...]
    claim_deadline_ns: int = 0
    """0: nobody has claimed it."""
    approved: bool = False
    """A person let it go ahead."""
    nodes_out: tuple[str, ...] = ()
    by_cost: bool = False
    """It makes way for whatever is more than a forecast that is worth its costs."""

    def touches(self, nodes: Collection[str]) -> bool:
        """Whether it takes one of these nodes out or lets it join: no actor would begin with it."""
        return not {*self.nodes_out, *self.joined}.isdisjoint(nodes)

    def replaced(self) -> frozenset[int]:
        """Ranks whose processes the plan ends."""
        return ranks_of(self.started) | frozenset(self.removed)


class JobState(msgspec.Struct, array_like=True):
    """One job."""

    submitted: JobSubmitted
    count: int
    """Decisions so far, for their names."""
    members: str
    revision: int = 0
    """Sequence of its submission, later of the last decided or done fact about it."""
    phase: Phase = "running"
    epoch: int = 0
    epoch_planned: int = 0
    """The highest epoch that an effective decision gave."""
    moved: tuple[Placement, ...] = ()
    spares: tuple[str, ...] = ()
    exited: tuple[int, ...] = ()
    silent: tuple[int, ...] = ()
    answered: tuple[int, ...] = ()
    """Dead ranks that a shadow decision has answered: they open no other."""
    verdicts: list[Verdict] = []
    incident: str = ""
    """Named by the verdict, or by the fact that opened it."""
    opened_ns: int = 0
    cause: tuple[int, ...] = ()
    unread: str = ""
    """A decision of ours that we have not read back."""
    hold: str = ""
    """The hold in force that is to be waited for."""
    holds: bool = False
    """An effective hold was decided and not lifted."""
    hold_deadline_ns: int = 0
    pending: Pending | None = None
    failed: tuple[Action, ...] = ()
    """Rungs tried for what is open now."""
    withheld_for: str = ""
    """In waiting: the limit that stands in the way."""
    settled: dict[str, tuple[int, int]] = {}
    """Per incident: revision and rung that it was answered with."""
    shrunk_ns: tuple[int, ...] = ()
    recovered_ns: tuple[int, ...] = ()
    vetoed: tuple[Action, ...] = ()
    """Rungs that a person forbade for what is open now."""
    tripped: tuple[str, ...] = ()
    """Limits on this job that were reached and not reset."""
    ahead: dict[int, int] = {}
    """Exited ranks whose process was in an epoch that the log has not told of yet: which."""
    broken: bool = False
    """Ranks gave up their group by themselves, and were not answered."""
    ready: tuple[int, ...] = ()
    """Ranks that are no members and have a process that waits to be one."""
    unattached: bool = False
    """None of its ranks has ever called the hook, as the attempt on what is open now saw."""
    step: int = -1
    """At which it was held; -1: it was not, or nobody knows."""
    saved: tuple[int, str] = (-1, "")
    """(step, path) of its latest checkpoint; -1: none was told of."""

    @property
    def is_open(self) -> bool:
        """Whether something may follow without news of it."""
        known = self.exited or self.silent or self.verdicts or self.broken or self.ready
        return self.phase != "running" or bool(known)

    def take_losses(self, attempt: Attempt) -> frozenset[int]:
        """Members that an attempt saw to have ended, to be stopped, or on a silent node."""
        members = ranks_of(self.members)
        lost, silent = members & ranks_of(attempt.lost), members & ranks_of(attempt.silent)
        if isinstance(attempt, AttemptCompleted):
            lost |= members & ranks_of(attempt.stopped)
        if isinstance(attempt, AttemptCompleted | AttemptFailed):
            self.unattached = bool(attempt.unattached)
        if isinstance(attempt, AttemptCompleted) and not attempt.unattached:
            self.step = attempt.step
        self.exited = tuple(sorted({*self.exited, *lost}))
        self.silent = tuple(sorted({*self.silent, *silent}))
        return lost | silent

    def view(self, spares: tuple[str, ...] = ()) -> JobView:
        """The job as the ladder sees it, with the spares that it may use."""
        return JobView(
            submitted=self.submitted,
            members=ranks_of(self.members),
            moved={
                rank: placement.node
                for placement in self.moved
                for rank in ranks_of(placement.ranks)
            },
            spares=spares,
            unattached=self.unattached,
        )


class HealerState(msgspec.Struct, array_like=True):
    """Everything."""

    policy: Policy
    jobs: dict[str, JobState] = {}
    ended: dict[str, int] = {}
    """Per ended job, how many decisions it had; the latest last."""
    nodes: dict[str, bool] = {}
    """Every node ever named; true: taken out of work."""
    out_ns: tuple[int, ...] = ()
    """When nodes were taken out, within the policy's window."""
    paused: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()
    parts: dict[str, tuple[int, int]] = {}
    """Incidents without a job: revision and rung that it was answered with."""
    part_count: int = 0
    """Decisions without a job so far, for their names."""
    tick_ns: int = 0
    """The last tick."""
    tripped: tuple[str, ...] = ()
    """Limits on all jobs together that were reached and not reset."""
    suspects: dict[str, str] = {}
    """Incident of a failure that is likely -> its node, which is no good spare."""
    doubted: dict[str, str] = {}
    """Incident of a failure that is not, but has a chance -> its node: the last spare to take."""
    moved_ns: tuple[int, ...] = ()
    """When ranks were moved by cost, within the policy's window."""

    def take_job(self, event: JobSubmitted | JobPlaced | JobEnded, seq: int) -> None:
        """A job begins, anew if it was there, or is over; decisions' numbers go on."""
        job = begun(event)
        if job is None and not isinstance(event, JobEnded):
            return
        before = self.jobs.pop(event.job, None)
        count = self.ended.pop(event.job, 0) if before is None else before.count
        if job is not None and world_of(job) <= RANKS_MAX:
            self.jobs[event.job] = submitted_state(job, count, seq)
            self.nodes.update(dict.fromkeys((*job.node_names, *job.spares), False))
            return
        self.ended[event.job] = count
        bounded(self.ended, ENDED_MAX)

    def reconsider(self, stands_in_the_way: Callable[[str], bool]) -> list[str]:
        """Jobs that waited for exactly this."""
        names: list[str] = []
        for name, job in self.jobs.items():
            if job.phase == "waiting" and stands_in_the_way(job.withheld_for):
                job.phase, job.withheld_for = "holding", ""
                names.append(name)
        return names

    def bear_leap(self, now_ns: int) -> None:
        """A leap of log time is no waiting: the log was away, nothing could come meanwhile."""
        leap_ns = now_ns - self.tick_ns if self.tick_ns else 0
        self.tick_ns = now_ns
        if leap_ns > LEAP_NS_MIN:
            for job in self.jobs.values():
                if job.opened_ns:
                    job.opened_ns += leap_ns - TICK_NS


def submitted_state(job: JobSubmitted, count: int, seq: int) -> JobState:
    """A job at its start."""
    return JobState(
        submitted=job,
        count=count,
        revision=seq,
        members=format_ranks(range(world_of(job))),
        spares=job.spares,
    )


def is_history(job: JobState, fact: Fact, exit: ProcessExited) -> bool:
    """Whether the exit comes so late that its process may have been replaced since.

    One that names the epoch that the job is in is dead still, however long the log was away.
    """
    return fact.late and (exit.epoch < 0 or exit.at_ns < job.submitted.at_ns)


def is_elsewhere(job: JobState, exit: ProcessExited) -> bool:
    """Whether the process was on a node where its rank does not lie: one of an earlier life.

    A job that is placed again has its name and its epochs from 0 on, and what ran of it before ends
    when it ends. One of a later epoch may lie where a membership put it that is not read yet.
    """
    home = job.submitted.node_names[exit.rank // job.submitted.ranks_per_node]
    for placement in job.moved:
        if exit.rank in ranks_of(placement.ranks):
            home = placement.node
    coming = job.pending.placements if job.pending is not None else ()
    meant = {each.node for each in coming if exit.rank in ranks_of(each.ranks)}
    return exit.epoch <= job.epoch and exit.node not in {home, *meant}


def note(job: JobState, fact: Fact, incident: str) -> None:
    """Cite the fact in what follows; the first one, or a verdict, names the incident."""
    if len(job.cause) < CAUSES_MAX:
        job.cause = (*job.cause, fact.seq)
    if not job.incident or isinstance(fact.data, FaultAttributed):
        job.incident = incident
    if not job.opened_ns:
        job.opened_ns = max(1, fact.log_time_ns)


@lru_cache(maxsize=256)
def ranks_of(text: str) -> frozenset[int]:
    """The set behind a spelling; one that is none names nobody."""
    try:
        return frozenset(parse_ranks(text))
    except BadNameError:
        return frozenset()


def number_of(decision: str) -> int:
    """The count in a decision's name; 0 where there is none."""
    digits = decision.rpartition("/")[2]
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 19 else 0


def bounded(mapping: dict[str, Any], limit: int) -> None:
    """Forget the oldest entries above the limit."""
    while len(mapping) > limit:
        del mapping[next(iter(mapping))]
