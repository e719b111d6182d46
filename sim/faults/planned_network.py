"""Faults of NICs, links, switches and their settings, as a scenario plans them."""

from typing import Annotated, ClassVar, Final, Literal

import msgspec

from nemesis.sim.faults.plan import Answer, Few, OnNic, PerMille, Planned, Right, Seconds

_WITH_IT: Final = ("{node}", "{rank}")
_FABRIC: Final = Right(
    classes=("network.fabric",),
    components=("{switch}",),
    actions=("fix_fabric", "shrink", "swap_node", "restart_job", "pause"),
)
_CONFIG: Final = Right(
    classes=("network.config",),
    components=("{nic}", "config/{node_name}/{nic_name}"),
    actions=("fix_config", "swap_node", "shrink"),
    harmless=(*_WITH_IT, "{link}"),
)


class NicFlap(OnNic, kw_only=True, frozen=True, tag="nic-flap"):
    """A NIC's link goes down and comes back."""

    SEAT: ClassVar[str] = "nic"
    RIGHT: ClassVar[Answer] = Right(
        classes=("network.link", "nic"),
        components=("{link}", "{nic}"),
        actions=("reinit_communicator", "shrink", "swap_node"),
        harmless=_WITH_IT,
    )

    flaps_count: Few = 3
    down_s: Annotated[float, msgspec.Meta(ge=0.1, le=600.0)] = 5.0
    up_s: Annotated[float, msgspec.Meta(ge=0.1, le=600.0)] = 6.0
    """Between two flaps."""


class NicDead(OnNic, kw_only=True, frozen=True, tag="nic-dead"):
    """A NIC stops moving data with its port up; ranks elsewhere abort before it says a word."""

    RIGHT: ClassVar[Answer] = Right(
        classes=("nic",),
        components=("{nic}",),
        actions=("swap_node", "shrink", "drain_node"),
        harmless=("{link}", "{node}", "{rank}"),
    )

    loud_count: Few = 3
    """Ranks on other nodes that abort."""
    loud_after_s: Seconds = 4.0
    line_after_s: Seconds = 6.0
    """When its driver tells, by one line."""


class NicDown(OnNic, kw_only=True, frozen=True, tag="nic-down"):
    """A NIC's firmware fails for good: its driver says so and takes the port down."""

    RIGHT: ClassVar[Answer] = Right(
        classes=("nic",),
        components=("{nic}",),
        actions=("swap_node", "shrink", "drain_node"),
        harmless=("{link}", "{node}", "{rank}"),
    )


class PortDown(OnNic, kw_only=True, frozen=True, tag="port-down"):
    """A port of a leaf switch goes down and stays so."""

    SEAT: ClassVar[str] = "port"
    RIGHT: ClassVar[Answer] = Right(
        classes=("network.link",),
        components=("{port}", "{link}"),
        actions=("swap_node", "shrink"),
        harmless=_WITH_IT,
    )


class OpticDegraded(OnNic, kw_only=True, frozen=True, tag="optic-degraded"):
    """A transceiver fades: more bits are corrected, then code words are lost and sent again."""

    SEAT: ClassVar[str] = "link"
    RIGHT: ClassVar[Answer] = Right(
        classes=("network.link", "straggler.network"),
        components=("{link}", "{nic}", "{port}"),
        actions=("watch", "cordon_node", "swap_node", "fix_fabric", "shrink"),
        harmless=_WITH_IT,
    )

    end: Literal["nic", "switch"] = "switch"
    """Whose light fades: the other end counts the errors."""
    slowdown_per_mille: PerMille = 2_000
    """By how much a collective over it takes longer at worst."""
    ramp_s: Seconds = 20.0


class SwitchDown(OnNic, kw_only=True, frozen=True, tag="switch-down"):
    """A leaf switch stops; ranks on other leaves abort first, its own nodes say that links fell."""

    SEAT: ClassVar[str] = "switch"
    RIGHT: ClassVar[Answer] = msgspec.structs.replace(
        _FABRIC, harmless=("{switch_ports}", "{switch_links}")
    )

    loud_count: Few = 4
    loud_after_s: Seconds = 3.0
    lasts_s: Seconds = 0.0
    """0: until the end."""


