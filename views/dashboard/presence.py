"""Which nodes are heard from: a node whose samples stay away for three periods is silent."""

from collections.abc import Iterable
from typing import Final

PERIODS_MAX: Final = 3  # a number on a page that is older than three intervals is stale
PERIOD_NS: Final = 5 * 10**9  # until a sample says otherwise
SILENCE_NS_MIN: Final = 10 * 10**9  # a restart of the server is no silence of a node


class Presence:
    """When each node was last heard, by the server's clock."""

    def __init__(self) -> None:
        self.silent: Final[set[str]] = set()
        self._heard_ns: Final[dict[str, int]] = {}
        self._period_ns: Final[dict[str, int]] = {}

    def begin(self, nodes: Iterable[str], now_ns: int) -> None:
        """From now on these are expected to speak."""
        for node in nodes:
            self._heard_ns[node] = now_ns

    def must_know(self, node: str) -> bool:
        """Nothing is known yet of how often it speaks."""
        return node not in self._period_ns

    def period(self, node: str, period_ns: int) -> None:
        """How often it speaks."""
        self._period_ns[node] = period_ns or PERIOD_NS

    def heard(self, node: str, now_ns: int) -> bool:
        """It spoke; whether it had been silent."""
        self._heard_ns[node] = now_ns
        if node in self.silent:
            self.silent.discard(node)
            return True
        return False

    def fell_silent(self, now_ns: int) -> list[str]:
        """Nodes that are silent now and were not before."""
        fell = [
            node
            for node, heard_ns in self._heard_ns.items()
            if now_ns - heard_ns > self._patience_ns(node) and node not in self.silent
        ]
        self.silent.update(fell)
        return fell

    def _patience_ns(self, node: str) -> int:
        return max(SILENCE_NS_MIN, PERIODS_MAX * self._period_ns.get(node, PERIOD_NS))
