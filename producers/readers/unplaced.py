"""The fields of an observation that only the whole bundle can fill.

Every reader starts its observations with them: no number, no time, and the node that the line
names or none.
"""

from typing import TypedDict


class Unplaced(TypedDict):
    """What `bundle_facts` replaces."""

    node: str
    start_ns: int
    n: int
    at_ns: int


def unplaced(node: str = "") -> Unplaced:
    """Fields of an observation that has no place yet."""
    return Unplaced(node=node, start_ns=1, n=1, at_ns=0)
