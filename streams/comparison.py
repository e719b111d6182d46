"""Whether the log says what this copy concluded.

Why: compare-and-set keeps one author an input, it does not notice that two authors disagree. How:
every conclusion of this copy, written by it or by another one, is kept until it passes by in the
log; the position that covers it says when it should have. A copy that restarts steps a
stretch again and is compared with itself in the same way.
"""

from hashlib import sha256
from typing import Final

import msgspec

from nemesis.processors.emission import Emission
from nemesis.schemas.facts import Record

ID_BYTES_MAX: Final = 200
NOTHING: Final = ""
_STAND_IN: Final = "nemesis.events.conclusion_undeliverable."


class Difference(msgspec.Struct, frozen=True):
    """One conclusion on which this copy and the log differ; NOTHING: one side has none."""

    id: str
    mine_sha256: str
    theirs_sha256: str


class Comparison:
    """The conclusions of one copy of one processor that have not passed by yet."""

    def __init__(self, name: str, from_seq: int) -> None:
        self._from_seq: Final = from_seq
        self._prefix: Final = f'{{"specversion":"1.0","id":"{name}/'.encode()
        self._id_at: Final = len(self._prefix) - len(name.encode()) - 1
        self._expected: dict[str, Emission] = {}
        """By id, in the order of the inputs."""

    def expect(self, emissions: list[Emission]) -> None:
        """This copy concluded these."""
        for emission in emissions:
            self._expected[emission.id] = emission

    def passed(self, record: Record) -> Difference | None:
        """An event passed by in the log."""
        payload = record.payload
        if not payload.startswith(self._prefix):
            return None
        end = payload.find(b'"', self._id_at, self._id_at + ID_BYTES_MAX)
        if end < 0:
            return None
        parts = payload[len(self._prefix) : end].decode(errors="replace").split("/")
        if len(parts) != 2 or not parts[0].isdecimal() or int(parts[0]) <= self._from_seq:
            return None
        identity = payload[self._id_at : end].decode(errors="replace")
        mine = self._expected.pop(identity, None)
        if mine is not None and mine.payload == payload and mine.subject == record.subject:
            return None
        mine_sha256 = _sha256(mine.payload) if mine else NOTHING
        if (
            mine is not None
            and record.subject.startswith(_STAND_IN)
            and (mine_sha256.encode() in payload)
        ):
            return None  # the log refused it and holds its hash
        return Difference(identity, mine_sha256, _sha256(payload))

    def answered(self, in_seq: int) -> list[Difference]:
        """A position passed by: what it covers must have passed by before."""
        missing: list[Difference] = []
        while self._expected:
            first = next(iter(self._expected.values()))
            if first.input_seq > in_seq:
                break
            del self._expected[first.id]
            missing.append(Difference(first.id, _sha256(first.payload), NOTHING))
        return missing


def _sha256(payload: bytes) -> str:
    return sha256(payload).hexdigest()
