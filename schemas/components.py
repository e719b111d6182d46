"""Canonical names of what can be at fault, as `kind/part/part`.

One component has one name: a GPU or an NVSwitch is named by its node and PCI address or index,
everything else as its owner prints it. Aliases (index, UUID, serial) are attributes of the
inventory, never names.
"""

import re
from typing import Final, cast

from nemesis.schemas.codes import COMPONENT_KINDS, ComponentKind
from nemesis.schemas.errors import BadNameError

UNKNOWN_HOST: Final = "localhost"
# DDDD:BB:DD, an optional function, an optional longer domain as NVML prints it (00000000:1B:00.0)
_PCI: Final = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-7]))?\Z", re.I)


def pci_address(text: str) -> str:
    """A PCI address in canonical form: lower case, four-digit domain, with its function.

    Domains above ffff exist only behind VMD bridges and keep their digits.

    Raises:
        BadNameError: the text is not a PCI address.
    """
    match = _PCI.match(text.strip())
    if match is None:
        raise BadNameError(f"not a PCI address: {text[:40]!r}, expected dddd:bb:dd.f")
    domain, bus, device, function = match.groups()
    number = int(domain or "0", 16)
    return f"{number:04x}:{bus.lower()}:{device.lower()}.{function or '0'}"


def gpu(node: str, pci: str) -> str:
    """The name of a GPU: `gpu/n012/0000:1b:00.0`."""
    return f"gpu/{node}/{pci_address(pci)}"


def node(name: str) -> str:
    """The name of a node: `node/n012`."""
    return f"node/{name}"


def rank(job: str, number: int) -> str:
    """The name of a rank of a job: `rank/llama/417`."""
    return f"rank/{job}/{number}"


def kind_of(component: str) -> ComponentKind:
    """The kind of a component name.

    Raises:
        BadNameError: the name is not `kind/...` with a known kind.
    """
    kind, slash, rest = component.partition("/")
    if not slash or not rest or kind not in COMPONENT_KINDS:
        raise BadNameError(f"not a component: {component[:60]!r}, expected kind/name")
    return cast(ComponentKind, kind)


def node_of(component: str) -> str | None:
    """The node on which a component sits, or None where its name does not say."""
    kind, _, rest = component.partition("/")
    on_node = ("node", "gpu", "nic", "link", "nvlink", "nvswitch", "dimm", "service", "process")
    return rest.split("/", 1)[0] if kind in on_node else None
