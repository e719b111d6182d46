"""`ip addr`, `ip link` and `ifconfig`: the largest packet that each interface takes."""

import re
from collections.abc import Iterable
from typing import Final

from nemesis.producers.readers.notes import Note, Reader, TextLine, note
from nemesis.producers.readers.unplaced import unplaced
from nemesis.schemas.observed import SettingRead

_INTERFACE: Final = re.compile(
    r"(?:\d+: )?([a-z][\w.-]{0,14})(?:@\w+)?: .*<([A-Z,_0-9-]+)>\s+mtu (\d+)"
)
_IFCONFIG: Final = re.compile(r"([a-z][\w.-]{0,14}): flags=\d+<([A-Z,_0-9-]+)>\s+mtu (\d+)")
# these end on their own host
_INNER: Final = re.compile(r"(?:lo|docker|virbr|veth|br-|cni|flannel|cali|lxc|tun|nodelocaldns)")


class Interfaces(Reader):
    """Reads the interfaces of a host."""

    starts = (_IFCONFIG, _INTERFACE)

    def take(self, line: TextLine) -> Iterable[Note]:
        """An interface."""
        match = _IFCONFIG.match(line.text) or _INTERFACE.match(line.text)
        if match is None:
            return ()
        self.known = True
        name, flags, mtu = match.groups()
        if _INNER.match(name) or "UP" not in flags.split(","):
            return ()
        setting = SettingRead(
            **unplaced(line.host), component=f"nic//{name}", name="link.mtu", value=mtu
        )
        return [note(line, setting)]
