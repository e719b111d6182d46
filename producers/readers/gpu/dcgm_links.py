"""`dcgmi nvlink --link-status`: which NVLinks of each GPU are up, a letter each."""

import re
from collections.abc import Iterable
from typing import Final

from nemesis.producers.readers.notes import Note, Reader, TextLine, note
from nemesis.producers.readers.unplaced import unplaced
from nemesis.schemas.observed import SettingRead

_TITLE: Final = re.compile(r"\|\s+NvLink Link Status\s+\|")
_GPU: Final = re.compile(r"\s+gpuId (\d{1,3}):\s*\Z")
_LINKS: Final = re.compile(r"\s+([UDX_](?: [UDX_]){0,63})\s*\Z")
# Disabled and Not Supported are nobody's fault
_STATES: Final = {"U": "active", "D": "inactive"}


class DcgmLinks(Reader):
    """Reads the links of one GPU after the other."""

    starts = (_TITLE, _GPU)

    def __init__(self) -> None:
        self._gpu = ""

    @property
    def busy(self) -> bool:
        """Below a GPU, whose links come next."""
        return bool(self._gpu)

    def take(self, line: TextLine) -> Iterable[Note]:
        """The links of a GPU."""
        if _TITLE.match(line.text):
            self.known, self._gpu = True, ""
        elif self.known and (match := _GPU.match(line.text)):
            self._gpu = match[1]
        elif self._gpu and (match := _LINKS.match(line.text)):
            gpu, self._gpu = self._gpu, ""
            return [
                note(
                    line,
                    SettingRead(
                        **unplaced(line.host),
                        component=f"gpu//{gpu}",
                        name=f"nvlink.{index}.state",
                        value=_STATES[letter],
                    ),
                )
                for index, letter in enumerate(match[1].split())
                if letter in _STATES
            ]
        return ()
