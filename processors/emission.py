"""Conclusions as messages: ids follow from the input, and what the log can never hold is told.

The facts of a fold about itself are made here too: an input that was skipped or lost.
"""

from hashlib import sha256
from typing import Final

import msgspec
from msgspec import json

from nemesis.schemas.errors import BadNameError, MalformedFactError
from nemesis.schemas.facts import Conclusion, encode_conclusion
from nemesis.schemas.kept import ConclusionUndeliverable, FactSkipped, InputLost

ERROR_CHARS_MAX: Final = 500  # a fact about an error must itself be deliverable


class Emission(msgspec.Struct, frozen=True):
    """A conclusion ready for the log."""

    input_seq: int
    subject: str
    payload: bytes
    id: str
    urgent: bool


class Mouth:
    """Speaks for one processor."""

    def __init__(self, name: str) -> None:
        self._name: Final = name

    def says(self, seq: int, k: int, conclusion: Conclusion, at_ns: int) -> Emission:
        """Conclusion k of an input."""
        identity = f"{self._name}/{seq}/{k}"
        try:
            subject, payload = self._encoded(identity, conclusion, at_ns)
        except (MalformedFactError, BadNameError) as error:
            refused = json.encode(conclusion.data)
            return self.undeliverable(seq, identity, refused, error.message, at_ns)
        return Emission(seq, subject, payload, identity, conclusion.urgent)

    def skipped(self, seq: int, error: str, at_ns: int) -> Emission:
        """What answers an input that the processor cannot step over."""
        name = self._name
        data = FactSkipped(
            at_ns=at_ns,
            reason=f"{name} crashed again and again on input {seq} and goes on without it",
            name=name,
            seq=seq,
            error=error,
        )
        return self.says(seq, 0, Conclusion(data=data, key=name, cause=(seq,)), at_ns)

    def input_lost(self, seq: int, from_seq: int, to_seq: int, at_ns: int) -> Emission:
        """What is said before input seq where those before it expired unread."""
        name = self._name
        data = InputLost(
            at_ns=at_ns,
            reason=f"inputs {from_seq} to {to_seq} expired before {name} had read them",
            name=name,
            from_seq=from_seq,
            to_seq=to_seq,
        )
        identity = f"{name}/{seq}/lost"
        conclusion = Conclusion(data=data, key=name, cause=())
        return Emission(seq, *self._encoded(identity, conclusion, at_ns), identity, False)

    def undeliverable(
        self, seq: int, identity: str, refused: bytes, error: str, at_ns: int
    ) -> Emission:
        """What takes the place of a conclusion that the log can never hold."""
        name = self._name
        data = ConclusionUndeliverable(
            at_ns=at_ns,
            reason=f"the log cannot hold conclusion {identity} of {name}",
            name=name,
            error=error[:ERROR_CHARS_MAX],
            sha256=sha256(refused).hexdigest(),
        )
        conclusion = Conclusion(data=data, key=name, cause=(seq,))
        return Emission(seq, *self._encoded(identity, conclusion, at_ns), identity, False)

    def _encoded(self, identity: str, conclusion: Conclusion, at_ns: int) -> tuple[str, bytes]:
        return encode_conclusion(
            id=identity,
            source=f"/processors/{self._name}",
            at_ns=at_ns,
            data=conclusion.data,
            key=conclusion.key,
            cause=" ".join(map(str, conclusion.cause)),
            job=conclusion.job,
        )
