"""What a node is made of: GPUs, NICs, PCIe switches, NUMA nodes, NVSwitches; kinds by name."""

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from nemesis.schemas.components import pci_address
from nemesis.schemas.errors import BadNameError
from nemesis.schemas.observed import GpuDescribed, NicDescribed
from nemesis.streams.documents import read_toml

KINDS: Final = Path(__file__).with_name("node_kinds.toml")


class NodeModel(
    msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, omit_defaults=True
):
    """What every node is made of: PCI addresses in the order of their indices.

    The lists beside them are as long as they are, or empty where nothing is known.
    """

    model: str
    gpu_model: str
    gpus: tuple[str, ...]
    gpu_numa: tuple[int, ...] = ()
    gpu_pcie: tuple[int, ...] = ()
    """Number of the PCIe switch above each."""
    nics: tuple[str, ...]
    nic_names: tuple[str, ...] = ()
    """mlx5_0 and so on where they are not given."""
    nic_numa: tuple[int, ...] = ()
    nic_pcie: tuple[int, ...] = ()
    nvswitches: tuple[str, ...] = ()
    """Those that a node sees as PCI devices."""
    nvswitch_count: int = 0
    """Of one NVLink domain; 0: as many as `nvswitches`."""
    nvlink_domain: Literal["node", "rack"] = "node"
    nic_rate_mbps: int
    nodes_per_rack: int = 1

    def nic_index(self, gpu_index: int) -> int:
        """The NIC that serves a GPU: the nearest, as the kinds number them."""
        return gpu_index * len(self.nics) // len(self.gpus)

    def gpus_of_nic(self, nic_index: int) -> tuple[int, ...]:
        """The GPUs that a NIC serves."""
        return tuple(at for at in range(len(self.gpus)) if self.nic_index(at) == nic_index)

    def with_gpus(self, count: int) -> "NodeModel":
        """The same node with its first GPUs only, and the NICs that serve them."""
        nics = self.nic_index(count - 1) + 1
        return replace(
            self,
            gpus=self.gpus[:count],
            gpu_numa=self.gpu_numa[:count],
            gpu_pcie=self.gpu_pcie[:count],
            nics=self.nics[:nics],
            nic_names=self.nic_names[:nics],
            nic_numa=self.nic_numa[:nics],
            nic_pcie=self.nic_pcie[:nics],
            nvswitches=self.nvswitches if count == len(self.gpus) else (),
            nvswitch_count=self.nvswitch_count if count == len(self.gpus) else 0,
        )

    def gpu_parts(self) -> tuple[GpuDescribed, ...]:
        """The GPUs, without what differs from node to node."""
        return tuple(
            GpuDescribed(
                pci=pci_address(pci),
                index=at,
                model=self.gpu_model,
                numa=_at(self.gpu_numa, at),
                pcie_switch=_switch(self.gpu_pcie, at),
            )
            for at, pci in enumerate(self.gpus)
        )

    def nic_parts(self) -> tuple[NicDescribed, ...]:
        """The NICs, without what differs from node to node."""
        return tuple(
            NicDescribed(
                name=self.nic_names[at] if self.nic_names else f"mlx5_{at}",
                pci=pci_address(pci),
                numa=_at(self.nic_numa, at),
                pcie_switch=_switch(self.nic_pcie, at),
            )
            for at, pci in enumerate(self.nics)
        )

    def rules(self) -> Iterator[tuple[bool, str]]:
        """(whether it holds, what must hold), each."""
        gpus, nics = len(self.gpus), len(self.nics)
        yield gpus > 0, "node.gpus must name at least one GPU"
        yield nics > 0 and gpus % nics == 0, "node.nics must be one for each GPU, or for so many"
        lists = (
            ("gpu_numa", self.gpu_numa, gpus),
            ("gpu_pcie", self.gpu_pcie, gpus),
            ("nic_names", self.nic_names, nics),
            ("nic_numa", self.nic_numa, nics),
            ("nic_pcie", self.nic_pcie, nics),
        )
        for name, listed, count in lists:
            yield len(listed) in (0, count), f"node.{name} must have {count} entries or none"
        for name, pcis in (
            ("gpus", self.gpus),
            ("nics", self.nics),
            ("nvswitches", self.nvswitches),
        ):
            for pci in pcis:
                yield _is_pci(pci), f"node.{name}: {pci!r} is no PCI address like 1b:00.0"
        yield self.nodes_per_rack > 0, "node.nodes_per_rack must be positive"


@cache
def node_kinds() -> dict[str, NodeModel]:
    """Every kind that is known by name."""
    return msgspec.convert(read_toml(KINDS), dict[str, NodeModel])


def _at(listed: Sequence[int], index: int) -> int:
    return listed[index] if listed else -1


def _switch(listed: Sequence[int], index: int) -> str:
    return f"pcie{listed[index]}" if listed else ""


def _is_pci(text: str) -> bool:
    try:
        pci_address(text)
    except BadNameError:
        return False
    return True
