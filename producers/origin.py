"""Who observes: the name, life and numbering that every producer's fact carries.

A reader tells a repetition from news by (node, kind, start of the process, n), so one process has
one Origin for each node it speaks for, and numbers each kind from 1 without a gap.
"""

from typing import TypedDict


class Stamp(TypedDict):
    """The fields with which every observation starts."""

    node: str
    start_ns: int
    n: int
    at_ns: int
    clock_error_ns: int
    boot_id: str


class Origin:
    """One life of one node's producer."""

    def __init__(
        self, node: str, *, start_ns: int, boot_id: str = "", clock_error_ns: int = 0
    ) -> None:
        self.node = node
        self.start_ns = start_ns
        self.boot_id = boot_id
        self.clock_error_ns = clock_error_ns
        self._last: dict[str, int] = {}

    def stamp(self, kind: str, at_ns: int) -> Stamp:
        """The next number of this kind, taken for a fact seen at `at_ns`."""
        n = self._last.get(kind, 0) + 1
        self._last[kind] = n
        return Stamp(
            node=self.node,
            start_ns=self.start_ns,
            n=n,
            at_ns=at_ns,
            clock_error_ns=self.clock_error_ns,
            boot_id=self.boot_id,
        )
