"""What both ends of a link tell: the NIC in its node's samples, the port in its switch's polls.

Why: a job that stands still names no link; the one counter that moved does. How: lifetime counters
prove nothing, so only what changes between two polls counts, against the same device's last
reading; a counter that went down was reset, a reading that was missed is skipped. Only links to
which something happened are remembered. Not here: what it proves (link_findings.py).

Meaning of the counters: Linux Documentation/ABI/stable/sysfs-class-infiniband; of one NIC that
answers nothing while the others of its node do, nothing is left that the driver could read.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from nemesis.processors.attribution.findings import Proof
from nemesis.processors.attribution.inventory import Inventory
from nemesis.processors.attribution.kernel_messages import KernelMessage
from nemesis.processors.attribution.sample_batch import Block, Stack, changed_in, kept
from nemesis.schemas.channels import ABSENT, NIC_CHANNELS
from nemesis.schemas.facts import Fact
from nemesis.schemas.observed import FabricSampled, PortSeen

ERRORS_KEPT: Final = 64  # polls with new errors: five minutes at 5 s
PROOFS_MAX: Final = 6  # of one link: each end's first word, and its comeback
# An incident without news for so long is over; gpud counts flaps over hours, a job feels minutes
FORGET_NS: Final = 600_000_000_000
_TRACKED: Final = (
    "port_up",
    "link_downed_count",
    "link_error_recovery_count",
    "symbol_error_count",
    "port_rcv_errors_count",
)
_COLUMNS: Final = tuple(NIC_CHANNELS.index(name) for name in _TRACKED)
_USUAL: Final = (1, 0, 0, 0, 0)
_PORT_USUAL: Final = (1, 0, 0)


class End(msgspec.Struct, array_like=True):
    """One end of a link, as it was seen while something was wrong with it."""

    down_ns: int = 0
    """Log time since which it is down, 0 while it is up."""
    downs_count: int = 0
    errors_count: int = 0
    """Symbol, CRC and receive errors, and recoveries of the link."""


class Link(msgspec.Struct):
    """A link to which something happened, and which has been quiet for less than FORGET_NS."""

    nic: str
    """Its canonical name; the link is named by it."""
    port: str
    """The switch port on its other end, "" where nobody says."""
    near: End = msgspec.field(default_factory=End)
    """At the NIC."""
    far: End = msgspec.field(default_factory=End)
    """At the switch."""
    gone_ns: int = 0
    """Log time since which the NIC answers nothing, 0 while it does."""
    told_ns: int = 0
    """Log time since which its node's kernel says that it is down, 0 where it does not."""
    went_ns: int = 0
    """When it last went down, or the NIC away."""
    changed_ns: int = 0
    sampled_ns: int = 0
    """Log time of its node's last sample with NICs."""
    errors_ns: list[tuple[int, int]] = []
    """(log time, errors) of the latest polls with new errors, at either end."""
    news: bool = True
    """Something happened since it was last judged."""
    proofs: list[Proof] = []

    @property
    def node(self) -> str:
        """The node of its NIC."""
        return self.nic.split("/", 2)[1]

    @property
    def downs_count(self) -> int:
        """How often it went down; both ends tell of the same times."""
        return max(self.near.downs_count, self.far.downs_count)

    @property
    def down_ns(self) -> int:
        """Since when it is down, as the first of its ends to say so has it; 0 while it is up."""
        near_ns, far_ns, gone_ns = self.near.down_ns, self.far.down_ns, self.gone_ns
        if not (near_ns or far_ns or gone_ns):
            return 0
        return min(each for each in (near_ns, far_ns, gone_ns) if each)

    @property
    def lost_ns(self) -> int:
        """Since when its NIC has no link, by its counters or its kernel's word; 0 where it has."""
        near_ns, told_ns = self.near.down_ns, self.told_ns
        return min(near_ns, told_ns) if near_ns and told_ns else near_ns or told_ns

    def say(self, fact: Fact, says: str) -> None:
        """Something happened; of what happens again and again the first few times are cited."""
        self.changed_ns, self.news = fact.log_time_ns, True
        if len(self.proofs) < PROOFS_MAX and all(each.says != says for each in self.proofs):
            self.proofs.append(Proof(fact.id, fact.seq, says))

    def pass_over(self) -> None:
        """No job used it: that it went down, as with a node that boots, is nothing to the next."""
        self.near.downs_count = self.far.downs_count = 0
        self.news = False


