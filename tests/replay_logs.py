"""Logs made by hand: producers, operators and copies of processors write as the live ones do."""

from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from nemesis.processors.emission import Emission
from nemesis.processors.fold import Fold, Input
from nemesis.processors.processor import Processor
from nemesis.replay.writer import RecordingWriter
from nemesis.schemas.errors import NemesisError
from nemesis.schemas.facts import (
    Conclusion,
    Fact,
    Record,
    cursor_subject,
    encode_conclusion,
    encode_observation,
    snapshot_subject,
    telemetry_subject,
)
from nemesis.schemas.inferred import FaultAttributed
from nemesis.schemas.kept import ProcessorAdvanced, ProcessorStarted, SnapshotTaken
from nemesis.schemas.observed import ClockTicked, KernelLineLogged, SampleTaken
from nemesis.schemas.operated import ProcessorActivated

START_NS = 1_700_000_000_000_000_000
SECOND_NS = 1_000_000_000


class Counting:
    """Names the node of every third kernel line; counts, so its state cannot be re-read."""

    name = "attribution"
    reads: tuple[str, ...] = ("kernel",)

    def __init__(self, version: int = 1) -> None:
        self.version = version
        self.every = 3
        self.seen = 0

    def configure(self, settings: bytes) -> None:
        """`every`: how many lines make a verdict."""
        self.every = msgspec.json.decode(settings).get("every", 3)

    def step(self, fact: Fact) -> Sequence[Conclusion]:
        """One conclusion a third line."""
        self.seen += 1
        if fact.data.text == "crash":
            raise RuntimeError("cannot step this")
        return [self.verdict(fact)] if self.seen % self.every == 0 else []

    def verdict(self, fact: Fact) -> Conclusion:
        """What it concludes."""
        data = FaultAttributed(
            at_ns=fact.log_time_ns,
            reason=f"line {self.seen} of {fact.key}, by version {self.version}",
            incident=f"{fact.key}-{self.seen}",
            revision=0,
            verdict="class-only",
            fault_class="gpu.off_bus",
        )
        return Conclusion(data=data, key=data.incident, cause=(fact.seq,))

    def snapshot(self) -> bytes:
        """The count."""
        return msgspec.msgpack.encode(self.seen)

    def restore(self, snapshot: bytes) -> None:
        """The count."""
        self.seen = msgspec.msgpack.decode(snapshot)


class NotHereError(NemesisError):
    """A version that this release does not have."""

    exit_code = 3


def make_counting(name: str, version: int) -> Processor:
    """The catalogue of the tests."""
    if name != "attribution" or version not in (1, 2):
        raise NotHereError(f"{name} version {version} is not here", hint="pip install nemesis==9")
    return Counting(version)


class Log:
    """Records in order."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.second = 0
        self._n: dict[tuple[str, str], int] = {}

    @property
    def end(self) -> int:
        """The last sequence."""
        return len(self.records)

    def add(self, subject: str, payload: bytes) -> int:
        """One more record; its sequence."""
        at_ns = START_NS + self.second * SECOND_NS
        self.records.append(Record(self.end + 1, subject, at_ns, payload))
        return self.end

    def tick(self) -> int:
        """A second passes."""
        self.second += 1
        return self._observe(ClockTicked, "clock", "tick")

    def kernel(self, text: str = "NVRM: Xid", node: str = "n1") -> int:
        """A line of a kernel log."""
        return self._observe(KernelLineLogged, node, "kernel", text=text)

    def sample(self, node: str = "n1") -> int:
        """A poll of a node."""
        return self._observe(SampleTaken, node, "sample", gpu_count=1, gpu=bytes(136))

    def activate(self, version: int = 1, settings: bytes = b"{}", name: str = "attribution") -> int:
        """An operator activates a version."""
        return self.event(
            ProcessorActivated(
                at_ns=self.now_ns,
                by="op",
                reason="test",
                name=name,
                version=version,
                settings=msgspec.Raw(settings),
            ),
            key=name,
        )

    def event(self, data: msgspec.Struct, *, key: str, id: str = "", source: str = "/x") -> int:
        """A fact of somebody else."""
        identity = id or f"op/{self.end + 1}"
        return self.add(
            *encode_conclusion(id=identity, source=source, at_ns=self.now_ns, data=data, key=key)
        )

    @property
    def now_ns(self) -> int:
        """Log time."""
        return START_NS + self.second * SECOND_NS

    def _observe(self, struct: Callable[..., Any], node: str, token: str, **fields: Any) -> int:
        n = self._n[node, token] = self._n.get((node, token), 0) + 1
        data = struct(node=node, start_ns=START_NS, n=n, at_ns=self.now_ns, **fields)
        return self.add(telemetry_subject(node, token), encode_observation(data))


class Copy:
    """A copy of a processor that reads and commits as the runner does."""

    def __init__(self, log: Log, fold: Fold) -> None:
        self.log = log
        self.fold = fold
        self.held: list[Emission] = []

    def read(self, upto: int | None = None) -> None:
        """Step what is there."""
        end = self.log.end if upto is None else upto
        for record in self.log.records[self.fold.seq : end]:
            item = Input(record)
            if self.fold.superseded_by is None and item.space != "cursor":
                self.held += self.fold.step(item)

    def commit(self, *, snapshot: bool = False) -> None:
        """One batch: conclusions, snapshot, position."""
        fold, name = self.fold, self.fold.processor.name
        snapshot = snapshot or fold.superseded_by is not None
        for each in self.held:
            self.log.add(each.subject, each.payload)
        self.held = []
        if snapshot:
            state = fold.snapshot()
            taken = SnapshotTaken(
                in_seq=fold.seq,
                log_time_ns=fold.log_time_ns,
                version=fold.processor.version,
                sha256=sha256(state).hexdigest(),
                size_bytes=len(state),
                state=state,
            )
            self.log.add(snapshot_subject(name), msgspec.msgpack.encode(taken))
        position = ProcessorAdvanced(
            in_seq=fold.seq,
            log_time_ns=fold.log_time_ns,
            version=fold.superseded_by or fold.processor.version,
            snapshot=snapshot,
        )
        self.log.add(cursor_subject(name), msgspec.msgpack.encode(position))

    def started(self, how: str, state_from: int) -> None:
        """Say that it took up work."""
        self.log.event(
            ProcessorStarted(
                at_ns=self.log.now_ns,
                reason="test",
                name=self.fold.processor.name,
                version=self.fold.processor.version,
                in_seq=self.fold.seq,
                state_from=state_from,
                how=how,  # type: ignore[arg-type]
            ),
            key=self.fold.processor.name,
        )


def busy_log(*, seconds: int = 8, every_s: int = 2, version: int = 1) -> Log:
    """Kernel lines of two nodes, one copy that commits every few seconds, an open end."""
    log = Log()
    log.activate(version)
    copy = Copy(log, Fold(Counting(version)))
    for second in range(seconds):
        log.tick()
        for node in ("n1", "n2"):
            log.kernel(node=node)
            log.sample(node=node)
        if second % every_s == every_s - 1:
            copy.read()
            copy.commit(snapshot=second == every_s - 1)
    return log


def write(path: Path, records: Sequence[Record], *, force: bool = False, **finish: Any) -> Path:
    """A recording of these records, from the first on."""
    with RecordingWriter(
        path,
        cell="test",
        made_by="tests",
        made_at="2026-01-01T00:00:00Z",
        from_seq=1,
        force=force,
    ) as writer:
        for record in records:
            writer.record(record)
        writer.finish(to_seq=records[-1].seq, **finish)
    return path
