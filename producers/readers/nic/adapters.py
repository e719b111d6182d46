"""`ibstat`, `ibv_devinfo`, `rdma link` and `ethtool -S`: states and counters, device by device."""

import re
from collections.abc import Iterable
from typing import Final

from nemesis.producers.readers.notes import Note, Reader, TextLine, note
from nemesis.producers.readers.unplaced import unplaced
from nemesis.schemas.observed import CountersRead, SettingRead

_DEVICE: Final = re.compile(r"CA '(\w+)'|hca_id:\s+(\w+)")
# `ethtool -S eth0` itself stands above its output where a person or a script pasted both
_COMMAND: Final = re.compile(r".*\bethtool -S (\w[\w.-]*)\s*\Z|NIC statistics for (\w[\w.-]*)")
_STATISTICS: Final = re.compile(r"NIC statistics:\s*\Z")
_COUNTER: Final = re.compile(r"\s+([a-z][\w.-]*): (\d{1,18})\s*\Z")
_FIELD: Final = re.compile(
    r"\s+(State|Physical state|Rate|Link layer|state|phys_state|active_mtu|link_layer|active_speed"
    r"|active_width):\s+(\S.*?)\s*\Z"
)
# rdma-link(8)
_RDMA_LINK: Final = re.compile(
    r"link (\w+)/\d+ (?:.* )?state (\w+) physical_state (\w+)(?: netdev \S+)?\s*\Z"
)
_NAMES: Final = {
    "State": "state",
    "Physical state": "phys_state",
    "Rate": "rate",
    "Link layer": "link_layer",
}
UNNAMED: Final = "unnamed"


class Adapters(Reader):
    """Reads adapters one after another."""

    starts = (_DEVICE, _COMMAND, _STATISTICS, _COUNTER, _FIELD, _RDMA_LINK)

    def __init__(self) -> None:
        self._device = ""
        self._counts = False

    def take(self, line: TextLine) -> Iterable[Note]:
        """A state or a counter."""
        text = line.text
        if match := _DEVICE.match(text):
            self._device, self._counts = match[1] or match[2], False
        elif match := _COMMAND.match(text):
            self._device = match[1] or match[2]
            self._counts = match[2] is not None
        elif _STATISTICS.match(text):
            self._counts, self.known = True, True
        elif self._counts and (match := _COUNTER.match(text)):
            component = f"nic//{self._device or UNNAMED}"
            counters = ((match[1], int(match[2])),)
            return [
                note(
                    line,
                    CountersRead(**unplaced(line.host), component=component, counters=counters),
                )
            ]
        elif self._device and (match := _FIELD.match(text)):
            self.known = True
            return [self._state(line, self._device, _NAMES.get(match[1], match[1]), match[2])]
        elif match := _RDMA_LINK.match(text):
            self.known = True
            states = (("state", match[2]), ("phys_state", match[3]))
            return [self._state(line, match[1], name, value) for name, value in states]
        return ()

    def _state(self, line: TextLine, device: str, name: str, value: str) -> Note:
        component = f"nic//{device}"
        return note(
            line, SettingRead(**unplaced(line.host), component=component, name=name, value=value)
        )
