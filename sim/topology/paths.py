"""The way that a flow takes through the fabric, and around what has failed.

Every switch spreads flows over its equally good ports (ECMP). Which one it takes is decided by
CRC-32 over "source target hop", source and target being NIC numbers: the same flow always takes
the same way, and A to B another one than B to A, as with the 5-tuple hashes of real switches. A
port that leads nowhere any more is left out, as after routing protocol or subnet manager heard of
it.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from zlib import crc32

from nemesis.sim.topology.wiring import Wiring


def ports_between(
    wiring: Wiring, source: int, target: int, failed: Collection[int] = frozenset()
) -> list[int] | None:
    """The ports that a flow passes between two NICs, in order; None where no way is left.

    `failed`: ports that carry nothing, both ends of a link.
    """
    first, last = int(wiring.nic_port[source]), int(wiring.nic_port[target])
    there = wiring.switch_of(last)

    def onward(here: int, hop: int) -> list[int] | None:
        if here == there:
            return []
        choices = [port for port in _choices(wiring, here, there) if port not in failed]
        start = crc32(f"{source} {target} {hop}".encode()) % max(1, len(choices))
        for port in (*choices[start:], *choices[:start]):
            peer = int(wiring.peer[port])
            rest = onward(wiring.switch_of(peer), hop + 1)
            if rest is not None:
                return [port, peer, *rest]
        return None

    if first in failed or last in failed:
        return None
    if not wiring.shape.spines:
        return [first, last]  # what joins the leaves is not known
    between = onward(wiring.switch_of(first), 0)
    return None if between is None else [first, *between, last]


def _choices(wiring: Wiring, here: int, leaf: int) -> Iterable[int]:
    """The ports of a switch that lead towards a leaf, on a shortest way."""
    tier, pod = wiring.tier(here), wiring.pod_of_leaf(leaf)
    spines = wiring.spines_of(pod)
    if tier == "core":
        return wiring.down_to(here, spines)
    if here in spines:
        return wiring.down_to(here, range(leaf, leaf + 1))
    return wiring.uplinks(here)


def named(wiring: Wiring, ports: Sequence[int]) -> Iterator[str]:
    """The links, ports and switches that a flow passes, by name."""
    yield wiring.link_name(ports[0])
    for entered, left in zip(ports[::2], ports[1::2], strict=True):
        yield wiring.port_name(entered)
        switches = (wiring.switch_of(entered), wiring.switch_of(left))
        for switch in dict.fromkeys(switches):  # two where what joins them is not known
            yield f"switch/{wiring.switches[switch]}"
        yield wiring.port_name(left)
        yield wiring.link_name(left)
