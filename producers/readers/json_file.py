"""Documents in JSON that tools write: what each tells, and near which line.

A document has no lines of its own for its facts; a fact is cited by the first line, from where the
last one was, that holds what it was made of.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from nemesis.producers.readers.kernel_line import peel
from nemesis.producers.readers.notes import Note
from nemesis.producers.readers.text_file import TextFile
from nemesis.producers.readers.text_lines import opened
from nemesis.producers.readers.unplaced import unplaced
from nemesis.schemas.observed import CountersRead, LogLineWritten, Observation, SettingRead

DOCUMENT_BYTES_MAX: Final = 64 * 1024 * 1024
FACTS_MAX: Final = 50_000
_Found = Iterator[tuple[str, Observation]]
"""(what to look for in the text, what it says)."""


def read_json_file(path: Path, file: str) -> TextFile | None:
    """What a document tells, None where it is none that is known.

    Raises:
        OSError, EOFError: it cannot be read, or its compression is broken.
    """
    with opened(path) as stream:
        payload = stream.read(DOCUMENT_BYTES_MAX + 1)
    if len(payload) > DOCUMENT_BYTES_MAX:
        return None
    try:
        document = msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    text = payload.decode(errors="replace")
    for read in _READERS:
        found = read(document)
        if found is not None:
            return TextFile(file, list(_numbered(text, found)))
    return None


def _numbered(text: str, found: _Found) -> Iterator[Note]:
    place, number = 0, 1
    for count, (words, observation) in enumerate(found):
        if count >= FACTS_MAX:
            return
        there = text.find(words, place)
        if there >= 0:
            number += text.count("\n", place, there)
            place = there
        yield Note(number, observation)


def _ras(document: Mapping[str, Any]) -> _Found | None:
    """`ncclras -f json`: how far each rank of each communicator came (NCCL User Guide, RAS)."""
    communicators = document.get("communicators")
    return _of_communicators(communicators) if isinstance(communicators, list) else None


def _of_communicators(communicators: list[Any]) -> _Found:
    for each in communicators:
        if not isinstance(each, dict):
            continue
        name = str(each.get("hash", ""))[:40].removeprefix("0x")
        yield name, _line("ras", f"Communicator {name}", "")
        for rank in _maps(each.get("ranks")):
            counts = rank.get("collective_counts")
            if not isinstance(counts, dict) or not isinstance(rank.get("rank"), int):
                continue
            total = sum(value for value in counts.values() if isinstance(value, int))
            text = f"Rank {rank['rank']} has launched up to operation {total}"
            yield f'"rank": {rank["rank"]}', _line("ras", text, str(rank.get("host", "")))
        for rank in _maps(each.get("missing_ranks")):
            text = f"missing ranks: {{{rank.get('rank', '')}}}"
            yield '"missing_ranks"', _line("ras", text, str(rank.get("host", "")))


def _events(document: Mapping[str, Any]) -> _Found | None:
    """`kubectl get events -o json`."""
    items = document.get("items")
    if not isinstance(items, list) or "apiVersion" not in document:
        return None
    return _of_events(items)


def _of_events(items: list[Any]) -> _Found:
    for each in _maps(items):
        reason, message = str(each.get("reason", "")), str(each.get("message", ""))
        if each.get("kind", "Event") != "Event" or not reason:
            continue
        source = each.get("source")
        about = each.get("involvedObject")
        host = str(source.get("host", "")) if isinstance(source, dict) else ""
        name = f"{about.get('kind', '')}/{about.get('name', '')}" if isinstance(about, dict) else ""
        text = f"{each.get('type', '')} {reason} {name.lower()} {message}"[:2000]
        yield message.partition('"')[0][:60] or reason, _line("scheduler", text, host)


def _switch(document: Mapping[str, Any]) -> _Found | None:
    """SONiC's COUNTERS tables and gNMI updates of them: counters by port."""
    ports = document.get("COUNTERS", document)
    if not isinstance(ports, dict) or not any(
        isinstance(own, dict) and any(str(key).startswith("SAI_PORT_STAT_") for key in own)
        for own in ports.values()
    ):
        return None
    return _of_ports(str(document.get("switch") or document.get("hostname") or "switch"), ports)


def _of_ports(switch: str, ports: Mapping[str, Any]) -> _Found:
    for port, own in ports.items():
        if not isinstance(own, dict):
            continue
        for name, value in own.items():
            number = str(value)
            if number.isdecimal() and len(number) <= 18:
                component = f"port/{switch}/{port}"
                counters = ((str(name).lower(), int(number)),)
                yield (
                    str(name),
                    CountersRead(**unplaced(), component=component, counters=counters),
                )


def _diagnostics(document: Mapping[str, Any]) -> _Found | None:
    """`dcgmi diag -j`."""
    root = document.get("DCGM Diagnostic", document.get("DCGM GPU Diagnostic"))
    if not isinstance(root, dict):
        return None
    return _of_tests(root.get("test_categories"))


def _of_tests(categories: object) -> _Found:
    for category in _maps(categories):
        for test in _maps(category.get("tests")):
            name = str(test.get("name", "test")).lower().replace(" ", "_")
            for result in _maps(test.get("results")):
                status = str(result.get("status", "")).capitalize()
                gpu = result.get("gpu_id", result.get("entity_id", result.get("gpu_ids")))
                component = f"gpu//{gpu}" if str(gpu).isdecimal() else "node//"
                yield (
                    f'"{result.get("status", "")}"',
                    SettingRead(
                        **unplaced(), component=component, name=f"dcgm.{name}", value=status
                    ),
                )


def _line(source: Any, text: str, host: str) -> LogLineWritten:
    return LogLineWritten(**unplaced(host[:63]), source=source, text=peel(text).text[:2000])


def _maps(value: object) -> Iterator[dict[str, Any]]:
    if isinstance(value, list):
        yield from (each for each in value if isinstance(each, dict))


_READERS: Final[tuple[Callable[[Mapping[str, Any]], _Found | None], ...]] = (
    _ras,
    _events,
    _diagnostics,
    _switch,
)
