"""What the runner asks of a log: the real one, or one in memory under a simulated clock."""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol, Self

from nemesis.schemas.facts import Record
from nemesis.streams.batch import Message
from nemesis.streams.log import Bounds
from nemesis.streams.position import States


class InOrder(Protocol):
    """Records in order from one sequence on; nemesis.streams.reader.Reader is one."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...

    async def next(self) -> Sequence[Record]:
        """The next records, at least one; a jump of sequences has expired.

        Raises:
            InputGapError: a record was sent and never arrived.
        """
        ...


class RunnerLog(Protocol):
    """A log; errors as in nemesis.streams.log."""

    @property
    def lost_count(self) -> int:
        """How often the connection broke: only then can a log have been exchanged."""
        ...

    async def publish(
        self, subject: str, payload: bytes, *, expected_last_subject_seq: int | None = None
    ) -> int:
        """Append one message."""
        ...

    async def commit(self, messages: Sequence[Message]) -> int:
        """Append all messages or none."""
        ...

    async def last(self, subject: str, *, up_to_seq: int = 0) -> Record | None:
        """The newest message of a subject, or the newest up to a sequence."""
        ...

    async def get(self, seq: int) -> Record | None:
        """One message."""
        ...

    @property
    def states(self) -> States:
        """The store of large states."""
        ...

    def reader(self, start_seq: int) -> InOrder:
        """A reader from a sequence on."""
        ...

    def read_range(self, from_seq: int, to_seq: int, *, subject: str = "") -> AsyncIterator[Record]:
        """Every record that still exists between two sequences, both included."""
        ...

    async def bounds(self) -> Bounds:
        """What the log holds."""
        ...
