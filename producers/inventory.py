"""What a node is made of becomes an `inventory` fact, once at each start and at each change."""

from collections.abc import Sequence

import msgspec

from nemesis.producers.origin import Origin
from nemesis.schemas.components import pci_address
from nemesis.schemas.observed import GpuDescribed, InventoryReported, NicDescribed


def inventory_of(
    origin: Origin,
    at_ns: int,
    *,
    gpus: Sequence[GpuDescribed],
    nics: Sequence[NicDescribed],
    model: str = "",
    rack: str = "",
    nvswitches: Sequence[str] = (),
) -> InventoryReported:
    """The fact that describes a node; PCI addresses as their sources print them.

    The order is kept: a device's place in it is its row in samples.

    Raises:
        BadNameError: not a PCI address.
    """
    return InventoryReported(
        **origin.stamp("inventory", at_ns),
        gpus=tuple(msgspec.structs.replace(gpu, pci=pci_address(gpu.pci)) for gpu in gpus),
        nics=tuple(
            msgspec.structs.replace(nic, pci=pci_address(nic.pci)) if nic.pci else nic
            for nic in nics
        ),
        model=model,
        rack=rack,
        nvswitches=tuple(pci_address(pci) for pci in nvswitches),
    )
