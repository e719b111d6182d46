"""`nvidia-smi -q -x`: the same tree as `nvidia-smi -q`, in XML, with other names for some leaves.

It has an element a line, so it is read line by line: a report that was cut off still tells what it
has.
"""

import re
from collections.abc import Iterable
from typing import Final

from nemesis.producers.readers.gpu.nvidia_smi_query import gpu_note
from nemesis.producers.readers.notes import Note, Reader, TextLine
from nemesis.schemas.components import pci_address

_GPU: Final = re.compile(r"\s*<gpu id=\"([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\">")
_LEAF: Final = re.compile(r"\s*<(\w+)>([^<]*)</\1>\s*\Z")
_OPEN: Final = re.compile(r"\s*<(\w+)(?: [^>]*)?>\s*\Z")
_CLOSE: Final = re.compile(r"\s*</(\w+)>\s*\Z")
_HEAD: Final = re.compile(r"\s*<nvidia_smi_log>|<!DOCTYPE nvidia_smi_log")
# names of the leaves in XML: as the report of `nvidia-smi -q` has them
_RENAMED: Final = (
    (re.compile(r"clocks_(?:event|throttle)_reason_"), ""),
    (re.compile(r"remapped_row_pending\Z"), "pending"),
    (re.compile(r"remapped_row_failure\Z"), "remapping_failure_occurred"),
    (re.compile(r"remapped_row_corr\Z"), "correctable_error"),
    (re.compile(r"remapped_row_unc\Z"), "uncorrectable_error"),
    (re.compile(r"pci_gpu_link_info"), "gpu_link_info"),
    (re.compile(r"link_widths\.(max|current)_link_width"), r"link_width.\1"),
    (re.compile(r"\bgpu_temp\Z"), "gpu_current_temp"),
    (re.compile(r"\bgpu_util\Z"), "gpu"),
    (re.compile(r"\bsm_clock\Z"), "sm"),
)
DEPTH_MAX: Final = 32


class NvidiaSmiXml(Reader):
    """Reads the report line by line."""

    starts = (_GPU, _HEAD)

    def __init__(self) -> None:
        self._gpu = ""
        self._path: list[str] = []

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
            self.known = _HEAD.match(line.text) is not None
            return ()
        if match := _LEAF.match(line.text):
            found = gpu_note(line, self._gpu, _renamed([*self._path, match[1]]), match[2].strip())
            return [found] if found else ()
        if (match := _CLOSE.match(line.text)) and match[1] in self._path:
            del self._path[self._path.index(match[1]) :]
        elif (match := _OPEN.match(line.text)) and len(self._path) < DEPTH_MAX:
            self._path.append(match[1])
        return ()


def _renamed(path: list[str]) -> str:
    name = ".".join(path)
    for pattern, new in _RENAMED:
        name = pattern.sub(new, name)
    return name
