"""Which observations are malformed?

Why: nothing malformed may reach a processor that draws conclusions, and nothing that a node sent
may vanish without a word. How: what does not decode is answered with the reason, its hash and its
head; its sequence is the cause. A broken producer repeats itself thousands of times, so after ten
a minute and node only their number is told. Not here: the decoding itself (fold.py).
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Final

import msgspec

from nemesis.processors.fold import Malformed
from nemesis.processors.processor import MALFORMED
from nemesis.schemas.errors import MalformedFactError
from nemesis.schemas.facts import Conclusion, Fact
from nemesis.schemas.inferred import InputRejected, InputsSuppressed

MINUTE_NS: Final = 60_000_000_000
REJECTIONS_MAX: Final = 10  # a minute and node, DESIGN of the log
HEAD_BYTES: Final = 2048
TEXT_CHARS_MAX: Final = 500
NOBODY: Final = "unknown"  # the key where the subject names no node


class _Window(msgspec.Struct, array_like=True):
    """One node's current minute."""

    since_ns: int
    told_count: int = 0
    suppressed_count: int = 0
    last_seq: int = 0


_encoder: Final = msgspec.msgpack.Encoder(order="deterministic")
_decoder: Final = msgspec.msgpack.Decoder(dict[str, _Window])


class Intake:
    """The processor."""

    name: str = "intake"
    version: int = 1
    reads: tuple[str, ...] = (MALFORMED, "tick")

    def __init__(self) -> None:
        self._windows: dict[str, _Window] = {}

    def configure(self, settings: bytes) -> None:
        """It has no settings."""
        if msgspec.json.decode(settings) != {}:
            raise MalformedFactError(f"intake has no settings, got {settings[:80]!r}")

    def snapshot(self) -> bytes:
        """The whole state."""
        return _encoder.encode(self._windows)

    def restore(self, snapshot: bytes) -> None:
        """Take up a state."""
        self._windows = _decoder.decode(snapshot)

    def step(self, fact: Fact) -> Sequence[Conclusion]:
        """Answer one fact."""
        if fact.kind == "tick":
            return self._close(fact.log_time_ns)
        return self._on_malformed(fact, fact.data)

    def _on_malformed(self, fact: Fact, malformed: Malformed) -> Sequence[Conclusion]:
        node = _plain(fact.key) or NOBODY
        window = self._windows.setdefault(node, _Window(fact.log_time_ns))
        window.last_seq = fact.seq
        if window.told_count >= REJECTIONS_MAX:
            window.suppressed_count += 1
            return ()
        window.told_count += 1
        rejected = InputRejected(
            at_ns=fact.log_time_ns,
            reason=_plain(malformed.error)[:TEXT_CHARS_MAX],
            subject=_plain(malformed.subject)[:TEXT_CHARS_MAX],
            sha256=sha256(malformed.payload).hexdigest(),
            head=malformed.payload[:HEAD_BYTES],
        )
        return (Conclusion(data=rejected, key=node, cause=(fact.seq,)),)

    def _close(self, now_ns: int) -> Sequence[Conclusion]:
        over = [
            node
            for node, window in sorted(self._windows.items())
            if now_ns - window.since_ns >= MINUTE_NS
        ]
        conclusions: list[Conclusion] = []
        for node in over:
            window = self._windows.pop(node)
            if not window.suppressed_count:
                continue
            suppressed = InputsSuppressed(
                at_ns=now_ns,
                reason=f"{node} sent {window.suppressed_count} more malformed observations",
                node=node,
                rejected_count=window.suppressed_count,
            )
            conclusions.append(Conclusion(data=suppressed, key=node, cause=(window.last_seq,)))
        return conclusions


def _plain(text: str) -> str:
    """Text that JSON can hold: a subject may spell half a character."""
    return text.encode("utf-8", "replace").decode()
