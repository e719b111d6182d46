"""What a processor is: state owned by the processor, changed by facts, judged from outside.

Same snapshot and same facts give the same conclusions and the same next snapshot, byte for byte,
on any machine. Everything else (reading, order, restarts, writing) belongs to the runner.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from nemesis.schemas.errors import NemesisError
from nemesis.schemas.facts import Conclusion, Fact

MALFORMED: Final = "malformed"
"""In `reads`: be handed observations that do not decode. Only the intake wants them."""


class NotInReleaseError(NemesisError):
    """Settings name something that this release does not have; one that has it may answer."""

    exit_code = 3


class Processor(Protocol):
    """One question about the log."""

    name: str
    version: int
    """Raised whenever a recorded log would change its conclusions."""
    reads: tuple[str, ...]
    """Tokens of the facts it is handed; may change with the settings."""

    def configure(self, settings: bytes) -> None:
        """Take settings, a JSON object, from the activation that is in force from here on.

        Raises:
            MalformedFactError: a setting that is not one of its own or has a wrong value.
            NotInReleaseError: they name what is not here; they are taken all the same, and the
                snapshot is that of a copy which has it.
        """
        ...

    def step(self, fact: Fact) -> Sequence[Conclusion]:
        """Answer one fact."""
        ...

    def snapshot(self) -> bytes:
        """The whole state; equal states have equal bytes."""
        ...

    def restore(self, snapshot: bytes) -> None:
        """Take up a state; that of an older version is upgraded."""
        ...
