"""One poll of a switch's ports becomes one `fabric` fact, told by the collector of that switch."""

from collections.abc import Sequence

from nemesis.producers.origin import Origin
from nemesis.schemas.observed import FabricSampled, PortSeen


def fabric_of(
    origin: Origin, at_ns: int, *, switch: str, ports: Sequence[PortSeen]
) -> FabricSampled:
    """The fact of one poll; `origin` is the collector's, `switch` the canonical name of its switch.

    Counters are as the switch counts them since it started; a port that was not read is left out.
    """
    return FabricSampled(**origin.stamp("fabric", at_ns), switch=switch, ports=tuple(ports))