class Links(msgspec.Struct):
    """The last reading of every NIC and port, and the links to which something happened."""

    nics: dict[str, bytes] = {}
    """Node to its NICs' counters; empty where all are up and nothing was ever counted."""
    read_ns: dict[str, int] = {}
    """Node to the log time of its last sample with NICs."""
    ports: dict[str, dict[str, tuple[int, int, int]]] = {}
    """Switch to (up, link_downed, errors) of its ports, all but those that show (1, 0, 0)."""
    ports_count: dict[str, int] = {}
    polled_ns: dict[str, int] = {}
    """Switch to the log time of its last poll."""
    poll_ns: dict[str, int] = {}
    """Switch to the time between its last two polls."""
    by_nic: dict[str, Link] = {}

    def take_samples(self, nics: Stack, inventory: Inventory) -> None:
        """NICs of different nodes, in the order of the log; those that come late say nothing."""
        for fact, old, new in changed_in(nics, _COLUMNS, self.nics, _USUAL):
            if (new == ABSENT).all():
                continue  # nothing could be read: that says nothing about the NICs
            self.nics[fact.key] = kept(new, _USUAL)
            if old is not None:
                self._compare(fact, old, new, inventory)
        read = [fact.key for fact in nics.facts if fact.data.nic_count]
        if read:
            self.read_ns.update(dict.fromkeys(read, nics.facts[-1].log_time_ns))
        if self.by_nic:
            sampled_ns = {fact.key: fact.log_time_ns for fact in nics.facts if fact.data.nic_count}
            for link in self.by_nic.values():
                link.sampled_ns = sampled_ns.get(link.node, link.sampled_ns)

    def take_quiet(self, fact: Fact) -> bool:
        """One poll of a switch on which nothing changed; False, and not taken, where it did.

        It touches nothing that samples touch, so none of them need be read before it.
        """
        if fact.late:
            return True
        data: FabricSampled = fact.data
        switch = data.switch.removeprefix("switch/")
        if self.ports_count.get(switch) != len(data.ports):
            return False
        seen = {
            each.port: (int(each.up), each.link_downed_count, _errors(each))
            for each in data.ports
            if not each.up
            or each.link_downed_count
            or each.symbol_error_count
            or each.crc_error_count
            or each.fec_uncorrectable_count
        }
        if seen != self.ports[switch]:
            return False
        self._polled(switch, fact.log_time_ns)
        return True

    def take_fabric(self, fact: Fact, inventory: Inventory) -> None:
        """One poll of a switch."""
        data: FabricSampled = fact.data
        if fact.late:
            return
        switch = data.switch.removeprefix("switch/")
        seen = {
            each.port: (int(each.up), each.link_downed_count, _errors(each)) for each in data.ports
        }
        known = self.ports.get(switch, {})
        if self.ports_count.get(switch) == len(seen):
            for each in data.ports:
                was, now = known.get(each.port, _PORT_USUAL), seen[each.port]
                if was != now:
                    port = _name_of(switch, each)
                    nic = each.peer if each.peer.startswith("nic/") else inventory.nic_at(port)
                    if nic.count("/") == 2:
                        _take_end(self._link(nic, port), fact, port, was, now)
        self.ports_count[switch] = len(seen)
        self._polled(switch, fact.log_time_ns)
        self.ports[switch] = {name: each for name, each in seen.items() if each != _PORT_USUAL}

    def take_line(self, fact: Fact, message: KernelMessage, inventory: Inventory) -> None:
        """A node's kernel says that a link is down, or up again.

        Its counters are not touched: both tell of the same times.
        """
        nics = inventory.nics.get(fact.key, ())
        place = next((nic for nic in nics if nic.pci == message.device), None)
        up = message.kind == "link_up" or message.code > 0  # one that is counted is up again
        if place is None or fact.late:
            return
        name = f"nic/{fact.key}/{place.name}"
        if up and name not in self.by_nic:
            return
        link = self._link(name, place.port)
        link.told_ns = 0 if up else link.told_ns or fact.log_time_ns
        if not up:
            proof = Proof(fact.id, fact.seq, f"the kernel of {fact.key} says that {name} is down")
            link.changed_ns = fact.log_time_ns
            if len(link.proofs) < PROOFS_MAX and all(e.says != proof.says for e in link.proofs):
                link.proofs.append(proof)

    def _polled(self, switch: str, now_ns: int) -> None:
        before_ns = self.polled_ns.get(switch, now_ns)
        self.poll_ns[switch] = max(now_ns - before_ns, 0)
        self.polled_ns[switch] = now_ns

    def take_losses(
        self, fact: Fact, losses: Sequence[tuple[int, int]], inventory: Inventory
    ) -> None:
        """(NIC, words lost on the wire since the last reading) of one node."""
        places = inventory.nics.get(fact.key, [])
        for row, count in losses:
            if row < len(places):
                link = self._link(f"nic/{fact.key}/{places[row].name}", places[row].port)
                _take_end(link, fact, link.nic, (1, 0, 0), (1, 0, count))

    def nodes_down(self) -> set[str]:
        """Nodes with a link that is down."""
        return {link.node for link in self.by_nic.values() if link.down_ns}

    def has_light(self, node: str, since_ns: int, inventory: Inventory) -> bool:
        """Whether switches polled after that show every link of a node up: it has power."""
        ports = [nic.port for nic in inventory.nics.get(node, ()) if nic.port.count("/") == 2]
        return bool(ports) and all(self._was_up(port, since_ns) for port in ports)

    def _was_up(self, port: str, since_ns: int) -> bool:
        _, switch, number = port.split("/")
        seen = self.ports.get(switch, {})
        up, *_ = seen.get(port) or seen.get(number) or _PORT_USUAL
        return bool(up) and self.polled_ns.get(switch, 0) > since_ns

    def forget(self, now_ns: int) -> None:
        """Drop what has been up and quiet for long."""
        quiet = [
            nic
            for nic, link in self.by_nic.items()
            if now_ns - link.changed_ns > FORGET_NS and not (link.down_ns or link.told_ns)
        ]
        for nic in quiet:
            del self.by_nic[nic]

    def _link(self, nic: str, port: str) -> Link:
        link = self.by_nic.setdefault(nic, Link(nic=nic, port=port))
        link.port = link.port or port
        return link

    def _compare(self, fact: Fact, old: Block, new: Block, inventory: Inventory) -> None:
        places = inventory.nics.get(fact.key, [])
        for row in (old != new).any(axis=1).nonzero()[0].tolist():
            if row < len(places):
                place = places[row]
                link = self._link(f"nic/{fact.key}/{place.name}", place.port)
                _take_row(link, fact, old[row].tolist(), new[row].tolist())


