"""A log with one healer: facts go in by helpers, what it says is written back."""

from typing import Any, TypeVar

import msgspec

from nemesis.processors.healer.healer import Healer
from nemesis.schemas.decided import (
    QuiesceDecided,
    RecoveryDecided,
)
from nemesis.schemas.done import (
    AttemptCompleted,
    AttemptStarted,
)
from nemesis.schemas.facts import decode_conclusion
from nemesis.schemas.inferred import Culprit, FailurePredicted, FaultAttributed, RiskBand
from nemesis.schemas.observed import GroupBroken, ProcessExited, RankReady
from nemesis.schemas.operated import (
    JobSubmitted,
    PolicyApplied,
    ProcessorActivated,
)
from tests.log_cell import SECOND_NS, LogCell

START_NS = 1_700_000_000 * SECOND_NS
ACT = {"mode": "act"}
S = TypeVar("S")


class Cell(LogCell):
    """A log with one healer."""

    def __init__(
        self,
        *,
        policy: dict[str, Any] | None = None,
        at_once: bool = True,
        active: bool = True,
    ) -> None:
        super().__init__(Healer, start_ns=START_NS, at_once=at_once)
        if active:
            self.operate(ProcessorActivated, "healer", name="healer", version=1)
        if policy is not None:
            self.apply(policy)
        self.tick(0)

    def causes(self) -> tuple[int, ...]:
        """Which facts the newest conclusion cites."""
        emission = self.emissions[-1]
        return decode_conclusion(emission.subject.split(".")[2], emission.payload)[0].causes

    def tick(self, seconds: int = 1) -> None:
        """One tick a second, as a ticker writes them."""
        for _ in range(max(1, seconds)):
            self.tick_after(SECOND_NS)

    def leap(self, seconds: int) -> None:
        """One tick, so long after the last: the log was away."""
        self.tick_after(seconds * SECOND_NS)

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
            **self.stamp(node, "process", late_ns),
            job="llama",
            rank=rank,
            **fields,
        )
        return self.observe("process", data)

    def ready(self, rank: int, *, node: str = "n1") -> int:
        """A rank that was left out has a process that waits."""
        data = RankReady(
            **self.stamp(node, "rank_ready"),
            job="llama",
            rank=rank,
        )
        return self.observe("rank_ready", data)

    def lose_group(self, epoch: int = 0, *, node: str = "n1", late_ns: int = 0) -> int:
        """Ranks of a node gave up their group, and nobody said why."""
        data = GroupBroken(
            **self.stamp(node, "group_broken", late_ns),
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
