"""What logs, settings, counters, trials and steps told of each job, for rules to read together.

Why: one line or one setting seldom proves anything; a limit beside the call that failed for it
does. How: everything is kept by job in bounded maps, the first and the last reading of a counter,
the first lines of each kind and process; rules read it when nothing new has come for a moment.
What belongs to no job (a bundle of one host, a node without one) is read with each.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from nemesis.processors.attribution.findings import Proof
from nemesis.processors.attribution.inventory import Inventory
from nemesis.processors.attribution.log_message import LogMessage
from nemesis.processors.attribution.log_messages import parse_line
from nemesis.schemas.facts import Fact

SECOND_NS: Final = 1_000_000_000
SETTLE_NS: Final = 2 * SECOND_NS  # ranks and hosts tell of one thing within a second or two
WAIT_NS_MAX: Final = 10 * SECOND_NS  # a job that talks without end is judged all the same
FORGET_NS: Final = 600 * SECOND_NS
CLOCK_ERROR_NS: Final = SECOND_NS  # between nodes without a common time server
SAID_MAX: Final = 2048
ALIKE_MAX: Final = 8
"""Lines of one kind and process that are kept: more of the same say no more."""
SETTINGS_MAX: Final = 16_384
COUNTERS_MAX: Final = 65_536
TRIALS_MAX: Final = 4096
STEPS_MAX: Final = 4096
STACKS_MAX: Final = 4096
_OF_FAILURE: Final = frozenset(
    {
        "completion",
        "connect_failed",
        "cuda_error",
        "exception",
        "p2p_disabled",
        "queue_failed",
        "registration_failed",
        "registration_refused",
        "release_mismatch",
        "severe",
        "shm_full",
        "trouble",
    }
)
"""What ranks print of what they were to do and could not."""


class Said(msgspec.Struct, frozen=True, array_like=True):
    """A line of a log and what it says."""

    node: str
    rank: int
    """Of the process that wrote it, else the one that the line names, else -1."""
    at_ns: int
    proof: Proof
    message: LogMessage


class Set(msgspec.Struct, frozen=True, array_like=True):
    """A setting as it was last read."""

    node: str
    component: str
    name: str
    value: str
    proof: Proof


class Counted(msgspec.Struct, frozen=True, array_like=True):
    """A counter: its first and its last reading."""

    node: str
    component: str
    name: str
    first: int
    last: int
    proof: Proof
    """Of the last reading."""
    readings: int = 1


class Tried(msgspec.Struct, frozen=True, array_like=True):
    """A trial."""

    trial: str
    outcome: str
    components: tuple[str, ...]
    settings: tuple[tuple[str, str], ...]
    rate_kbps: int
    proof: Proof
    size_bytes: int = 0
    says: str = ""
    duration_ns: int = 0


class Paced(msgspec.Struct, frozen=True, array_like=True):
    """How long one step of the whole job took."""

    step: int
    step_ns: int
    data_ns: int
    """-1 where it is not told."""
    proof: Proof


class Stacked(msgspec.Struct, frozen=True, array_like=True):
    """Where one thread of a process was."""

    node: str
    rank: int
    pid: int
    thread: str
    frames: tuple[str, ...]
    proof: Proof


class JobReports(msgspec.Struct):
    """What was told of one job."""

    said: list[Said] = []
    alike: dict[str, int] = {}
    """Lines kept, by kind, node and rank."""
    settings: dict[str, Set] = {}
    counters: dict[str, Counted] = {}
    trials: list[Tried] = []
    paces: list[Paced] = []
    stacks: list[Stacked] = []
    changed_ns: int = 0
    judged: bool = True
    since_ns: int = 0
    """Log time of the first news that was not judged."""


class Told(msgspec.Struct, frozen=True):
    """Everything that may concern one job, as rules read it."""

    job: str
    said: list[Said]
    settings: list[Set]
    counters: list[Counted]
    trials: list[Tried]
    paces: list[Paced]
    stacks: list[Stacked]

    def of(self, *kinds: str) -> list[Said]:
        """Lines of these kinds, in the order in which they came."""
        return [each for each in self.said if each.message.kind in kinds]


class Reports(msgspec.Struct):
    """What was told of all jobs, "" for what belongs to none."""

    jobs: dict[str, JobReports] = {}

    def take(self, fact: Fact, inventory: Inventory) -> None:
        """Take up a fact of one of these kinds."""
        data = fact.data
        job = getattr(data, "job", "") or _job_on(fact.key, inventory)
        reports = self.jobs.setdefault(job, JobReports())
        taken = False
        match fact.kind:
            case "log":
                taken = _take_line(reports, fact)
            case "setting":
                taken = _take_setting(reports, fact)
            case "counters":
                taken = _take_counters(reports, fact)
            case "trial":
                taken = _take_trial(reports, fact)
            case "stack":
                taken = _take_stack(reports, fact)
            case "step_times":
                taken = _take_pace(reports, fact)
        if taken:
            reports.since_ns = fact.log_time_ns if reports.judged else reports.since_ns
            reports.changed_ns, reports.judged = fact.log_time_ns, False

    def ripe(self, now_ns: int) -> Iterator[Told]:
        """What is new and has settled, job by job; what belongs to none stands beside each."""
        news = [each for each in self.jobs.values() if not each.judged]
        if not news or any(
            now_ns - each.changed_ns < SETTLE_NS and now_ns - each.since_ns < WAIT_NS_MAX
            for each in news
        ):
            return
        common = self.jobs.get("", JobReports())
        named = [job for job in self.jobs if job]
        for job in named or [""]:
            own = self.jobs.get(job, common)
            if own.judged and common.judged:
                continue
            parts = [own] if own is common else [own, common]
            yield Told(
                job=job or "job",
                said=[each for part in parts for each in part.said],
                settings=[each for part in parts for each in part.settings.values()],
                counters=[each for part in parts for each in part.counters.values()],
                trials=[each for part in parts for each in part.trials],
                paces=[each for part in parts for each in part.paces],
                stacks=[each for part in parts for each in part.stacks],
            )
        for each in news:
            each.judged = True

    def said_of(self, job: str) -> list[Said]:
        """Lines of a job."""
        reports = self.jobs.get(job)
        return reports.said if reports is not None else []

    def tell_of_failure(self, job: str, node: str, name: str, since_ns: int) -> bool:
        """Whether ranks of a node, or any with words about a setting, said since then that
        something failed; by their clocks."""
        return any(
            each.at_ns >= since_ns - CLOCK_ERROR_NS
            and each.message.kind in _OF_FAILURE
            and (each.node == node or name in each.message.what.lower())
            for each in self.said_of(job)
        )

    def forget(self, now_ns: int) -> None:
        """Drop what nobody has added to for long."""
        old = [job for job, each in self.jobs.items() if now_ns - each.changed_ns > FORGET_NS]
        for job in old:
            del self.jobs[job]

    def resume(self, job: str) -> None:
        """The job goes on after a recovery: what ranks said before is over, settings are not."""
        reports = self.jobs.get(job)
        if job and reports is not None:
            reports.said, reports.alike, reports.stacks = [], {}, []

    def end(self, job: str) -> None:
        """The job is over."""
        if job:
            self.jobs.pop(job, None)


def _job_on(node: str, inventory: Inventory) -> str:
    seats = inventory.seats_on(node)
    return seats[0].job if seats else ""


def _take_line(reports: JobReports, fact: Fact) -> bool:
    data = fact.data
    message = parse_line(data.source, data.text)
    if message is None or len(reports.said) >= SAID_MAX:
        return False
    rank = data.rank if data.rank >= 0 else message.rank
    key = f"{message.kind} {fact.key} {rank} {message.device}"
    count = reports.alike.get(key, 0)
    if count >= ALIKE_MAX:
        return False
    reports.alike[key] = count + 1
    proof = Proof(fact.id, fact.seq, "", data.text)
    reports.said.append(Said(fact.key, rank, fact.at_ns, proof, message))
    return True


def _take_setting(reports: JobReports, fact: Fact) -> bool:
    data = fact.data
    key = f"{data.component} {data.name}"
    if key not in reports.settings and len(reports.settings) >= SETTINGS_MAX:
        return False
    proof = Proof(fact.id, fact.seq, "")
    reports.settings[key] = Set(fact.key, data.component, data.name, data.value, proof)
    return True


def _take_counters(reports: JobReports, fact: Fact) -> bool:
    data = fact.data
    taken = False
    for name, value in data.counters:
        key = f"{data.component} {name}"
        known = reports.counters.get(key)
        if known is None and len(reports.counters) >= COUNTERS_MAX:
            continue
        proof = Proof(fact.id, fact.seq, "")
        first, readings = (known.first, known.readings + 1) if known else (value, 1)
        if known and value < known.last:
            first, readings = value, 1  # it was reset in between
        reports.counters[key] = Counted(
            fact.key, data.component, name, first, value, proof, readings
        )
        taken = True
    return taken


def _take_trial(reports: JobReports, fact: Fact) -> bool:
    data = fact.data
    if len(reports.trials) >= TRIALS_MAX:
        return False
    reports.trials.append(
        Tried(
            data.trial,
            data.outcome,
            tuple(sorted(data.components)),
            data.settings,
            data.rate_kbps,
            Proof(fact.id, fact.seq, ""),
            data.size_bytes,
            data.says,
            data.duration_ns,
        )
    )
    return True


def _take_pace(reports: JobReports, fact: Fact) -> bool:
    data = fact.data
    if len(data.step_ns) != 1 or len(reports.paces) >= STEPS_MAX:
        return False  # several ranks side by side are compared elsewhere
    data_ns = data.data_ns[0] if data.data_ns else -1
    proof = Proof(fact.id, fact.seq, "")
    reports.paces.append(Paced(data.step, data.step_ns[0], data_ns, proof))
    return True


def _take_stack(reports: JobReports, fact: Fact) -> bool:
    data = fact.data
    if len(reports.stacks) >= STACKS_MAX or not data.frames:
        return False
    proof = Proof(fact.id, fact.seq, "")
    reports.stacks.append(
        Stacked(fact.key, data.rank, data.pid, data.thread, data.frames[:16], proof)
    )
    return True
