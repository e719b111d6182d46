"""Who looks on during a run: reads the log as any reader may, and sees when it is over."""

import asyncio
from collections.abc import Callable
from typing import Final

from nemesis.schemas.decided import RecoveryDecided
from nemesis.schemas.done import AttemptCompleted
from nemesis.schemas.errors import MalformedFactError, UnknownFactError
from nemesis.schemas.facts import Fact, Record, decode_conclusion, split_subject
from nemesis.sim.clock import SimClock
from nemesis.sim.ledger import FaultInjected, MembershipFormed
from nemesis.sim.show import Line, Show
from nemesis.sim.simulation import Simulation
from nemesis.streams.log import Log

Truth = FaultInjected | MembershipFormed
Emit = Callable[[list[Line]], None]

EVENTS_SUBJECT: Final = "nemesis.events.>"
SETTLE_NS: Final = 3_000_000_000  # simulated: a few steps of the new epoch, a last revision
PATIENCE_NS: Final = 45_000_000_000  # simulated, real where time passes faster: NEMESIS is real
WAITING_NS: Final = 10_000_000_000  # simulated or real as PATIENCE_NS: what waiting costs is said
BEHIND_NS: Final = 1_000_000_000  # simulated; at real speed it is NEMESIS that is slow
TICK_NS: Final = 1_000_000_000
LOOK_S: Final = 0.05


class Watcher:
    """Shows what happens and keeps it for the score."""

    def __init__(
        self, show: Show, clock: SimClock, emit: Emit, on_look: Callable[[str], None]
    ) -> None:
        """`emit` gets lines; `on_look` a few words on how the job stands, many times a second."""
        self.facts: Final[list[Fact]] = []
        self.truths: Final[list[Truth]] = []
        self.is_behind = False
        """Simulated time jumped by more than a second: times are those of this machine."""
        self._show: Final = show
        self._clock: Final = clock
        self._emit: Final = emit
        self._on_look: Final = on_look
        self._decided_ns: Final[dict[str, int]] = {}

    def on_truth(self, entry: Truth) -> None:
        """The ledger has a new entry."""
        self.truths.append(entry)
        self._emit(self._show.truth(entry))

    def on_behind(self) -> None:
        """The machine does not keep up with simulated time; said once."""
        if not self.is_behind:
            self.is_behind = True
            self._emit(self._show.too_slow(self._clock.speed))

    async def follow(self, log: Log) -> None:
        """Read the events of the log as they come, for ever."""
        async for record in log.follow(1, subject=EVENTS_SUBJECT):
            fact = fact_of(record, self._clock.at_ns(record.stored_ns))
            if fact is not None:
                self.facts.append(fact)
                if self._clock.speed > 1 and fact.cause and lag_ns(fact) > BEHIND_NS:
                    self.on_behind()
                self._emit(self._show.fact(fact, measured_ms=self._measured_ms(fact, record)))

    async def until_over(self, simulation: Simulation, *, duration_ns: int = 0) -> None:
        """Wait until the job goes on after the last fault, or does not for PATIENCE_NS.

        `duration_ns`: wait for exactly so long instead.
        """
        faults = simulation.faults
        last_onset_ns = max((fault.onset_ns for fault in faults), default=0)
        wait_ns = round(WAITING_NS * max(1.0, self._clock.speed))
        say_ns = last_onset_ns + wait_ns
        while True:
            passed_ns = self._clock.now_ns() - self._clock.start_ns
            self._on_look(_standing(simulation, passed_ns))
            resumed_ns = self._resumed_ns(last_onset_ns, len(faults))
            if duration_ns:
                over_ns = duration_ns
            elif resumed_ns is not None:
                over_ns = resumed_ns + SETTLE_NS
            else:
                over_ns = last_onset_ns + round(PATIENCE_NS * max(1.0, self._clock.speed))
            if passed_ns >= over_ns:
                return
            if faults and resumed_ns is None and passed_ns >= say_ns:
                say_ns += wait_ns
                self._emit(self._show.waiting(self._clock.now_ns()))
            await asyncio.sleep(LOOK_S)

    def _resumed_ns(self, onset_ns: int, faults_count: int) -> int | None:
        """When, from the start, the job went on after the last fault; None: not yet."""
        injected = [each for each in self.truths if isinstance(each, FaultInjected)]
        if len(injected) < faults_count:
            return None
        for each in self.truths:
            since_ns = each.at_ns - self._clock.start_ns
            if isinstance(each, MembershipFormed) and each.epoch > 0 and since_ns > onset_ns:
                return since_ns
        return None

    def _measured_ms(self, fact: Fact, record: Record) -> int | None:
        """Wall-clock time between a decision and its effect, as the server stored them."""
        if isinstance(fact.data, RecoveryDecided):
            self._decided_ns[fact.data.decision] = record.stored_ns
        elif isinstance(fact.data, AttemptCompleted):
            decided_ns = self._decided_ns.get(fact.data.decision)
            if decided_ns is not None:
                return (record.stored_ns - decided_ns) // 1_000_000
        return None


def fact_of(record: Record, at_ns: int) -> Fact | None:
    """The event in a record, seen at `at_ns`; None where it is of a release that is not ours."""
    _, token, key = split_subject(record.subject)
    try:
        event, data = decode_conclusion(token, record.payload)
    except (MalformedFactError, UnknownFactError):
        return None
    return Fact(
        seq=record.seq,
        kind=token,
        key=key,
        id=event.id,
        at_ns=at_ns,
        log_time_ns=data.at_ns,
        late=False,
        data=data,
        job=event.job,
        cause=event.causes,
    )


def lag_ns(fact: Fact) -> int:
    """How much later it was stored than the last tick before its input, and another tick."""
    return fact.at_ns - fact.log_time_ns - TICK_NS


def _standing(simulation: Simulation, passed_ns: int) -> str:
    stages = [rank.stage for rank in simulation.job.ranks.values()]
    counts = ", ".join(
        f"{stages.count(stage)} {stage}" for stage in sorted(set(stages), key=stages.count)[::-1]
    )
    second = passed_ns // 1_000_000_000
    return f"{second // 60:02d}:{second % 60:02d}  step {simulation.job.step}: {counts}"
