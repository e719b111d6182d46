"""Counters of switches in JSON: SONiC's COUNTERS tables, and what clients of gNMI print.

sonic-net/sonic-gnmi; openconfig/gnmic formats `json` and `event`: updates whose path names an
interface, values by path. Names are those of OpenConfig, joined by underscores.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from nemesis.producers.readers.documents.found import Found, mapping, maps, whole
from nemesis.producers.readers.unplaced import unplaced
from nemesis.schemas.observed import CountersRead, SettingRead

_INTERFACE: Final = re.compile(r"interface\[name=\"?([^\]\"]+)\"?\]|/?COUNTERS/([\w/-]+?)(?:/|\Z)")
_TAGS: Final = ("interface_name", "name", "port", "ifname")
_NAME: Final = re.compile(r"[^\w./:-]+")
DEPTH_MAX: Final = 8


def sonic(document: object) -> Found | None:
    """SONiC's COUNTERS tables: counters by port."""
    own = mapping(document)
    ports = own.get("COUNTERS", own)
    if not isinstance(ports, dict) or not any(
        isinstance(each, dict) and any(str(key).startswith("SAI_PORT_STAT_") for key in each)
        for each in ports.values()
    ):
        return None
    return _of_ports(str(own.get("switch") or own.get("hostname") or "switch"), ports)


def _of_ports(switch: str, ports: Mapping[str, Any]) -> Found:
    for port, own in ports.items():
        for name, value in mapping(own).items():
            if (count := whole(value)) >= 0:
                yield str(name), _counter(switch, str(port), str(name).lower(), count)


def notifications(document: object) -> Found | None:
    """A gNMI notification, or an array of events."""
    if isinstance(document, list):
        own = list(maps(document))
        is_event = own and all("values" in each and "tags" in each for each in own)
        return _of_events(own) if is_event else None
    own_updates = mapping(document).get("updates")
    if not isinstance(own_updates, list) or "timestamp" not in mapping(document):
        return None
    return _of_updates(_switch_of(mapping(document).get("source")), own_updates)


def _of_updates(switch: str, updates: list[Any]) -> Found:
    for update in maps(updates):
        path = str(update.get("Path", update.get("path", "")))
        match = _INTERFACE.search(path)
        port = (match[1] or match[2]) if match else ""
        for name, value in mapping(update.get("values")).items():
            for leaf, found in _leaves(name, value):
                yield from _of_leaf(switch, port or _port_in(leaf), leaf, found)


def _of_events(found: list[Mapping[str, Any]]) -> Found:
    for each in found:
        tags = mapping(each["tags"])
        switch = _switch_of(tags.get("source"))
        port = next((str(tags[tag]) for tag in _TAGS if tags.get(tag)), "")
        for name, value in mapping(each["values"]).items():
            yield from _of_leaf(switch, port, str(name), value)


def _leaves(name: str, value: object, depth: int = 0) -> Iterator[tuple[str, object]]:
    """Values below a path that was asked for whole."""
    if isinstance(value, dict) and depth < DEPTH_MAX:
        for key, below in value.items():
            yield from _leaves(f"{name}/{key}", below, depth + 1)
    else:
        yield name, value


def _of_leaf(switch: str, port: str, path: str, value: object) -> Found:
    name = path.rstrip("/").rpartition("/")[2].rpartition(":")[2].replace("-", "_").lower()
    if not port or not name:
        return
    words = path.rpartition("/")[2]
    if (count := whole(value)) >= 0 and ("counters" in path.lower() or "_stat_" in name):
        yield words, _counter(switch, port, name[:100], count)
    elif name in ("oper_status", "admin_status"):
        component = f"port/{switch}/{_NAME.sub('_', port)[:60]}"
        yield (
            words,
            SettingRead(**unplaced(), component=component, name=name, value=str(value)[:60]),
        )


def _counter(switch: str, port: str, name: str, count: int) -> CountersRead:
    component = f"port/{switch}/{_NAME.sub('_', port)[:60]}"
    return CountersRead(**unplaced(), component=component, counters=((name, count),))


def _switch_of(source: object) -> str:
    """The name of a target without the port at which it listens."""
    name = re.sub(r":\d+\Z", "", str(source or "switch"))
    return _NAME.sub("_", name)[:63] or "switch"


def _port_in(path: str) -> str:
    match = re.search(r"/(Ethernet[\w/]+?)/", path)
    return match[1] if match else ""
