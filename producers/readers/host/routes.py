"""`ip route`: which interface a host uses for which network, in the order in which it decides."""

import re
from collections.abc import Iterable
from typing import Final

from nemesis.producers.readers.notes import Note, Reader, TextLine, note
from nemesis.producers.readers.unplaced import unplaced
from nemesis.schemas.observed import SettingRead

_ROUTE: Final = re.compile(
    r"(?P<to>default|[0-9a-f.:]+(?:/\d{1,3})?)(?: via (?P<via>\S+))? dev (?P<dev>[\w.@-]+)"
    r"(?: proto \w+)?(?P<rest>.*)\Z"
)
_METRIC: Final = re.compile(r"\bmetric (\d+)")
_SOURCE: Final = re.compile(r"\bsrc (\S+)")


class Routes(Reader):
    """Reads the routes of a host."""

    starts = (_ROUTE,)

    def __init__(self) -> None:
        self._count = 0

    def take(self, line: TextLine) -> Iterable[Note]:
        """A route."""
        match = _ROUTE.match(line.text)
        if match is None:
            return ()
        self.known = True
        self._count += 1
        metric, source = _METRIC.search(match["rest"]), _SOURCE.search(match["rest"])
        value = (
            f"{match['to']} dev {match['dev']} via {match['via'] or '-'}"
            f" src {source[1] if source else '-'} metric {metric[1] if metric else '0'}"
        )
        name = f"route.{self._count:04d}"
        component = "config//routes"
        setting = SettingRead(**unplaced(line.host), component=component, name=name, value=value)
        return [note(line, setting)]
