"""How nodes that lost the log agree on the next membership among themselves.

They meet at the job's own store, as torch's elastic agents do, and only to carry out what the job
said before (`on_log_loss`). Pure. An epoch closes once: at once when every node of the old one has
come, else after a wait and only if more than half of them have, so that two halves of a cluster
never both go on.
"""

from collections.abc import Iterable
from typing import Final

WAIT_NS: Final = 10_000_000_000  # torch.distributed.elastic's "last call" is 30 s


class Rendezvous:
    """The meeting place of one job."""

    def __init__(self, *, world_min: int) -> None:
        self._world_min = world_min
        self._came: dict[int, dict[str, frozenset[int]]] = {}
        self._since_ns: dict[int, int] = {}
        self._closed: dict[int, frozenset[int]] = {}

    def come(
        self, epoch: int, node: str, ranks: Iterable[int], expected: Iterable[str], now_ns: int
    ) -> frozenset[int] | None:
        """A node offers its live ranks for an epoch; the members once it is closed.

        Who comes after that finds itself not among them.
        """
        if epoch in self._closed:
            return self._closed[epoch]
        came = self._came.setdefault(epoch, {})
        came[node] = frozenset(ranks)
        waited_ns = now_ns - self._since_ns.setdefault(epoch, now_ns)
        nodes = frozenset(expected)
        present = nodes & came.keys()
        most = 2 * len(present) > len(nodes) and waited_ns >= WAIT_NS
        members = frozenset().union(*(came[each] for each in present))
        if (present == nodes or most) and len(members) >= self._world_min:
            self._closed[epoch] = members
            return members
        return None
