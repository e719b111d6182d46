"""`systemctl status`, `systemctl list-units` and what systemd logs: whether a service is up."""

import re
from collections.abc import Iterable
from typing import Final

from nemesis.producers.readers.notes import Note, Reader, TextLine, note
from nemesis.producers.readers.unplaced import unplaced
from nemesis.schemas.observed import SettingRead

_HEAD: Final = re.compile(r"(?:[●○×↻*] )?([\w@.\\-]+)\.service(?: - .*)?\s*\Z")
_LOADED: Final = re.compile(r"\s+Loaded: (.*?)\s*\Z")
_ACTIVE: Final = re.compile(r"\s+Active: (.*?)\s*\Z")
_LISTED: Final = re.compile(
    r"[●○×* ]*([\w@.\\-]+)\.service\s+(?:loaded|not-found|masked)\s+"
    r"(active|inactive|failed|activating)\s+(\w[\w-]*)\b"
)
# src/core/unit.c and service.c of systemd; `Started` names the unit since release 249
_LOGGED: Final = re.compile(
    r"(?:[●○×* ]*)([\w@.\\-]+)\.service: (?:Failed with result '([\w-]+)'"
    r"|(?:Main|Control) process exited, code=(?:exited, status=[1-9]\d*/|killed, status=\d+/"
    r"|dumped, status=\d+/)([\w-]+)|(Start request repeated too quickly))"
    r"|Started ([\w@.\\-]+)\.service(?: - .*)?\.?\s*\Z"
)


class Units(Reader):
    """Reads the states of services."""

    starts = (_LISTED, _HEAD, _LOADED, _ACTIVE, _LOGGED)

    def __init__(self) -> None:
        self._unit = ""

    def take(self, line: TextLine) -> Iterable[Note]:
        """A state."""
        if match := _LISTED.match(line.text):
            self.known = True
            return [self._note(line, match[1], "active", f"{match[2]} ({match[3]})")]
        if match := _LOGGED.match(line.text):
            self.known = True
            why = match[2] or match[3] or match[4]
            value = f"failed (Result: {why})" if why else "active (running)"
            return [self._note(line, match[1] or match[5], "active", value)]
        if match := _HEAD.match(line.text):
            self._unit = match[1]
            return ()
        if not self._unit:
            return ()
        for name, pattern in (("loaded", _LOADED), ("active", _ACTIVE)):
            if match := pattern.match(line.text):
                self.known = True
                return [self._note(line, self._unit, name, match[1])]
        return ()

    def _note(self, line: TextLine, unit: str, name: str, value: str) -> Note:
        component = f"service//{unit}"
        return note(
            line, SettingRead(**unplaced(line.host), component=component, name=name, value=value)
        )
