"""What attribution remembers of one incident: its evidence and what was last said about it."""

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
from msgspec.structs import replace

from nemesis.processors.attribution.findings import (
    LINK_DOWN,
    MEMORY_CONTAINED,
    MEMORY_LOST,
    UNEXPLAINED,
    Finding,
    Proof,
    is_same,
)
from nemesis.processors.attribution.inventory import Inventory
from nemesis.processors.attribution.kernel_messages import KernelMessage
from nemesis.processors.attribution.kernel_rules import FALLOUT_XIDS, Role, role_of

CLUES_MAX: Final = 64  # kernel messages kept of one incident; equal ones count once
SUPPORTS_MAX: Final = 8
SIGNS_MAX: Final = 5  # lines that are not understood: enough to see what they are about
EXITS_MAX: Final = 4096  # a job's ranks die together; their names are evidence only up to here


SLOW: Final = "slow "
"""What the keys of findings about slow ranks begin with."""
SERVER_SILENT: Final = "server_silent"
LINK_KINDS: Final = ("link_down", "link_up")


STEPS: Final = (100, 30, 10, 3)
"""At which counts something that goes on is said again."""


def step_of(count: int) -> int:
    """The largest of STEPS that a count has reached, 0 before the first."""
    return next((each for each in STEPS if count >= each), 0)


_NETWORK: Final = frozenset({"network", "nic"})
_WITHIN_NODE: Final = frozenset({"gpu", "nvlink", "app", "host"})
"""What classes of faults begin with."""


class Clue(msgspec.Struct, frozen=True, array_like=True):
    """A kernel message and where it comes from."""

    node: str
    proof: Proof
    """`says` is empty until a rule has spoken."""
    message: KernelMessage
    level: int = 0
    """What the message is worth alone (kernel_rules.py)."""
    at_ns: int = 0


class Exit(msgspec.Struct, frozen=True, array_like=True):
    """The end of a rank's process."""

    node: str
    proof: Proof
    job: str
    rank: int
    pid: int
    code: int
    signal: int
    at_ns: int
    error_ns: int
    """How far at_ns may be off, either way."""


class Silence(msgspec.Struct, frozen=True, array_like=True):
    """Nodes that stopped reporting together."""

    nodes: tuple[str, ...]
    since_ns: int
    """Log time of the last fact from the first of them."""
    due_ns: int
    """Log time at which the last of them should have been heard again."""
    proof: Proof
    """The tick that found it."""
    domain: str = ""
    """What they share, where they are too many to have failed one by one."""
    has_light: bool = False
    """The links of all of them stayed up: they have power."""


class Support(msgspec.Struct, frozen=True, array_like=True):
    """A reading of a GPU that changed; what it proves beside others: gpu_sign_findings.py."""

    component: str
    proof: Proof
    name: str = ""
    """Its channel, or what it says (counters.py)."""