def switch_of(port: str) -> str:
    """The switch of a port by its canonical name, "" for anything else."""
    parts = port.split("/")
    return parts[1] if len(parts) == 3 else ""


def _name_of(switch: str, port: PortSeen) -> str:
    return port.port if port.port.startswith("port/") else f"port/{switch}/{port.port}"


def _errors(port: PortSeen) -> int:
    return port.symbol_error_count + port.crc_error_count + port.fec_uncorrectable_count


def _take_row(link: Link, fact: Fact, old: list[int], new: list[int]) -> None:
    """One NIC's row, which changed."""
    if all(each == ABSENT for each in new):
        link.gone_ns = link.went_ns = fact.log_time_ns
        link.say(fact, f"{link.nic} answers nothing, the node's others do")
        return
    if link.gone_ns or all(each == ABSENT for each in old):
        link.gone_ns = 0
        link.say(fact, f"{link.nic} answers again")
        return
    up, downed, *errors = (0 if each == ABSENT else each for each in new)
    was_up, was_downed, *were = (0 if each == ABSENT else each for each in old)
    rises = sum(
        now - was
        for now, was, raw in zip(errors, were, old[2:], strict=True)
        if now > was and raw != ABSENT
    )
    _take_end(link, fact, link.nic, (was_up, was_downed, 0), (up, downed, rises))


def _take_end(
    link: Link,
    fact: Fact,
    name: str,
    was: tuple[int, int, int],
    now: tuple[int, int, int],
) -> None:
    """(up, times it went down, errors) of the end of that name before and now."""
    end = link.near if name == link.nic else link.far
    downs = max(now[1] - was[1], 0)
    errors = max(now[2] - was[2], 0)
    if was[0] and not now[0]:
        end.down_ns = link.went_ns = fact.log_time_ns
        end.downs_count += max(downs, 1)
        link.say(fact, f"{name} lost its link")
    elif now[0] and not was[0]:
        end.down_ns = 0
        link.say(fact, f"{name} has its link again")
    elif downs:
        end.downs_count += downs
        link.went_ns = fact.log_time_ns
        link.say(fact, f"{name} lost its link between two polls")
    if errors:
        end.errors_count += errors
        link.errors_ns = [*link.errors_ns, (fact.log_time_ns, errors)][-ERRORS_KEPT:]
        link.say(fact, f"{name} counts errors on its link")
