"""`devlink health show`: what the reporters of an adapter's firmware and queues found.

Shape: iproute2 devlink/devlink.c, in its lines of three levels and in its short form of one line.
"""

import re
from collections.abc import Iterable
from typing import Final

from nemesis.producers.readers.notes import Note, Reader, TextLine, note
from nemesis.producers.readers.unplaced import unplaced
from nemesis.schemas.components import pci_address
from nemesis.schemas.observed import SettingRead

_DEVICE: Final = re.compile(
    r"\s*pci/([0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])(?:/\d+)?:"
)
_REPORTER: Final = re.compile(r"\breporter (\w+)")
_STATE: Final = re.compile(r"\bstate (healthy|error)\b")


class DevlinkHealth(Reader):
    """Reads reporters of adapters one after another."""

    starts = (_DEVICE,)
    holds = (_REPORTER, _STATE)

    def __init__(self) -> None:
        self._device = self._reporter = ""

    def take(self, line: TextLine) -> Iterable[Note]:
        """The state of a reporter."""
        text = line.text
        if match := _DEVICE.match(text):
            self._device, self._reporter = pci_address(match[1]), ""
            text = text[match.end() :]
        if not self._device:
            return ()
        if match := _REPORTER.search(text):
            self.known, self._reporter = True, match[1]
        state = _STATE.search(text)
        if state is None or not self._reporter:
            return ()
        setting = SettingRead(
            **unplaced(line.host),
            component=f"nic//{self._device}",
            name=f"health.{self._reporter}",
            value=state[1],
        )
        return [note(line, setting)]
