"""What the scheduler knows: who waits, who runs where, what teams had, what nodes are like."""

from functools import cached_property
from typing import Final

import msgspec

from nemesis.processors.scheduler.health import Health
from nemesis.processors.scheduler.settings import SECOND_NS, Settings
from nemesis.processors.topology.told import Told
from nemesis.schemas.node_ranges import parse_nodes
from nemesis.schemas.operated import JobSubmitted
from nemesis.schemas.scheduled import JobFinding, PlacementProposed

QUEUE_MAX: Final = 1000
"""Jobs that wait at a time; one more is refused."""
TEAMS_MAX: Final = 1000
DECISIONS_MAX: Final = 256


class Advised(msgspec.Struct, array_like=True, frozen=True):
    """What was taken of advice on a job that waits: wishes that hold as long as rules allow."""

    advice: str = ""
    """The newest; "": nobody has advised on it."""
    seq: int = 0
    """Of that fact."""
    nodes: tuple[str, ...] = ()
    """Where it is to go rather than where the rules would put it; (): nobody says."""
    spares: tuple[str, ...] = ()
    turn: int = 0
    """It stands where the fact of this sequence put another job; 0: where its own did."""


class Waiting(msgspec.Struct, array_like=True):
    """A job without a place."""

    job: JobSubmitted
    seq: int
    """Of the fact that put it here."""
    since_ns: int
    said: tuple[str, tuple[str, ...]] = ("", ())
    """Why it waits, as it was last said: code, and what blocks it."""
    said_ns: int = 0
    advised: Advised = Advised()

    @property
    def turn(self) -> tuple[int, int]:
        """Its place among jobs that are otherwise equal; of one place the last that was moved."""
        moved = self.advised.turn
        return (moved, -self.advised.seq) if moved else (self.seq, 0)


class Running(msgspec.Struct, array_like=True, dict=True):
    """A job with nodes; nobody else gets them, nor its spares."""

    job: JobSubmitted
    """As it runs."""
    submitted: JobSubmitted
    """As it was submitted."""
    since_ns: int
    left: tuple[str, ...] = ()
    """Nodes that a recovery took it off."""

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """All that it has."""
        names = (*self.job.node_names, *parse_nodes(self.job.spares))
        return tuple(name for name in names if name not in self.left)

    @property
    def team(self) -> str:
        """Whose share it takes."""
        return team_of(self.submitted)

    def ends_ns(self, settings: Settings, now_ns: int) -> int:
        """Log time at which it is taken to be over: what runs longer than said may end any time."""
        runtime_ns = settings.runs_ns(self.submitted.runtime_ns)
        return max(self.since_ns + runtime_ns, now_ns + SECOND_NS)


class Asked(msgspec.Struct, array_like=True):
    """A solver was asked."""

    request: str
    deadline_ns: int
    proposed: PlacementProposed | None = None
    """Its answer, once it is there."""

    def is_open(self, now_ns: int) -> bool:
        """An answer may come still."""
        return self.proposed is None and now_ns < self.deadline_ns


class State(msgspec.Struct, array_like=True):
    """Everything."""

    told: Told = msgspec.field(default_factory=Told)
    health: Health = msgspec.field(default_factory=Health)
    queue: dict[str, Waiting] = {}
    running: dict[str, Running] = {}
    had_s: dict[str, int] = {}
    """By team: node-seconds that it had, older ones counted less."""
    counted_ns: int = 0
    """Until when `had_s` is counted."""
    halved_ns: int = 0
    unread: tuple[str, ...] = ()
    """Jobs of whom we said something that we have not read back."""
    changed: bool = False
    """Something may start that could not before."""
    decided: dict[str, tuple[str, ...]] = {}
    """By decision on a recovery that is not done yet: nodes that its job leaves."""
    asked: Asked | None = None
    asked_count: int = 0
    """How often a solver was asked."""
    settled_ns: int = 0
    """Log time from which on what is there counts as known."""
    wake_ns: int = 0
    """Log time at which that is so without news; 0: never."""

    def taken(self) -> set[str]:
        """Nodes that jobs have."""
        return {node for job in self.running.values() for node in job.nodes}

    def count(self, now_ns: int, half_life_ns: int) -> None:
        """Count what teams had until now."""
        elapsed_s = (now_ns - self.counted_ns) // SECOND_NS
        if not self.counted_ns or elapsed_s < 0:
            self.counted_ns = self.halved_ns = now_ns
            return
        self.counted_ns += elapsed_s * SECOND_NS
        for job in self.running.values():
            self.had_s[job.team] = self.had_s.get(job.team, 0) + elapsed_s * len(job.nodes)
        while now_ns - self.halved_ns >= half_life_ns:
            self.halved_ns += half_life_ns
            self.had_s = {team: half for team, had in self.had_s.items() if (half := had // 2)}
        while len(self.had_s) > TEAMS_MAX:
            del self.had_s[min(self.had_s, key=lambda team: (self.had_s[team], team))]


def team_of(job: JobSubmitted) -> str:
    """Whose share a job takes."""
    return job.team or job.by


def unqueueable(state: State, job: JobSubmitted) -> tuple[JobFinding, ...]:
    """What is wrong with a submission that has nothing to do with its description."""
    if job.job in state.running:
        return (JobFinding(code="NAME", text=f"a job of the name {job.job[:60]} has nodes"),)
    if job.job not in state.queue and len(state.queue) >= QUEUE_MAX:
        return (JobFinding(code="QUEUE", text=f"{QUEUE_MAX} jobs wait already"),)
    return ()
