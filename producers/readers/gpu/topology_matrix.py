"""`nvidia-smi topo -m`: how the GPUs of a host reach each other, and the NIC nearest to each.

Cells (its own legend): X self, NV# bonded NVLinks, PIX one PCIe bridge, PXB several, PHB a host
bridge, NODE within a NUMA node, SYS across. NICs are columns NIC0, NIC1, ... with a legend below,
in older releases columns of their own names.
"""

import re
from collections.abc import Iterable
from typing import Final

from nemesis.producers.readers.notes import Note, Reader, TextLine, note
from nemesis.producers.readers.unplaced import unplaced
from nemesis.schemas.observed import SettingRead

_COLUMN: Final = re.compile(r"(GPU\d+|NIC\d+|(?:mlx|bnxt|rdma|ib|efa|eth)[\w.-]*)")
_HEAD: Final = re.compile(r"\s*GPU0\s")
_ROW: Final = re.compile(r"\s*(GPU\d+)\s+(\S.*)\Z")
_CELL: Final = re.compile(r"X|NV\d{1,2}|PIX|PXB|PHB|NODE|SYS|N/A|SOC\Z")
_LEGEND: Final = re.compile(r"\s+(NIC\d+): (\w[\w.-]*)\s*\Z")
_NEAR: Final = ("PIX", "PXB")
GPUS_MAX: Final = 64


class TopologyMatrix(Reader):
    """Reads the matrix row by row; NICs by their names at its end."""

    starts = (_HEAD, _LEGEND)

    def __init__(self) -> None:
        self._columns: list[str] = []
        self._near: list[tuple[TextLine, str, str]] = []
        self._names: dict[str, str] = {}

    @property
    def busy(self) -> bool:
        """Below the head of a matrix."""
        return bool(self._columns)

    def take(self, line: TextLine) -> Iterable[Note]:
        """How one GPU reaches the others."""
        if _is_head(line.text):
            self.known = True
            self._columns = _COLUMN.findall(line.text.partition("CPU Affinity")[0])[: 2 * GPUS_MAX]
            return ()
        if match := _LEGEND.match(line.text):
            self._names[match[1]] = match[2]
            return ()
        match = _ROW.match(line.text)
        if not self._columns or match is None:
            return ()
        return self._row(line, match[1], match[2].split())

    def end(self) -> Iterable[Note]:
        """The NIC nearest to each GPU, under the name that the legend gives it."""
        return [
            _note(line, gpu, "topology.nic", self._names.get(nic, nic))
            for line, gpu, nic in self._near
        ]

    def _row(self, line: TextLine, gpu: str, cells: list[str]) -> list[Note]:
        found = []
        for column, cell in zip(self._columns, cells, strict=False):
            if not _CELL.match(cell):
                break
            if column.startswith("GPU") and column != gpu:
                name = f"topology.gpu.{column.removeprefix('GPU')}"
                found.append(_note(line, gpu, name, cell))
            elif not column.startswith("GPU") and cell in _NEAR:
                self._near.append((line, gpu, column))
        return found[:GPUS_MAX]


def _is_head(text: str) -> bool:
    """Columns GPU0 GPU1 ..., and no cell of a row."""
    words = text.split()[:2]
    return (
        len(words) == 2
        and words[0] == "GPU0"
        and bool(_COLUMN.match(words[1]) or words[1] == "CPU")
    )


def _note(line: TextLine, gpu: str, name: str, value: str) -> Note:
    component = f"gpu//{gpu.removeprefix('GPU')}"
    setting = SettingRead(**unplaced(line.host), component=component, name=name, value=value)
    return note(line, setting)
