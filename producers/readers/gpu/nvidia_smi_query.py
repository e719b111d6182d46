"""`nvidia-smi -q`: the states and error counters of each GPU.

The report is a tree by indentation. A name is the path of headings above it, in lower case, from
the GPU on: `ecc_errors.volatile.sram_uncorrectable`, `fabric.state`. The GPU's own line gives its
PCI address. Counters since the driver was loaded (volatile) or since the board was made (aggregate)
are lifetime counts, as `CountersRead` says.
"""

import re
from collections.abc import Iterable
from typing import Final

from nemesis.producers.readers.notes import Note, Reader, TextLine, note
from nemesis.producers.readers.unplaced import unplaced
from nemesis.schemas.components import pci_address
from nemesis.schemas.observed import CountersRead, SettingRead

_GPU: Final = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s*\Z")
_FIELD: Final = re.compile(r"( *)(\S.*?)(?: +: ?(.*))?\s*\Z")
_HEADINGS: Final = re.compile(
    r"\s*(?:ECC Errors|Remapped Rows|Retired Pages|Clocks (?:Event|Throttle) Reasons|Fabric"
    r"|(?:GPU )?Power Readings"
    r"|GPU Link Info|FB Memory Usage|=+NVSMI LOG=+)\s*\Z"
)
COUNTED: Final = re.compile(
    r"ecc_errors\.(?:volatile|aggregate)\.|remapped_rows\.\w*correctable_error\Z|replays_since_reset"
)
STATES: Final = re.compile(
    r"remapped_rows\.(?:pending|remapping_failure_occurred)\Z|fabric\.|"
    r"clocks_(?:event|throttle)_reasons\.(?:hw_|sw_thermal)|gpu_link_info\.|sram_threshold_exceeded"
    r"|gpu_recovery_action|(?:channel|tpc)_repair_pending|unrepairable_memory"
    r"|\Apower_readings\.power_(?:draw|limit)\Z"
    r"|\Agpu_power_readings\.(?:(?:instantaneous_)?power_draw|current_power_limit)\Z"
    r"|retired_pages\.pending|\Aclocks\.sm\Z|\Autilization\.gpu\Z|\Atemperature\.gpu_current_temp\Z|\Aperformance_state\Z|\A(?:product_name|driver_version)\Z"
)
_COUNT: Final = re.compile(r"\d{1,18}\Z")


class NvidiaSmiQuery(Reader):
    """Reads the report of `nvidia-smi -q`, whole or from any heading on."""

    starts = (_GPU, _HEADINGS)

    def __init__(self) -> None:
        self._gpu = ""
        self._path: list[tuple[int, str]] = []

    @property
    def busy(self) -> bool:
        """In the report."""
        return self.known

    def take(self, line: TextLine) -> Iterable[Note]:
        """A state or a counter of interest."""
        if match := _GPU.match(line.text):
            self.known, self._gpu, self._path = True, pci_address(match[1]), []
            return ()
        if not self.known:
            self.known = _HEADINGS.match(line.text) is not None
        field = _FIELD.match(line.text)
        if not self.known or field is None:
            return ()
        indent, name, value = len(field[1]), slug(field[2]), field[3]
        self._path = [each for each in self._path if each[0] < indent]
        if value is None:
            self._path.append((indent, name))
            return ()
        path = ".".join([*(each for _, each in self._path), name])
        if name.startswith("hw_slowdown"):
            self._path.append((indent, name))  # its causes are indented below it
        found = gpu_note(line, self._gpu, path, value.strip())
        return [found] if found else ()


def gpu_note(line: TextLine, pci: str, path: str, value: str) -> Note | None:
    """What a leaf of the tree says of a GPU, None for one of no interest or of no GPU."""
    if not pci:
        return None
    gpu = f"gpu//{pci}"
    if COUNTED.search(path) and _COUNT.match(value):
        counters = ((path, int(value)),)
        return note(line, CountersRead(**unplaced(line.host), component=gpu, counters=counters))
    if STATES.search(path):
        return note(line, SettingRead(**unplaced(line.host), component=gpu, name=path, value=value))
    return None


def slug(name: str) -> str:
    """A heading as part of a name."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
