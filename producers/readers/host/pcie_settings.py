"""`lspci`: access control of bridges, links narrower than their devices, GPUs that answer nothing.

A bridge with request redirection sends peer-to-peer traffic of the devices below it up to the root
(PCI Express Base Specification, 6.12 Access Control Services).
"""

import re
from collections.abc import Iterable
from typing import Final

from nemesis.producers.readers.notes import Note, Reader, TextLine, note
from nemesis.producers.readers.unplaced import unplaced
from nemesis.schemas.components import pci_address
from nemesis.schemas.observed import SettingRead

_DEVICE: Final = re.compile(r"((?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) (\S.*?)\s*\Z")
_ACS: Final = re.compile(r"\s+ACSCtl:\s+(\S.*?)\s*\Z")
_LINK: Final = re.compile(r"\s+Lnk(Cap|Sta):\s(?:.*?\bSpeed ([\d.]+)GT/s)?.*?\bWidth x(\d+)")
# PCI classes 02xx, 0207 and 03xx, as lspci names them
_GPU: Final = re.compile(r"(?:3D|VGA compatible) controller.*NVIDIA")
# what is read of a device that is not there is all ones: revision ff, header type 7f
_GONE: Final = re.compile(r"\(rev ff\)|Unknown header type 7f")
_MOVES_DATA: Final = re.compile(r"(?:3D|VGA compatible|Ethernet|Infiniband|Network) controller")


class PcieSettings(Reader):
    """Reads settings of PCI devices."""

    starts = (_DEVICE, _ACS, _LINK)
    holds = (_GONE,)

    def __init__(self) -> None:
        self._device = ""
        self._what = ""
        self._lanes = self._speed = ""
        self._unnamed = 0
        self._gpus: dict[str, TextLine | None] = {}
        """Address to the line that shows it gone."""

    def take(self, line: TextLine) -> Iterable[Note]:
        """A setting of a device."""
        if match := _DEVICE.match(line.text):
            self._device, self._what = pci_address(match[1]), match[2]
            self._lanes = self._speed = ""
            self._take_gpu(line)
            return ()
        if line.text[:1] not in "\t ":
            return ()
        self._take_gpu(line)
        if match := _ACS.match(line.text):
            self.known = True
            return [self._note(line, "config//pci-acs", self._device or self._bridge(), match[1])]
        if not self._device:
            return ()
        if (match := _LINK.match(line.text)) and _MOVES_DATA.match(self._what):
            self.known = True
            return self._take_link(line, *match.groups(""))
        return ()

    def end(self) -> Iterable[Note]:
        """GPUs that are listed and answer nothing, and how many do."""
        answering = sum(line is None for line in self._gpus.values())
        for gpu, line in self._gpus.items():
            if line is not None:
                yield self._note(line, f"gpu//{gpu}", "config_space", f"gone; {answering} answer")

    def _take_link(self, line: TextLine, which: str, speed: str, lanes: str) -> list[Note]:
        if which == "Cap":
            self._lanes, self._speed = lanes, speed
            return []
        if not self._lanes:
            return []
        value = f"x{lanes} of x{self._lanes}: {self._what}"
        found = [self._note(line, "config//pcie-link", self._device, value)]
        if speed and self._speed:
            value = f"{speed} of {self._speed} GT/s: {self._what}"
            found.append(self._note(line, "config//pcie-speed", self._device, value))
        return found

    def _take_gpu(self, line: TextLine) -> None:
        if not _GPU.match(self._what):
            return
        self.known = True
        gone = line if _GONE.search(line.text) else None
        self._gpus[self._device] = self._gpus.get(self._device) or gone

    def _bridge(self) -> str:
        """`lspci -vvv | grep ACSCtl` shows settings without whose they are."""
        self._unnamed += 1
        return f"bridge-{self._unnamed}"

    def _note(self, line: TextLine, component: str, name: str, value: str) -> Note:
        return note(
            line, SettingRead(**unplaced(line.host), component=component, name=name, value=value)
        )
