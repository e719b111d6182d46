"""What a node is made of, from /sys and /proc: GPUs, NICs, NVSwitches, what they hang at, drivers.

NVML adds to a GPU what only its driver knows (gpus.py); a GPU without a driver is listed all the
same, because that nobody can read it is a finding and not an absence.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from nemesis.producers.node.nics import Nic
from nemesis.producers.node.root import Root
from nemesis.schemas.channels import ABSENT
from nemesis.schemas.observed import GpuDescribed, NicDescribed

PCI: Final = "sys/bus/pci/devices"
NVIDIA: Final = "0x10de"
_GPU_CLASSES: Final = ("0x0300", "0x0302")  # VGA and 3D controllers (PCI code and ID assignment)
_SWITCH_CLASS: Final = "0x0680"  # other bridges: how NVSwitches show themselves
_BRIDGES_MIN: Final = 4  # root port, switch up, switch down, device: the second is the switch


def nvidia_devices(root: Root) -> tuple[list[str], list[str]]:
    """(PCI addresses of GPUs, of NVSwitches), in the order of their addresses."""
    gpus: list[str] = []
    switches: list[str] = []
    for pci in root.names(PCI):
        if root.line(f"{PCI}/{pci}/vendor") != NVIDIA:
            continue
        kind = root.line(f"{PCI}/{pci}/class")[:6]
        if kind in _GPU_CLASSES:
            gpus.append(pci)
        elif kind == _SWITCH_CLASS:
            switches.append(pci)
    return gpus, switches


def gpu_parts(root: Root, told: Mapping[str, GpuDescribed]) -> list[GpuDescribed]:
    """The GPUs in the order of their PCI addresses; `told` by NVML where it tells of one."""
    pcis = sorted({*nvidia_devices(root)[0], *told})
    parts: list[GpuDescribed] = []
    for index, pci in enumerate(pcis):
        known = told.get(pci, GpuDescribed(pci=pci, index=index))
        parts.append(
            GpuDescribed(
                pci=known.pci,
                index=known.index,
                uuid=known.uuid,
                serial=known.serial,
                model=known.model,
                numa=_numa(root, f"{PCI}/{pci}"),
                pcie_switch=_switch(root, f"{PCI}/{pci}"),
                nvlink_domain=known.nvlink_domain,
            )
        )
    return parts


def nic_parts(root: Root, nics: Sequence[Nic]) -> list[NicDescribed]:
    """The NICs in the order of their rows."""
    parts: list[NicDescribed] = []
    for nic in nics:
        path = root.pci_path(nic.device)
        parts.append(
            NicDescribed(
                name=nic.name,
                pci=path[-1] if path else "",
                numa=_numa(root, nic.device),
                pcie_switch=_switch(root, nic.device),
            )
        )
    return parts


def settings(root: Root, node: str, nics: Sequence[Nic]) -> dict[tuple[str, str], str]:
    """(component, name) to how it is set."""
    found: dict[tuple[str, str], str] = {}
    if driver := root.line("sys/module/nvidia/version"):
        found[f"node/{node}", "nvidia_driver"] = driver
    for nic in nics:
        mtu = root.number(f"sys/class/net/{nic.interface}/mtu") if nic.interface else ABSENT
        if mtu != ABSENT:
            found[f"nic/{node}/{nic.name}", "mtu"] = str(mtu)
    return found


def model_of(root: Root) -> str:
    """What the maker calls the machine; "" where it does not say."""
    maker = root.line("sys/class/dmi/id/sys_vendor")
    product = root.line("sys/class/dmi/id/product_name")
    return " ".join(word for word in (maker, product) if word)[:200]


def _numa(root: Root, device: str) -> int:
    node = root.number(f"{device}/numa_node")  # -1: the firmware does not say
    return node if 0 <= node < 2**31 else -1


def _switch(root: Root, device: str) -> str:
    path = root.pci_path(device)
    return path[-3] if len(path) >= _BRIDGES_MIN else ""