class SpineDown(OnNic, kw_only=True, frozen=True, tag="spine-down"):
    """A spine switch stops: flows go around it over fewer links, and no NIC loses its own."""

    SEAT: ClassVar[str] = "spine"
    RIGHT: ClassVar[Answer] = Right(
        classes=("network.fabric",),
        components=("{spine}",),
        actions=("fix_fabric", "watch", "none"),
        harmless=("{spine_ports}",),
    )

    slowdown_per_mille: PerMille = 1_500
    lasts_s: Seconds = 0.0


class RouteLost(OnNic, kw_only=True, frozen=True, tag="route-lost"):
    """A switch loses what two NICs send each other; each of them reaches all others."""

    SEAT: ClassVar[str] = "switch"
    RIGHT: ClassVar[Answer] = _FABRIC

    counted: bool = False
    """Whether the switch counts what it drops, and does not lose it silently."""
    lasts_s: Seconds = 0.0
    """0: until the end."""


class GidWrong(OnNic, kw_only=True, frozen=True, tag="gid-wrong"):
    """A NIC is set to a GID of another protocol: no queue pair over it ever connects."""

    RIGHT: ClassVar[Answer] = _CONFIG

    gid_index: Annotated[int, msgspec.Meta(ge=0, le=2)] = 1
    """All others have 3."""


class MtuWrong(OnNic, kw_only=True, frozen=True, tag="mtu-wrong"):
    """A NIC's MTU is smaller than its peers': large messages are lost and sent again."""

    RIGHT: ClassVar[Answer] = _CONFIG

    mtu: Annotated[int, msgspec.Meta(ge=256, le=4_096)] = 1_500
    """All others have 4200."""
    slowdown_per_mille: PerMille = 4_000


class PfcWrong(OnNic, kw_only=True, frozen=True, tag="pfc-wrong"):
    """A NIC pauses another priority than its switch: congestion drops packets in place of it."""

    RIGHT: ClassVar[Answer] = _CONFIG

    slowdown_per_mille: PerMille = 3_000


class PauseStorm(OnNic, kw_only=True, frozen=True, tag="pause-storm"):
    """A node cannot take in what it is sent and pauses its leaf; the leaf pauses all others."""

    RIGHT: ClassVar[Answer] = Right(
        classes=("network.pause",),
        components=("{nic}", "{node}"),
        actions=("fix_fabric", "swap_node", "cordon_node", "shrink"),
        harmless=("{link}", "{port}", "{rank}"),
    )

    origin: Literal["receiver", "nic"] = "receiver"
    """receiver: the host behind the NIC is slow; nic: its own buffers are broken."""
    slowdown_per_mille: PerMille = 5_000
    lasts_s: Seconds = 0.0


class PauseDeadlock(OnNic, kw_only=True, frozen=True, tag="pause-deadlock"):
    """Ports pause each other in a ring: nothing moves, though no counter says error."""

    SEAT: ClassVar[str] = "switch"
    RIGHT: ClassVar[Answer] = Right(
        classes=("network.pause", "network.fabric"),
        components=("{switch}", "{ring_ports}"),
        actions=("fix_fabric", "shrink", "swap_node", "restart_job"),
    )

    ring_count: Annotated[int, msgspec.Meta(ge=3, le=8)] = 4


class RackPower(Planned, kw_only=True, frozen=True, tag="rack-power"):
    """A rack loses power: all its nodes fall silent at once."""

    SEAT: ClassVar[str] = "rack"
    RIGHT: ClassVar[Answer] = Right(
        classes=("unknown", "host.service"),
        components=("{rack}", "{rack_nodes}"),
        actions=("shrink", "swap_node", "restart_job"),
        harmless=("{rack_ranks}",),
    )

    returns_s: Seconds = 0.0
    """When power is back; 0: not in this run."""
