"""ibdiagnet: the counters of every port of a fabric (ibdiagnet2.pm), and what it found wrong.

NVIDIA ibdiagnet User Manual: a block a port between rules, `name=0x..`; lines of the log begin with
-I-, -W- or -E-, and a table at its end counts warnings and errors of each stage.
"""

import re
from collections.abc import Iterable
from typing import Final

from nemesis.producers.readers.notes import Note, Reader, TextLine, note
from nemesis.producers.readers.unplaced import unplaced
from nemesis.schemas.observed import CountersRead, LogLineWritten, SettingRead

_PORT: Final = re.compile(r"Port=(\d+) Lid=0x[0-9a-fA-F]+ .*\bPort Name=(\S.*?)\s*\Z")
_COUNTER: Final = re.compile(r"([a-z][a-z0-9_]+)\s*=\s*(0x[0-9a-fA-F]{1,16}|\d{1,18})\s*\Z")
_STAGE: Final = re.compile(r"-I- (\S.*?)\s{2,}(\d{1,9}|NA)\s+(\d{1,9}|NA)\b")
_SAID: Final = re.compile(r"-[EW]- \S")
_LOG: Final = re.compile(r"-I- (?:Discover|Links Check|Lids Check|Stage\s)")
_WORD: Final = re.compile(r"[^\w.-]+")


class Ibdiagnet(Reader):
    """Reads ports and findings."""

    starts = (_PORT, _COUNTER, _LOG, _SAID)

    def __init__(self) -> None:
        self._port = ""
        self._log = False

    def take(self, line: TextLine) -> Iterable[Note]:
        """A counter of the port, or a finding."""
        text = line.text
        if match := _PORT.match(text):
            self.known, self._port = True, _component(match[2], match[1])
        elif self._port and (match := _COUNTER.match(text)):
            value = int(match[2], 0)
            if value < 2**63:
                counters = ((match[1], value),)
                read = CountersRead(**unplaced(), component=self._port, counters=counters)
                return [note(line, read)]
        elif _LOG.match(text) or _SAID.match(text):
            self._log = self._log or _LOG.match(text) is not None
            return self._of_log(line)
        return ()

    def _of_log(self, line: TextLine) -> list[Note]:
        self.known = self.known or self._log
        if not self._log:
            return []
        if _SAID.match(line.text):
            text = line.text.strip()[:2000]
            return [note(line, LogLineWritten(**unplaced(), source="network", text=text))]
        stage = _STAGE.match(line.text)
        if stage is None or not stage[3].isdecimal():
            return []
        errors = int(stage[3])
        setting = SettingRead(
            **unplaced(),
            component="fabric/ibdiagnet",
            name=_WORD.sub("_", stage[1].lower())[:60],
            value=f"errors: {errors}" if errors else "no errors",
        )
        return [note(line, setting)]


def _component(name: str, number: str) -> str:
    """A port by the name that ibdiagnet gives it: `leaf1/P17`, `host mlx5_0/P1`, `host/U1/P1`."""
    parts = [_WORD.sub("_", each) for each in re.split(r"[/ ]+", name.strip('"')) if each]
    device = parts[1] if len(parts) > 2 else ""
    if device and not device.startswith("U"):
        return f"nic/{parts[0][:63]}/{device[:60]}"
    last = (parts[-1] if len(parts) > 1 else number).removeprefix("P")
    return f"port/{(parts[0] if parts else 'fabric')[:63]}/{last[:20]}"
