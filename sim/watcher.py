"""Who looks on during a run: reads the log as any reader may, and sees when it is over."""

import asyncio
from collections.abc import Callable
from typing import Final

from nemesis.schemas.decided import RecoveryDecided
from nemesis.schemas.done import AttemptCompleted
from nemesis.schemas.facts import EVENTS_SUBJECT, Fact, Record
from nemesis.sim.clock import SimClock
from nemesis.sim.ending import PATIENCE_NS, Ending
from nemesis.sim.events import fact_of
from nemesis.sim.faults.scenario import Scenario
from nemesis.sim.show import Line, Show
from nemesis.sim.simulation import Simulation
from nemesis.sim.truth.ledger import Truth
from nemesis.streams.log import Log

Emit = Callable[[list[Line]], None]

WAITING_NS: Final = 10_000_000_000  # simulated, real where time passes faster: what waiting costs
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

    async def until_over(
        self,
        simulation: Simulation,
        scenario: Scenario,
        *,
        duration_ns: int = 0,
        patience_ns: int = PATIENCE_NS,
    ) -> None:
        """Wait until everything is answered, or is not within `patience_ns`.

        `duration_ns`: wait for exactly so long instead.
        """
        ending = Ending(
            scenario, simulation.faults, speed=self._clock.speed, patience_ns=patience_ns
        )
        struck_ns = [each.onset_ns for each in simulation.faults if each.stalls]
        wait_ns = round(WAITING_NS * max(1.0, self._clock.speed))
        say_ns = max(struck_ns, default=0) + wait_ns
        while True:
            now_ns = self._clock.now_ns()
            passed_ns = now_ns - self._clock.start_ns
            self._on_look(_standing(simulation, passed_ns))
            standing = simulation.standing()
            if duration_ns:
                is_over = passed_ns >= duration_ns
            else:
                is_over = ending.is_over(passed_ns, self.truths, self.facts, standing)
            if is_over:
                return
            stands = not standing or any(now_ns - each.at_ns > WAITING_NS for each in standing)
            if struck_ns and stands and passed_ns >= say_ns:
                say_ns += wait_ns
                self._emit(self._show.waiting(now_ns))
            await asyncio.sleep(LOOK_S)

    def _measured_ms(self, fact: Fact, record: Record) -> int | None:
        """Wall-clock time between a decision and its effect, as the server stored them."""
        if isinstance(fact.data, RecoveryDecided):
            self._decided_ns[fact.data.decision] = record.stored_ns
        elif isinstance(fact.data, AttemptCompleted):
            decided_ns = self._decided_ns.get(fact.data.decision)
            if decided_ns is not None:
                return (record.stored_ns - decided_ns) // 1_000_000
        return None


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
