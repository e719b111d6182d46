"""What is remembered of one incident, and of all: names first, because facts come with names."""

from bisect import bisect_right
from typing import Final, Literal

import msgspec

from nemesis.processors.attribution.inventory import Inventory
from nemesis.schemas.codes import Action, FaultClass
from nemesis.schemas.decided import Mode
from nemesis.schemas.inferred import RiskBand

NAMES_MAX: Final = 64  # culprits, victims, jobs, members: more than anybody reads
CLOSED_MAX: Final = 512  # closed incidents that a late fact can still open again
TICKS_MAX: Final = 300  # evidence that is older than five minutes began "before that"

Standing = Literal["", "completed", "failed", "withheld", "vetoed", "expired"]


class Decided(msgspec.Struct, array_like=True):
    """A decision of the incident."""

    action: Action
    mode: Mode
    regroups: bool
    """It makes a new membership."""
    deadline_ns: int
    ended: bool = False
    """What became of it is known."""

    def is_pending(self, now_ns: int) -> bool:
        """Whether something may still come of it."""
        return self.mode != "shadow" and not self.ended and now_ns <= self.deadline_ns


class Case(msgspec.Struct, kw_only=True):
    """One incident."""

    id: str
    began_ns: int
    changed_ns: int
    """Log time of its latest fact."""
    last_seq: int
    """That fact."""
    closed: bool = False
    revision: int = 0
    """How often it was closed."""
    root: str = ""
    """The attribution's name of the verdict that counts."""
    verdict: str = ""
    fault_class: FaultClass = "unknown"
    culprits: list[str] = []
    victims: list[str] = []
    component: str = ""
    """What was predicted to fail."""
    band: RiskBand = "clear"
    jobs: list[str] = []
    members: list[str] = []
    decisions: dict[str, Decided] = {}
    standing: Standing = ""
    """What became of the latest decision."""
    resuming: list[str] = []
    """Jobs whose steps are waited for."""

    def take_jobs(self, *jobs: str) -> None:
        """Jobs that it is about."""
        self.jobs += [job for job in jobs if job and job not in self.jobs]
        del self.jobs[NAMES_MAX:]


class Cases(msgspec.Struct):
    """Everything."""

    by_id: dict[str, Case] = {}
    """Open ones and the closed ones that are remembered, in the order of their opening."""
    names: dict[str, str] = {}
    """Any other name, of an incident, a decision or a cited fact -> the incident."""
    inventory: Inventory = msgspec.field(default_factory=Inventory)
    tick_ns: int = 0
    tick_seqs: list[int] = []
    tick_times_ns: list[int] = []

    def open_ones(self) -> list[Case]:
        """Those that are not over, the oldest first."""
        return [case for case in self.by_id.values() if not case.closed]

    def named(self, name: str) -> Case | None:
        """The incident that goes by this name."""
        return self.by_id.get(self.names.get(name, name))

    def alias(self, name: str, case: Case) -> None:
        """Let a name stand for an incident; the first one that took it keeps it."""
        if name != case.id and name not in self.by_id:
            self.names.setdefault(name, case.id)

    def absorb(self, case: Case, other: Case) -> None:
        """What belonged to the other belongs to this one from now on."""
        del self.by_id[other.id]
        for name, id in self.names.items():
            if id == other.id:
                self.names[name] = case.id
        self.names[other.id] = case.id
        case.decisions.update(other.decisions)
        case.began_ns = min(case.began_ns, other.began_ns)
        case.take_jobs(*other.jobs)
        case.members += [name for name in other.members if name not in case.members]
        case.resuming += [job for job in other.resuming if job not in case.resuming]
        case.standing = case.standing or other.standing

    def forget(self) -> None:
        """Drop the oldest closed ones above the limit, with their names."""
        closed = [case.id for case in self.by_id.values() if case.closed]
        for id in closed[: max(0, len(closed) - CLOSED_MAX)]:
            del self.by_id[id]
        if len(closed) > CLOSED_MAX:
            self.names = {name: id for name, id in self.names.items() if id in self.by_id}

    def tick(self, seq: int, now_ns: int, leap_ns_min: int) -> None:
        """Log time goes on; a leap is no quiet: the log was away, nothing could come meanwhile."""
        leap_ns = now_ns - self.tick_ns if self.tick_ns else 0
        if leap_ns > leap_ns_min:
            for case in self.open_ones():
                case.changed_ns += leap_ns
        self.tick_ns = now_ns
        self.tick_seqs.append(seq)
        self.tick_times_ns.append(now_ns)
        if len(self.tick_seqs) > TICKS_MAX:
            del self.tick_seqs[0], self.tick_times_ns[0]

    def log_time_at(self, seq: int) -> int:
        """Log time at a sequence, that of the first tick remembered where it is older."""
        at = bisect_right(self.tick_seqs, seq)
        return self.tick_times_ns[max(0, at - 1)] if self.tick_times_ns else 0