class Incident(msgspec.Struct, kw_only=True):
    """An open incident."""

    id: str
    opened_ns: int
    changed_ns: int
    """Log time of its latest evidence."""
    due_ns: int = 0
    """Log time at which it is to be judged again; 0 when nothing is new."""
    nodes: list[str] = []
    """Nodes whose evidence belongs to it."""
    job: str = ""
    clues: list[Clue] = []
    exits: list[Exit] = []
    supports: list[Support] = []
    stuck: Finding | None = None
    """What the flight recorders of the job prove."""
    silences: list[Silence] = []
    reached: list[str] = []
    """Clients of a file server that were polled since they missed it: their own network works."""
    acquitted: list[str] = []
    """Nodes whose devices were read since a rank ended there: what shows nothing is well."""
    told: dict[str, Finding] = {}
    """What counters and steps prove, by what it is about: a NIC, a switch, slow ranks of a node."""
    link_downs: dict[str, int] = {}
    """How often the kernel told that a link went down, by node and label."""
    asked_ns: int = 0
    """Since when everybody is to be heard before a provisional verdict is said, 0: nothing is."""
    late: bool = False
    """It was opened by a late fact, and nothing on time has joined it."""
    recovered: bool = False
    """What follows on its nodes is fallout, and nothing to speak of."""
    revisions: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Verdicts given so far."""
    level: int = 0
    """How much the last verdict explains."""
    said: bytes = b""
    """Digest of the last verdict."""

    def level_of(self, node: str, device: str) -> int:
        """Of the weightiest message about this device, -1 where there is none."""
        own = (e.level for e in self.clues if e.node == node and e.message.device == device)
        return max(own, default=-1)

    def concerns(self, node: str, device: str) -> bool:
        """Whether a message about this device is among its evidence."""
        return any(each.node == node and each.message.device == device for each in self.clues)

    def explains(self, clue: Clue, level: int, inventory: Inventory) -> bool:
        """Whether a message after the recovery is fallout of what was recovered from.

        A GPU that broke and that nothing runs on any more may print what it likes; one that works,
        and what is as grave as the fault was or always a fault of its own, is not explained by it.
        """
        gpu = f"gpu/{clue.node}/{clue.message.device}"
        known = self.level_of(clue.node, clue.message.device)
        if not inventory.seats_of(gpu) and (known >= MEMORY_CONTAINED or 0 <= level <= known):
            return True
        return level < self.level and not _breaks_alone(clue, level)

    def is_about_another(self, clue: Clue, role: Role) -> bool:
        """Whether a message tells of a device that broke by itself beside those in here.

        A GPU that leaves the bus makes no other one lose memory and no NIC's firmware fail, nor the
        other way round; several that break alike may share a cause, so they stay together. A
        network that is lost breaks nothing within a node.
        """
        if self.is_of_network() and _is_within_node(clue, role):
            return True
        if not _breaks_alone(clue, role.level) or self.concerns(clue.node, clue.message.device):
            return False
        broken = [role_of(each.message) for each in self.clues if _breaks_alone(each, each.level)]
        return bool(broken) and all(
            each is not None and each.fault_class != role.fault_class for each in broken
        )

    def is_of_network(self) -> bool:
        """Whether all that it proves is about NICs, links and switches."""
        shown = [each for each in self.told.values() if each.level > UNEXPLAINED]
        broken = (e for e in self.clues if e.level > LINK_DOWN and not _is_fallout(e))
        kinds = {each.message.kind for each in broken}
        others = self.silences or self.supports or (self.stuck and self.stuck.of_its_own)
        return (
            not others
            and kinds <= {*LINK_KINDS, "nic_fatal"}
            and bool(shown or "nic_fatal" in kinds)
            and all(each.fault_class.partition(".")[0] in _NETWORK for each in shown)
        )

    def is_outlived_by(self, silence: Silence) -> bool:
        """Whether a network was lost, and nodes that went on reporting fell silent later."""
        return self.is_of_network() and silence.since_ns > self.opened_ns

    def take_nodes(self, nodes: Sequence[str], now_ns: int) -> None:
        """New evidence about these nodes: judge it now."""
        self.nodes += [node for node in nodes if node not in self.nodes]
        self.changed_ns = self.due_ns = now_ns

    def take_clue(self, clue: Clue) -> bool:
        """Add a kernel message; whether it is news. Of a flood the weightiest are kept."""
        if clue.message.kind in LINK_KINDS:
            clue = self._counted(clue)
        same = [each.node == clue.node and each.message == clue.message for each in self.clues]
        if any(same) and clue.message.kind not in LINK_KINDS:
            return False
        if not self._has_room_for(clue):
            return False
        if len(self.clues) >= CLUES_MAX:
            least = min(range(CLUES_MAX), key=lambda at: (self.clues[at].level, -at))
            if self.clues[least].level >= clue.level:
                return False
            del self.clues[least]
        self.clues.append(clue)
        if clue.node not in self.nodes:
            self.nodes.append(clue.node)
        return True

    def _has_room_for(self, clue: Clue) -> bool:
        """Of a link the latest state counts; of lines that are not understood the first few."""
        kind = clue.message.kind
        if kind == "not_understood":
            return sum(each.message.kind == kind for each in self.clues) < SIGNS_MAX
        if kind in LINK_KINDS:
            earlier = [each for each in self.clues if is_same_link(each, clue)]
            if any(each.proof.seq > clue.proof.seq for each in earlier):
                return False
            if any(each.message == clue.message and each.message.code > 0 for each in earlier):
                return False
            self.clues = [each for each in self.clues if each not in earlier]
        return True

    def _counted(self, clue: Clue) -> Clue:
        """Of a link that goes down again and again it counts that it does, not how it is now."""
        key = f"{clue.node} {clue.message.label}"
        if clue.message.kind == "link_down" and (
            key in self.link_downs or len(self.link_downs) < CLUES_MAX
        ):
            self.link_downs[key] = self.link_downs.get(key, 0) + 1
        count = step_of(self.link_downs.get(key, 0))
        if not count:
            return clue
        return replace(clue, message=replace(clue.message, kind="link_down", code=count))

    def is_noise(self) -> bool:
        """Whether all that it has are lines that nobody understands."""
        noise = all(each.message.kind == "not_understood" for each in self.clues)
        others = self.exits or self.stuck or self.silences or self.told or self.supports
        return noise and not others

    def is_slowness(self) -> bool:
        """Whether all that it has are ranks that keep their job waiting: that breaks nothing."""
        others = self.clues or self.exits or self.stuck or self.silences
        return bool(self.told) and not others and all(key.startswith(SLOW) for key in self.told)

    def is_of_pace(self) -> bool:
        """Whether all that it has are settings of NICs, pauses and slow ranks.

        They hold a job up and break nothing: what breaks on the same node is another fault.
        """
        others = self.clues or self.exits or self.stuck or self.silences or self.supports
        return (
            bool(self.told)
            and not others
            and all(
                key.startswith(SLOW) or each.fault_class in ("network.config", "network.pause")
                for key, each in self.told.items()
            )
        )

    def has_link_down(self) -> bool:
        """Whether all that it has are links, and one of them is still down."""
        kinds = {each.message.kind for each in self.clues if each.message.code < 0}
        others = self.exits or self.silences or self.told
        known = kinds <= {*LINK_KINDS, "not_understood"} and not others
        return known and "link_down" in kinds

    def tell(self, key: str, finding: Finding) -> bool:
        """Take what counters or steps prove about something; whether it is news."""
        known = self.told.get(key)
        if known is not None and is_same(known, finding):
            return False
        self.told[key] = finding
        return True

    def take_support(self, support: Support) -> bool:
        """Add a counter; whether it is news."""
        if len(self.supports) >= SUPPORTS_MAX:
            return False
        self.supports.append(support)
        return True

    def take_exit(self, exited: Exit) -> bool:
        """Add the end of a rank; whether it is news."""
        if len(self.exits) >= EXITS_MAX:
            return False
        if any(each.job == exited.job and each.rank == exited.rank for each in self.exits):
            return False
        self.exits.append(exited)
        return True


def _breaks_alone(clue: Clue, level: int) -> bool:
    """Whether a message says that a device failed which no other device's failure explains."""
    return level >= MEMORY_LOST or clue.message.kind == "nic_fatal"


def _is_within_node(clue: Clue, role: Role) -> bool:
    """Whether a message is about a GPU, memory or a program; not of processes that ended."""
    return not _is_fallout(clue) and role.fault_class.partition(".")[0] in _WITHIN_NODE


def _is_fallout(clue: Clue) -> bool:
    return clue.message.kind == "xid" and clue.message.code in FALLOUT_XIDS


def is_same_link(one: Clue, other: Clue) -> bool:
    """Whether both messages are about one link of one node."""
    kinds = one.message.kind in LINK_KINDS and other.message.kind in LINK_KINDS
    return kinds and one.node == other.node and one.message.label == other.message.label
