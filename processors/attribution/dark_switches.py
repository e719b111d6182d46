"""Which switches stopped, as the links below them and their own silence tell together.

Why: of a leaf that stops nobody reads the ports any more, and each node below it sees no more than
a link of its own that is down, which may be its own cable. How: a switch that is polled no more
and below which links went down when it was last polled has stopped: that its collector and a cable
fail at the same moment by themselves is far less likely. A link is down by its NIC's counters, or
by the word of its node's kernel, which is often read where counters are not.
"""

from typing import Final, NamedTuple

from nemesis.processors.attribution import wanted
from nemesis.processors.attribution.findings import LINK_LOST, Finding
from nemesis.processors.attribution.inventory import Inventory
from nemesis.processors.attribution.links import Link, Links, switch_of

SECOND_NS: Final = 1_000_000_000
# MegaScale (arXiv 2402.15627, 6.2): a link that flaps is back after several seconds
GRACE_NS: Final = 8 * SECOND_NS
POLLS_MISSED: Final = 2  # one may be lost now and then; the links below it are the other witness
SLACK_NS: Final = 5 * SECOND_NS  # a node that is polled every five seconds tells so much later
ALONE_PPM: Final = 750_000
SEVERAL_PPM: Final = 850_000
PROOFS_MAX: Final = 12


class Dark(NamedTuple):
    """A switch that stopped."""

    switch: str
    nodes: tuple[str, ...]
    """Those that lost their links to it."""
    finding: Finding
    since_ns: int
    """Log time at which the first of them did."""


def dark_switches(links: Links, inventory: Inventory, now_ns: int) -> list[Dark]:
    """Each switch that stopped."""
    below: dict[str, list[Link]] = {}
    for link in links.by_nic.values():
        if link.lost_ns and inventory.seats_on(link.node):
            below.setdefault(switch_of(link.port), []).append(link)
    found: list[Dark] = []
    for switch, own in sorted(below.items()):
        polled_ns, every_ns = links.polled_ns.get(switch, 0), links.poll_ns.get(switch, 0)
        if not polled_ns or now_ns - polled_ns <= max(GRACE_NS, POLLS_MISSED * every_ns):
            continue
        lost = [
            link
            for link in own
            if link.lost_ns >= polled_ns - SLACK_NS and now_ns - link.lost_ns >= GRACE_NS
        ]
        nodes = tuple(sorted({link.node for link in lost}))
        at_once = any(link.lost_ns <= polled_ns + 2 * every_ns + SLACK_NS for link in lost)
        since_ns = min((link.lost_ns for link in lost), default=now_ns)
        if at_once and _up_count(links, inventory, switch, since_ns) < len(nodes):
            found.append(Dark(switch, nodes, _finding(switch, nodes, lost), since_ns))
    return found


def _up_count(links: Links, inventory: Inventory, switch: str, since_ns: int) -> int:
    """How many nodes were read since the first lost its link, and have theirs."""
    count = 0
    for node, nics in inventory.nics.items():
        if links.read_ns.get(node, 0) <= since_ns:
            continue
        own = [f"nic/{node}/{nic.name}" for nic in nics if switch_of(nic.port) == switch]
        known = [links.by_nic.get(name) for name in own]
        count += bool(own) and all(each is None or not each.lost_ns for each in known)
    return count


def _finding(switch: str, nodes: tuple[str, ...], lost: list[Link]) -> Finding:
    proofs = dict.fromkeys(proof for link in lost for proof in link.proofs)
    of_nodes = nodes[0] if len(nodes) == 1 else f"{len(nodes)} nodes"
    return Finding(
        verdict="attributed",
        fault_class="network.fabric",
        reason=f"switch/{switch} is not heard any more, and {of_nodes} lost their links to it",
        confidence_ppm=SEVERAL_PPM if len(nodes) > 1 else ALONE_PPM,
        level=LINK_LOST,
        culprits=(f"switch/{switch}",),
        proofs=tuple(proofs)[:PROOFS_MAX],
        missing=(wanted.SWITCH_COUNTERS,),
    )
