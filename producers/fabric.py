"""A switch's ports become facts, told by its collector: what they are, and each poll of them."""

from collections.abc import Sequence

from nemesis.producers.origin import Origin
from nemesis.schemas.observed import (
    FabricInventoryReported,
    FabricSampled,
    PortDescribed,
    PortSeen,
    Tier,
    Transport,
)


def fabric_of(
    origin: Origin, at_ns: int, *, switch: str, ports: Sequence[PortSeen]
) -> FabricSampled:
    """The fact of one poll; `origin` is the collector's, `switch` the canonical name of its switch.

    Counters are as the switch counts them since it started; a port that was not read is left out.
    """
    return FabricSampled(**origin.stamp("fabric", at_ns), switch=switch, ports=tuple(ports))


def fabric_inventory_of(
    origin: Origin,
    at_ns: int,
    *,
    switch: str,
    tier: Tier,
    transport: Transport,
    ports: Sequence[PortDescribed],
) -> FabricInventoryReported:
    """The fact that describes a switch, once at each start and at each change of its cables.

    Peers are as LLDP or the subnet manager tell them, by their canonical names.
    """
    return FabricInventoryReported(
        **origin.stamp("fabric_inventory", at_ns),
        switch=switch,
        tier=tier,
        transport=transport,
        ports=tuple(ports),
    )
