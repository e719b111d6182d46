"""Processors for fault tests: each conclusion holds a digest of the state that it came from."""

import os
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import msgspec

from nemesis.processors.catalogue import Catalogue
from nemesis.schemas.facts import Conclusion, Fact
from nemesis.schemas.operated import NoteAdded


class _Settings(msgspec.Struct, frozen=True):
    every: int = 10


class _State(msgspec.Struct, array_like=True):
    digest: bytes = b""
    count: int = 0
    open: dict[str, int] = {}
    hoard: bytes = b""


class _Digesting:
    """State is a digest of everything handed in: a wrong rebuild shows in every conclusion."""

    name = ""
    version = 1
    reads: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.state = _State()
        self.settings = _Settings()

    def configure(self, settings: bytes) -> None:
        self.settings = msgspec.json.decode(settings, type=_Settings)

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self.state)

    def restore(self, snapshot: bytes) -> None:
        self.state = msgspec.msgpack.decode(snapshot, type=_State)

    def step(self, fact: Fact) -> Sequence[Conclusion]:
        state = self.state
        state.count += 1
        what = f"{fact.id} {fact.at_ns} {fact.log_time_ns} {fact.late}".encode()
        state.digest = sha256(state.digest + what).digest()
        return self._conclude(fact)

    def _conclude(self, fact: Fact) -> list[Conclusion]:
        raise AssertionError

    def _note(self, fact: Fact, text: str, *, urgent: bool = False) -> Conclusion:
        note = NoteAdded(
            at_ns=fact.log_time_ns,
            by=f"{self.name}@{self.version}",
            reason=self.state.digest.hex(),
            incident=fact.key,
            text=text,
        )
        return Conclusion(data=note, key=fact.key, cause=(fact.seq,), urgent=urgent)


class Counting(_Digesting):
    """Tells every tenth line, latches a fault of each node, and misbehaves when told to."""

    name = "counting"
    reads: tuple[str, ...] = ("kernel", "tick")

    def _conclude(self, fact: Fact) -> list[Conclusion]:
        state = self.state
        if fact.kind == "tick":
            return [self._note(fact, "minute")] if fact.log_time_ns % 60_000_000_000 == 0 else []
        text: str = fact.data.text
        word, _, number = text.partition(" ")
        said: list[Conclusion] = []
        match word:
            case "fault" if fact.key not in state.open:
                state.open[fact.key] = state.count
                said.append(self._note(fact, f"opened at {state.count}", urgent=True))
            case "cured" if fact.key in state.open:
                said.append(self._note(fact, f"closed, open since {state.open.pop(fact.key)}"))
            case "burst":
                said += [self._note(fact, f"{k} of {number}") for k in range(int(number))]
            case "large":
                said.append(self._note(fact, "x" * int(number)))
            case "hoard":
                state.hoard = bytes(int(number))
            case "crash":
                raise ValueError("this step always crashes")
            case "exit":
                os._exit(9)
        if state.count % self.settings.every == 0:
            said.append(self._note(fact, f"count {state.count}"))
        return said


class CountingNext(Counting):
    """Version 2: says more, and understands the state of version 1."""

    version = 2

    def _conclude(self, fact: Fact) -> list[Conclusion]:
        said = super()._conclude(fact)
        return [*said, self._note(fact, "by version 2")] if said else said


class Echoing(_Digesting):
    """Answers every third line, and every note of another processor."""

    name = "echoing"
    reads: tuple[str, ...] = ("kernel", "note_added")

    def _conclude(self, fact: Fact) -> list[Conclusion]:
        if fact.kind == "note_added":
            data: Any = fact.data
            mine = data.by.startswith(self.name)
            return [] if mine else [self._note(fact, f"heard {data.by} at {self.state.count}")]
        return [self._note(fact, f"echo {fact.data.text}")] if self.state.count % 3 == 0 else []


class Looking(_Digesting):
    """Tells every fourth line what lay in the last seconds, which is in none of its snapshots."""

    name = "looking"
    reads: tuple[str, ...] = ("kernel", "tick")
    lookback_ns = 8_000_000_000

    def __init__(self) -> None:
        super().__init__()
        self.window: list[tuple[int, str]] = []

    def configure(self, settings: bytes) -> None:
        super().configure(settings)
        self.window = []

    def root(self) -> bytes:
        return self.snapshot()

    def reroot(self, root: bytes) -> None:
        self.window = []
        if root:
            self.restore(root)

    def _conclude(self, fact: Fact) -> list[Conclusion]:
        now_ns = fact.log_time_ns
        self.window = [each for each in self.window if each[0] > now_ns - self.lookback_ns]
        if fact.kind == "tick":
            return []
        self.window.append((now_ns, fact.id))
        seen = sha256(repr(self.window).encode()).hexdigest()[:8]
        told = self._note(fact, f"saw {len(self.window)}, {seen}")
        return [told] if self.state.count % 4 == 0 else []


class LookingNext(Looking):
    """Version 2: says that it is, and understands the state of version 1."""

    version = 2

    def _note(self, fact: Fact, text: str, *, urgent: bool = False) -> Conclusion:
        return super()._note(fact, f"{text}, by version 2", urgent=urgent)


CATALOGUE: Catalogue = {
    "counting": {1: Counting, 2: CountingNext},
    "echoing": {1: Echoing},
}
