"""What JSON lines tell of a switch's ports, as the counters that all readers know.

Lines are those that gnmic prints (`json`, `event`) or SONiC's COUNTERS tables, fetched by whoever
has the right to: no credential of a switch is known here. Names: OpenConfig interfaces and
openconfig-if-ethernet, SAI's saiport.h as SONiC prints it. A port is told with the next poll after
a line told of it: what stands still for long may be dead, and is left out. Downs are counted here,
since the switch counts ups and downs together.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from nemesis.producers.readers.documents import switches
from nemesis.schemas.observed import CountersRead, PortSeen, SettingRead

PRIORITIES: Final = 8
COUNTERS: Final[Mapping[str, str]] = {
    "in_fcs_errors": "crc_error_count",
    "in_crc_errors": "crc_error_count",
    "sai_port_stat_ether_stats_crc_align_errors": "crc_error_count",
    "out_discards": "discard_count",
    "sai_port_stat_if_out_discards": "discard_count",
    "in_discards": "in_discard_count",
    "sai_port_stat_if_in_discards": "in_discard_count",
    "sai_port_stat_ecn_marked_packets": "ecn_marked_count",
    "sai_port_stat_if_in_fec_correctable_frames": "fec_corrected_count",
    "sai_port_stat_if_in_fec_not_correctable_frames": "fec_uncorrectable_count",
    "sai_port_stat_if_in_fec_symbol_errors": "symbol_error_count",
}
"""A counter's last name, in lower case, to what facts call it."""
_PAUSED: Final = re.compile(r"sai_port_stat_pfc_([0-7])_(rx|tx)_pause_duration_us")
_DEADLOCKS: Final = "pfc_wd_queue_stats_deadlock_detected"
ORIGINS: Final[Mapping[str, str]] = {
    **{
        field: " or ".join(name for name, each in COUNTERS.items() if each == field)
        for field in COUNTERS.values()
    },
    "rx_pause_us": "sai_port_stat_pfc_<priority>_rx_pause_duration_us, summed; each by itself, too",
    "tx_pause_us": "sai_port_stat_pfc_<priority>_tx_pause_duration_us, summed",
    "pfc_deadlock_count": f"{_DEADLOCKS} of the port's queues, summed",
    "up": "oper-status",
    "link_downed_count": "how often oper-status went from UP, counted by the collector",
}
"""Field of a port to where it comes from."""
_QUEUE: Final = re.compile(r"(.+)[:_](\d+)")


class _Port(msgspec.Struct):
    counts: dict[str, int] = {}
    pauses: dict[tuple[str, int], int] = {}
    deadlocks: dict[str, int] = {}
    up: bool = True
    downs_count: int = 0


class Ports:
    """The ports of one switch, as far as lines told of them."""

    def __init__(self, switch: str, peers: Mapping[str, str]) -> None:
        """`switch`: its name without its kind; `peers`: what is plugged in, by a port's name."""
        self.unknown_count = 0
        """Lines that told nothing of any port."""
        self._switch: Final = switch
        self._peers: Final = dict(peers)
        self._ports: Final[dict[str, _Port]] = {}
        self._news: Final[set[str]] = set()

    def take(self, line: bytes) -> None:
        """Take up one line."""
        if not line.strip():
            return
        try:
            document: Any = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError):
            self.unknown_count += 1
            return
        found = switches.sonic(document) or switches.notifications(document) or iter(())
        known = [self._take(each) for _, each in found]
        self.unknown_count += not any(known)

    def poll(self) -> list[PortSeen]:
        """The ports that lines told of since the last call, in the order of their names."""
        news = sorted(self._news)
        self._news.clear()
        return [self._seen(name) for name in news]

    def _take(self, told: object) -> bool:
        if not isinstance(told, CountersRead | SettingRead):
            return False
        name = told.component.split("/", 2)[2]
        if isinstance(told, SettingRead):
            if told.name != "oper_status":
                return False
            port, up = self._port(name), told.value.upper() == "UP"
            port.downs_count += port.up and not up
            port.up = up
            return True
        ((counter, value),) = told.counters
        if counter == _DEADLOCKS:
            match = _QUEUE.fullmatch(name)
            self._port(match[1] if match else name).deadlocks[name] = value
        elif match := _PAUSED.fullmatch(counter):
            self._port(name).pauses[match[2], int(match[1])] = value
        elif counter in COUNTERS:
            self._port(name).counts[COUNTERS[counter]] = value
        else:
            return False
        return True

    def _port(self, name: str) -> _Port:
        self._news.add(name)
        return self._ports.setdefault(name, _Port())

    def _seen(self, name: str) -> PortSeen:
        port = self._ports[name]
        held = {way: _by_priority(port, way) for way in ("rx", "tx")}
        return PortSeen(
            port=f"port/{self._switch}/{name}",
            up=port.up,
            peer=self._peers.get(name, ""),
            rx_pause_us=sum(held["rx"]),
            tx_pause_us=sum(held["tx"]),
            rx_pause_us_by_priority=held["rx"],
            link_downed_count=port.downs_count,
            pfc_deadlock_count=sum(port.deadlocks.values()),
            **port.counts,
        )


def _by_priority(port: _Port, way: str) -> tuple[int, ...]:
    known = {priority: us for (each, priority), us in port.pauses.items() if each == way}
    return tuple(known.get(at, 0) for at in range(PRIORITIES)) if known else ()
