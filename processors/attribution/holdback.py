"""Evidence that waits for its context, and the messages that are context and nothing more.

Why: a verdict drawn from the first line is often wrong, and facts of different nodes arrive in any
order. How: evidence is held back for a moment and then taken in the order of its own times, so
that the order of arrival within the moment does not matter; messages without weight of their own
are kept a minute, in case something that they surround follows.
"""

from typing import Final

import msgspec

from nemesis.processors.attribution.incidents import Clue, Exit

KEPT_MAX: Final = 32  # messages of one node; a root and what it printed before fit many times
KEPT_NS: Final = 60_000_000_000


class Held(msgspec.Struct, array_like=True):
    """One piece of evidence in its hold-back: either a clue or an exit."""

    due_ns: int
    at_ns: int
    late: bool
    clue: Clue | None = None
    exited: Exit | None = None

    @property
    def evidence(self) -> Clue | Exit:
        """The one that it holds."""
        held = self.clue or self.exited
        assert held is not None
        return held


class HoldBack(msgspec.Struct):
    """Everything that waits."""

    held: list[Held] = []

    def put(self, held: Held) -> None:
        """Keep evidence until it is due."""
        self.held.append(held)

    def due(self, now_ns: int) -> list[Held]:
        """What has waited long enough, in the order of its own times."""
        due = [each for each in self.held if each.due_ns <= now_ns]
        if due:
            self.held = [each for each in self.held if each.due_ns > now_ns]
        return sorted(due, key=lambda each: (each.at_ns, each.evidence.proof.fact))


class Surroundings(msgspec.Struct):
    """Messages without weight of their own, by node: (log time, message)."""

    by_node: dict[str, list[tuple[int, Clue]]] = {}

    def keep(self, clue: Clue, now_ns: int) -> None:
        """Keep a message, in place of the oldest where there are many."""
        kept = self.by_node.setdefault(clue.node, [])
        kept.append((now_ns, clue))
        del kept[:-KEPT_MAX]

    def take(self, node: str) -> list[Clue]:
        """A node's messages, which now belong to something."""
        return [clue for _, clue in self.by_node.pop(node, [])]

    def last_named_gpu(self, node: str) -> str:
        """The GPU of an earlier line, where the driver splits its message over two."""
        kept = self.by_node.get(node, [])
        named = [clue.message for _, clue in kept if clue.message.kind == "gpu_named"]
        return named[-1].device if named else ""

    def forget(self, now_ns: int) -> None:
        """Drop what nothing followed."""
        old = [node for node, kept in self.by_node.items() if now_ns - kept[-1][0] > KEPT_NS]
        for node in old:
            del self.by_node[node]
