"""Which part of a link is at fault, if a job feels it at all.

Why: NIC, cable and switch port fail alike, and a link that comes back within seconds is another
case than one that stays away. How: an end that is down while the other end was polled later and is
up is at fault; where both are down, errors that only the switch counted name its port; else the
link as a whole is named, which says no more than is known. A single short loss is nothing; one that
lasts, comes again, or comes with errors, is. Several links of one node or one switch share what
failed.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from nemesis.processors.attribution import wanted
from nemesis.processors.attribution.dark_switches import dark_switches
from nemesis.processors.attribution.findings import LINK_LOST, Finding
from nemesis.processors.attribution.incidents import step_of
from nemesis.processors.attribution.inventory import Inventory
from nemesis.processors.attribution.links import Link, Links, switch_of
from nemesis.schemas.codes import FaultClass, Signature

SECOND_NS: Final = 1_000_000_000
# MegaScale (arXiv 2402.15627, 6.2): a link that flaps is back after several seconds
GRACE_NS: Final = 8 * SECOND_NS
# NCCL gives a queue pair up after NCCL_IB_TIMEOUT 20 and 7 retries: 4.2 s each
LONG_NS: Final = 30 * SECOND_NS
UNREAD_NS: Final = 2 * GRACE_NS  # a node polled every 5 s has been polled three times by then
FLAPS_MIN: Final = 2  # in ten minutes; once is what maintenance looks like
# IBTA allows a bit error rate of 1e-12: 120 symbol errors an hour on a 4X link; so many in
# ERRORS_WITHIN_NS are sixty times the limit, and polls that show them rule a single burst out
ERRORS_MIN: Final = 120
ERRORS_WITHIN_NS: Final = 60 * SECOND_NS
ERROR_POLLS_MIN: Final = 3
PARTS_MAX: Final = 2  # more of one node or switch at once: what they share is at fault
MISSING: Final = (wanted.BOTH_ENDS, wanted.TRANSCEIVERS)


class LinkFinding(NamedTuple):
    """What is wrong with one link, or with what several share."""

    key: str
    """The same as long as it is about the same."""
    nodes: tuple[str, ...]
    finding: Finding
    since_ns: int
    """Log time at which it last went down, or the first of them did."""


def judge_links(
    links: Links, inventory: Inventory, now_ns: int, heard_ns: Mapping[str, int]
) -> list[LinkFinding]:
    """What the links that something happened to prove; those of nodes without a job nothing.

    `heard_ns`: when each node was last heard, of whatever.
    """
    bad: list[Link] = []
    for link in links.by_nic.values():
        happens = link.news or link.down_ns
        if not (happens or link.downs_count):
            continue  # by far the most: who runs beside it makes no difference
        if not inventory.seats_on(link.node):
            link.pass_over()
            continue
        if not happens:
            continue
        if _is_settled(link, links, now_ns, heard_ns.get(link.node, 0)):
            link.news = False
            if _is_bad(link, now_ns):
                bad.append(link)
    dark = dark_switches(links, inventory, now_ns)
    found = [
        LinkFinding(f"switch/{each.switch}", each.nodes, each.finding, each.since_ns)
        for each in dark
    ]
    found += _shared(bad, {each.switch for each in dark})
    shared = {node for each in found for node in each.nodes}
    return found + [
        LinkFinding(link.nic, (link.node,), _finding(link, links, now_ns), link.went_ns)
        for link in bad
        if link.node not in shared
    ]


def _is_settled(link: Link, links: Links, now_ns: int, heard_ns: int) -> bool:
    """Whether both ends had the time to tell, and the link to come back.

    A node that is not heard is another matter: its ports go down with it. One that is heard, and
    whose NICs nobody reads, leaves the other end's word.
    """
    if not link.down_ns:
        return True
    if now_ns - link.down_ns < GRACE_NS:
        return False
    if link.sampled_ns < link.down_ns:
        return bool(link.far.down_ns) and heard_ns - link.down_ns >= UNREAD_NS
    if link.gone_ns or (link.near.down_ns and link.far.down_ns):
        return True
    # where the ends disagree, the one that saw nothing was perhaps not polled since
    polled_ns = links.polled_ns.get(switch_of(link.port), 0)
    is_news = link.changed_ns if link.far.down_ns else link.near.down_ns
    return polled_ns == 0 or (polled_ns > is_news and link.sampled_ns > link.far.down_ns)


def _is_bad(link: Link, now_ns: int) -> bool:
    flaps = link.downs_count >= FLAPS_MIN or _is_torn(link)
    return bool(link.down_ns) or flaps or _has_errors(link, now_ns)


def _is_torn(link: Link) -> bool:
    """Whether one loss came with more errors than a link may count in an hour."""
    errors_count = max(link.near.errors_count, link.far.errors_count)
    return bool(link.downs_count) and errors_count >= ERRORS_MIN


def _has_errors(link: Link, now_ns: int) -> bool:
    recent = [count for at_ns, count in link.errors_ns if now_ns - at_ns <= ERRORS_WITHIN_NS]
    return len(recent) >= ERROR_POLLS_MIN and sum(recent) >= ERRORS_MIN


def _shared(bad: Sequence[Link], dark: Collection[str]) -> list[LinkFinding]:
    """Links that are down together on one node, or on one switch that is not `dark`."""
    down = [each for each in bad if each.down_ns and switch_of(each.port) not in dark]
    found: list[LinkFinding] = []
    by_node: dict[str, list[Link]] = {}
    by_switch: dict[str, list[Link]] = {}
    for link in down:
        by_node.setdefault(link.node, []).append(link)
        by_switch.setdefault(switch_of(link.port), []).append(link)
    for switch, own in sorted(by_switch.items()):
        nodes = tuple(sorted({each.node for each in own}))
        if switch and len(nodes) > PARTS_MAX:
            reason = f"switch/{switch} lost its links to {len(nodes)} nodes together"
            culprit = f"switch/{switch}"
            finding = _attributed("network.fabric", culprit, reason, own)
            found.append(LinkFinding(culprit, nodes, finding, min(each.down_ns for each in own)))
    shared = {node for each in found for node in each.nodes}
    for node, own in sorted(by_node.items()):
        if len(own) > PARTS_MAX and node not in shared:
            reason = f"{len(own)} NICs of {node} lost their links together: what they share failed"
            culprit = f"node/{node}"
            finding = _attributed("nic", culprit, reason, own)
            found.append(LinkFinding(culprit, (node,), finding, min(each.down_ns for each in own)))
    return found


def _finding(link: Link, links: Links, now_ns: int) -> Finding:
    count = step_of(link.downs_count)
    signature: Signature = ""
    if link.down_ns and (link.downs_count < FLAPS_MIN or now_ns - link.down_ns > LONG_NS):
        how = "is down and does not come back"
    elif link.downs_count:
        few = "once" if link.downs_count == 1 else "twice"
        times = f"{count} times or more" if count else few
        how = f"went down {times} and came back"
        signature = "link_recovered"
    else:
        how = "counts errors far above the rate that its standard allows"
    fault_class, culprit, why = _end_at_fault(link, links)
    return _attributed(fault_class, culprit, f"{culprit} {how}{why}", [link], signature)


def _end_at_fault(link: Link, links: Links) -> tuple[FaultClass, str, str]:
    """(class, culprit, why that end)."""
    whole = f"link/{link.nic.removeprefix('nic/')}"
    if link.gone_ns:
        return "nic", link.nic, ": the NIC itself answers nothing, its neighbours do"
    told = links.polled_ns.get(switch_of(link.port), 0) > 0
    near, far = link.near, link.far
    if link.down_ns and told and not far.down_ns:
        return "nic", link.nic, ": its switch port sees no trouble"
    if link.down_ns and not near.down_ns and link.sampled_ns > far.down_ns:
        return "network.link", link.port, ": the NIC on it sees no trouble"
    if link.port and far.errors_count and not near.errors_count:
        return "network.link", link.port, ": only the switch counted errors"
    return "network.link", whole, ""


def _attributed(
    fault_class: FaultClass,
    culprit: str,
    reason: str,
    links: Sequence[Link],
    signature: Signature = "",
) -> Finding:
    return Finding(
        verdict="attributed",
        fault_class=fault_class,
        reason=reason,
        confidence_ppm=850_000,
        level=LINK_LOST,
        culprits=(culprit,),
        signature=signature,
        proofs=tuple(proof for link in links for proof in link.proofs)[:12],
        missing=MISSING,
    )
