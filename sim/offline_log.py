"""A log in memory with the real processors and the actor on it, in the time of a simulation.

What they say is written at once. Time passes look by look, or in one go where nothing happens but
polls and healthy steps: both give equal logs, as long as no decision falls into such a stretch
(its end is then when it is carried out).
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from nemesis.processors.catalogue import Catalogue
from nemesis.processors.fold import Fold, Input
from nemesis.schemas.done import Attempt
from nemesis.schemas.facts import Fact, Record, encode_conclusion, encode_observation
from nemesis.schemas.observed import Observation
from nemesis.schemas.operated import Operation
from nemesis.sim.events import fact_of
from nemesis.sim.hands import NAME, Hands
from nemesis.sim.operator import messages
from nemesis.sim.simulation import Simulation
from nemesis.sim.told import message_of, told
from nemesis.sim.truth.ledger import FaultInjected, MembershipFormed
from nemesis.streams.ticker import TICK_SUBJECT, tick_of

SECOND_NS: Final = 1_000_000_000


def _nowhere(record: Record) -> None:
    """Where records go that nobody wants."""


class OfflineLog:
    """The log, and who reads it."""

    def __init__(
        self,
        catalogue: Catalogue,
        simulation: Simulation,
        start_ns: int,
        *,
        keep: Callable[[Record], Any] = _nowhere,
    ) -> None:
        """`keep` is given every record."""
        self.now_ns = start_ns
        self._simulation = simulation
        self.facts: Final[list[Fact]] = []
        """Everything in it but telemetry, in its order."""
        self.hands: Final = Hands(simulation, self._write)
        self._start_ns: Final = start_ns
        self._keep: Final = keep
        self._folds: Final = [Fold(versions[max(versions)]()) for versions in catalogue.values()]
        self._readers: Final[dict[str, list[Fold]]] = {}
        self._waiting: Final[deque[tuple[str, bytes]]] = deque()
        self.records_count = 0
        """So many are in it."""
        self._writes_count = 0
        self._stepping = False

    def begin(self, acts: Iterable[tuple[Operation, str]]) -> None:
        """The first tick, and what a person does before."""
        self._tick(self.now_ns)
        self.say(acts)

    def say(self, acts: Iterable[tuple[Operation, str]]) -> None:
        """A person does this now."""
        for subject, payload in messages(acts, self.now_ns):
            self.put(subject, payload)

    def turn_to(self, simulation: Simulation) -> None:
        """From here on another simulation tells what it sees; it begins now."""
        self._simulation = self.hands.simulation = simulation

    def look(self, now_ns: int) -> list[FaultInjected | MembershipFormed]:
        """Let the simulation go on to `now_ns`, read what it tells, act; what the ledger hears."""
        self.now_ns = now_ns
        truths = self._simulation.advance(now_ns, lambda node: True)
        if (now_ns - self._start_ns) % SECOND_NS == 0:
            self._tick(now_ns)
        for observation in told(self._simulation, now_ns):
            self._observe(observation)
        self.hands.act(now_ns)
        return truths

    def pass_calm(self, limit_ns: int, quantum_ns: int) -> bool:
        """Go on as far as `limit_ns` at once, as by looking every `quantum_ns`; False: cannot."""
        if self.hands.is_busy:
            return False
        until_ns = self._simulation.calm_until_ns(limit_ns)
        until_ns -= (until_ns - self._start_ns) % quantum_ns
        if until_ns <= self.now_ns:
            return False
        tick_ns = self.now_ns + SECOND_NS - (self.now_ns - self._start_ns) % SECOND_NS
        for at_ns, observation in self._simulation.pass_calm(until_ns, quantum_ns):
            while tick_ns <= at_ns:
                self._tick(tick_ns)
                tick_ns += SECOND_NS
            self.now_ns = at_ns
            self._observe(observation)
        while tick_ns <= until_ns:
            self._tick(tick_ns)
            tick_ns += SECOND_NS
        self.now_ns = until_ns
        self.hands.act(until_ns)
        return True

    def put(self, subject: str, payload: bytes) -> None:
        """Append a message, and everything that follows from it."""
        self._waiting.append((subject, payload))
        if self._stepping:
            return
        self._stepping = True
        while self._waiting:
            subject, payload = self._waiting.popleft()
            self.records_count += 1
            self._read(Input(Record(self.records_count, subject, self.now_ns, payload)))
        self._stepping = False

    def _read(self, item: Input) -> None:
        self._keep(item.record)
        for fold in self._readers_of(item):
            self._waiting.extend((each.subject, each.payload) for each in fold.step(item))
        if item.token == "processor_activated":
            self._readers.clear()  # what a processor reads may have changed
        if item.space == "events" or item.token == "tick":
            self.hands.take(item)
        fact = fact_of(item.record, self.now_ns) if item.space == "events" else None
        if fact is not None:
            self.facts.append(fact)

    def _readers_of(self, item: Input) -> list[Fold]:
        """Who may be changed by it."""
        token = item.token
        if item.decoded() is None:
            return [fold for fold in self._folds if token in fold.heeds or fold.heeds_malformed]
        readers = self._readers.get(token)
        if readers is None:
            readers = self._readers[token] = [fold for fold in self._folds if token in fold.heeds]
        return readers

    def _tick(self, at_ns: int) -> None:
        self.now_ns = at_ns
        self.put(TICK_SUBJECT, encode_observation(tick_of(at_ns)))

    def _observe(self, observation: Observation) -> None:
        message = message_of(observation)
        self.put(message.subject, message.payload)

    def _write(self, data: Attempt) -> None:
        self._writes_count += 1
        subject, payload = encode_conclusion(
            id=f"{NAME}/{self._writes_count}",
            source="/actors/job",
            at_ns=data.at_ns,
            data=data,
            key=data.decision,
            job=data.job,
        )
        self.put(subject, payload)
