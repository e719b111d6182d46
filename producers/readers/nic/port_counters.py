"""Counters and states of RDMA ports: lines of /sys/class/infiniband, perfquery, `rdma statistic`.

A tree of files is what people copy with `grep -r . /sys/class/infiniband` or `tail -n +1`; its
path names device and port. perfquery names a port in its first line.
"""

import re
from collections.abc import Iterable
from typing import Final

from nemesis.producers.readers.notes import Note, Reader, TextLine, note
from nemesis.producers.readers.unplaced import unplaced
from nemesis.schemas.observed import CountersRead, SettingRead

_SYSFS: Final = re.compile(
    r"(?:\S*/)?(?:sys/class/)?infiniband/(\w+)/ports/(\d+)/"
    r"(?:(?:hw_)?counters/(\w+)|(state|phys_state|rate|link_layer))\s*(?:[:=]\s*|\s+)(\S.*?)\s*\Z"
)
_RDMA: Final = re.compile(r"link (\w+)/(\d+)((?: +\w+ \d{1,18})+)\s*\Z")
_PERFQUERY: Final = re.compile(
    r"# Port (?:extended )?counters: (?:(\S+) port|Lid (\d+) port) (\d+)"
)
_PERFQUERY_ROW: Final = re.compile(r"([A-Z][A-Za-z0-9]+):\.+(\d{1,20})\s*\Z")
_COUNT: Final = re.compile(r"\d{1,18}\Z")


class PortCounters(Reader):
    """Reads counters and states of RDMA ports."""

    starts = (_RDMA, _PERFQUERY, _PERFQUERY_ROW)
    holds = (_SYSFS,)

    def __init__(self) -> None:
        self._queried = ""

    def take(self, line: TextLine) -> Iterable[Note]:
        """What a line tells of a port."""
        if "infiniband/" in line.text and (match := _SYSFS.search(line.text)):
            device, _port, counter, state, value = match.groups()
            component = f"nic//{device}"
            if state:
                return [self._setting(line, component, state, value)]
            if _COUNT.match(value):
                return [self._counters(line, component, [(counter, int(value))])]
            return ()
        if match := _RDMA.match(line.text):
            words = match[3].split()
            pairs = [
                (name, int(value)) for name, value in zip(words[::2], words[1::2], strict=True)
            ]
            return [self._counters(line, f"nic//{match[1]}", pairs)]
        if match := _PERFQUERY.match(line.text):
            self._queried = f"port/{match[1] or 'lid' + match[2]}/{match[3]}"
            self.known = True
            return ()
        if self._queried and (match := _PERFQUERY_ROW.match(line.text)):
            name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", match[1]).lower()
            value = int(match[2])
            if value < 2**63:
                return [self._counters(line, self._queried, [(name, value)])]
        return ()

    def _setting(self, line: TextLine, component: str, name: str, value: str) -> Note:
        self.known = True
        return note(
            line, SettingRead(**unplaced(line.host), component=component, name=name, value=value)
        )

    def _counters(self, line: TextLine, component: str, pairs: list[tuple[str, int]]) -> Note:
        self.known = True
        return note(
            line, CountersRead(**unplaced(line.host), component=component, counters=tuple(pairs))
        )
