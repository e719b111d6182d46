"""All NICs of a node in the order of their rows: each with a probe of /sys and one of its driver.

A NIC that was there keeps its row for as long as the producer lives: lost is not absent.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from nemesis.producers.node import ethtool, machine
from nemesis.producers.node.ethtool import Ethtool
from nemesis.producers.node.nics import RDMA, Nic, NicRead, nics_of
from nemesis.producers.node.probe import Probe
from nemesis.producers.node.root import Root
from nemesis.producers.sample import Block, block_of
from nemesis.schemas.observed import NicDescribed


class _Row(NamedTuple):
    nic: Nic
    probes: tuple[Probe, ...]


class NicRows:
    """The NICs that a node has had."""

    def __init__(self, root: Root, node: str) -> None:
        self._root: Final = root
        self._node: Final = node
        self._rows: Final[list[_Row]] = []

    def describe(self, was: Sequence[NicDescribed]) -> list[NicDescribed]:
        """The NICs as they are, those that are gone as they were; new ones get a row and probes."""
        known = {row.nic.name for row in self._rows}
        for nic in nics_of(self._root):
            if nic.name not in known:
                self._rows.append(_Row(nic, self._probes_of(nic)))
        before: Mapping[str, NicDescribed] = {each.name: each for each in was}
        return [
            before[part.name] if not part.pci and part.name in before else part
            for part in machine.nic_parts(self._root, self.nics)
        ]

    @property
    def nics(self) -> list[Nic]:
        """In the order of their rows."""
        return [row.nic for row in self._rows]

    @property
    def has_rdma(self) -> bool:
        """Whether one of them is there for RDMA."""
        return any(nic.device.startswith(RDMA) for nic in self.nics)

    def probes(self) -> list[Probe]:
        """Of all of them."""
        return [probe for row in self._rows for probe in row.probes]

    def block(self, channels: Sequence[str], which: str) -> Block:
        """Their readings, "sample" or "state"."""
        return block_of(channels, [_reading(row, which) for row in self._rows])

    def _probes_of(self, nic: Nic) -> tuple[Probe, ...]:
        component = f"nic/{self._node}/{nic.name}"
        probes = [Probe(component, "sysfs", nic.read)]
        if interface := nic.interface:
            asked = Ethtool(self._root, interface, nic.channels)
            probes.append(Probe(component, ethtool.SOURCE, asked.read))
        return tuple(probes)


def _reading(row: _Row, which: str) -> dict[str, int]:
    read: list[NicRead | None] = [probe.value for probe in row.probes]
    return {
        channel: value
        for each in read
        if each is not None
        for channel, value in getattr(each, which).items()
    }
