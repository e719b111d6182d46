"""A log with one healer: facts go in by helpers, what it says is written back.

After each fact the healer is put away and a new one takes up its state: whatever a test promises
holds for a healer that is restarted all the time.
"""

from typing import Any, TypeVar

import msgspec

from nemesis.processors.emission import Emission
from nemesis.processors.fold import Fold, Input
from nemesis.processors.healer.healer import Healer
from nemesis.schemas.decided import (
    QuiesceDecided,
    RecoveryDecided,
)
from nemesis.schemas.done import (
    AttemptCompleted,
    AttemptStarted,
)
from nemesis.schemas.facts import (
    Record,
    decode_conclusion,
    encode_conclusion,
    encode_observation,
    telemetry_subject,
)
from nemesis.schemas.inferred import Culprit, FailurePredicted, FaultAttributed, RiskBand
from nemesis.schemas.observed import ClockTicked, GroupBroken, Observation, ProcessExited, RankReady
from nemesis.schemas.operated import (
    JobSubmitted,
    PolicyApplied,
    ProcessorActivated,
)

SECOND_NS = 1_000_000_000
START_NS = 1_700_000_000 * SECOND_NS
ACT = {"mode": "act"}
S = TypeVar("S")


class Cell:
    """A log with one healer; what it says is written back at once, or when `flush` is called."""

    def __init__(
        self,
        *,
        policy: dict[str, Any] | None = None,
        at_once: bool = True,
        active: bool = True,
    ) -> None:
        self.fold = Fold(Healer())
        self.records: list[Record] = []
        self.said: list[Any] = []
        self.emissions: list[Emission] = []
        self.at_once = at_once
        self.held_back: list[tuple[str, bytes]] = []
        self.now_ns = START_NS
        self.numbers: dict[tuple[str, str], int] = {}
        if active:
            self.operate(ProcessorActivated, "healer", name="healer", version=1)
        if policy is not None:
            self.apply(policy)
        self.tick(0)

    def put(self, subject: str, payload: bytes) -> int:
        record = Record(len(self.records) + 1, subject, 0, payload)
        self.records.append(record)
        emissions = self.fold.step(Input(record))
        self._restart()
        for emission in emissions:
            self.emissions.append(emission)
            token = emission.subject.split(".")[2]
            self.said.append(decode_conclusion(token, emission.payload)[1])
            self.held_back.append((emission.subject, emission.payload))
        if self.at_once:
            self.flush()
        return record.seq

    def _restart(self) -> None:
        state = self.fold.snapshot()
        self.fold = Fold(Healer())
        self.fold.restore(state)
        assert self.fold.snapshot() == state

    def flush(self) -> None:
        while self.held_back:
            subject, payload = self.held_back.pop(0)
            self.put(subject, payload)

    def event(self, data: msgspec.Struct, key: str, job: str = "") -> int:
        subject, payload = encode_conclusion(
            id=f"test/{len(self.records)}",
            source="/test",
            at_ns=self.now_ns,
            data=data,
            key=key,
            job=job,
        )
        return self.put(subject, payload)

    def observe(self, kind: str, data: Observation) -> int:
        return self.put(telemetry_subject(data.node, kind), encode_observation(data))

    def causes(self) -> tuple[int, ...]:
        """Which facts the newest conclusion cites."""
        emission = self.emissions[-1]
        return decode_conclusion(emission.subject.split(".")[2], emission.payload)[0].causes

    def operate(self, struct: type[msgspec.Struct], key: str, **fields: Any) -> int:
        return self.event(struct(at_ns=self.now_ns, by="ann", reason="", **fields), key)

    def number(self, node: str, kind: str) -> int:
        self.numbers[node, kind] = self.numbers.get((node, kind), 0) + 1
        return self.numbers[node, kind]

    def tick(self, seconds: int = 1) -> None:
        """One tick a second, as a ticker writes them."""
        for _ in range(max(1, seconds)):
            self.now_ns += SECOND_NS
            data = ClockTicked(
                node="clock", start_ns=1, n=self.number("clock", "tick"), at_ns=self.now_ns
            )
            self.observe("tick", data)

    def leap(self, seconds: int) -> None:
        """One tick, so long after the last: the log was away."""
        self.now_ns += (seconds - 1) * SECOND_NS
        self.tick()

    def apply(self, policy: dict[str, Any]) -> int:
        return self.operate(
            PolicyApplied, "policy", policy=msgspec.Raw(msgspec.json.encode(policy))
        )

    def submit(self, **fields: Any) -> int:
        """By default four nodes of two ranks, pure data parallel."""
        fields = {"nodes": ("n0", "n1", "n2", "n3"), "ranks_per_node": 2} | fields
        self.submitted_seq = self.operate(JobSubmitted, "llama", job="llama", **fields)
        return self.submitted_seq

    def exit(self, rank: int, *, node: str = "n1", late_ns: int = 0, **fields: Any) -> int:
        fields = {"exit_code": 1} | fields
        data = ProcessExited(
            node=node,
            start_ns=1,
            n=self.number(node, "process"),
            at_ns=self.now_ns - late_ns,
            job="llama",
            rank=rank,
            **fields,
        )
        return self.observe("process", data)

    def ready(self, rank: int, *, node: str = "n1") -> int:
        """A rank that was left out has a process that waits."""
        data = RankReady(
            node=node,
            start_ns=1,
            n=self.number(node, "rank_ready"),
            at_ns=self.now_ns,
            job="llama",
            rank=rank,
        )
        return self.observe("rank_ready", data)

    def lose_group(self, epoch: int = 0, *, node: str = "n1", late_ns: int = 0) -> int:
        """Ranks of a node gave up their group, and nobody said why."""
        data = GroupBroken(
            node=node,
            start_ns=1,
            n=self.number(node, "group_broken"),
            at_ns=self.now_ns - late_ns,
            job="llama",
            epoch=epoch,
        )
        return self.observe("group_broken", data)

    def blame(self, fault_class: str, *ranks: int, node: str = "n1", **fields: Any) -> int:
        """A verdict on a GPU of the node, or on a program where no node is given."""
        culprit = (
            Culprit(kind="gpu", id=f"gpu/{node}/0000:1b:00.0")
            if node
            else Culprit(kind="program", id="program/llama")
        )
        base: dict[str, Any] = {
            "incident": "i-1",
            "revision": 0,
            "verdict": "attributed",
            "culprits": (culprit,),
            "jobs": ("llama",),
        }
        data = FaultAttributed(
            at_ns=self.now_ns,
            reason="",
            fault_class=fault_class,  # type: ignore[arg-type]
            ranks=ranks,
            **(base | fields),
        )
        return self.event(data, "i-1")

    def predict(self, band: RiskBand, *ranks: int, node: str = "n1", **fields: Any) -> int:
        """A GPU of the node is likely to fail, or no longer."""
        component = f"gpu/{node}/0000:1b:00.0"
        base: dict[str, Any] = {"incident": "p-1", "jobs": ("llama",), "component": component}
        data = FailurePredicted(
            at_ns=self.now_ns,
            reason="",
            fault_class="gpu.memory",
            band=band,
            ranks=ranks,
            **(base | fields),
        )
        return self.event(data, node)

    def attempt(self, struct: type[Any], decision: str, **fields: Any) -> int:
        base = {"decision": decision, "actor": "a", "job": "llama"}
        data = struct(at_ns=self.now_ns, reason="", **(base | fields))
        return self.event(data, decision, data.job)

    def carry_out(self) -> None:
        """Start and complete the newest decision."""
        decision = self.last(QuiesceDecided, RecoveryDecided).decision
        deadline_ns = self.now_ns + 30 * SECOND_NS
        self.attempt(AttemptStarted, decision, deadline_ns=deadline_ns)
        self.attempt(AttemptCompleted, decision)

    def all(self, *structs: type[S]) -> list[Any]:
        return [data for data in self.said if isinstance(data, structs)]

    def last(self, *structs: type[Any]) -> Any:
        found = self.all(*structs)
        assert found, f"nothing of {[each.__name__ for each in structs]} was said"
        return found[-1]

    @property
    def kinds(self) -> list[str]:
        return [type(data).__name__ for data in self.said]
