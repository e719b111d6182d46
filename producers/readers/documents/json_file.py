"""Documents in JSON that tools write, one in a file, one a line, or one after another.

A document has no lines of its own for its facts; a fact is cited by the first line, from where the
last one was, that holds what it was made of.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from nemesis.producers.readers.documents import collectives, health, scheduler, switches
from nemesis.producers.readers.documents.found import Found, Read
from nemesis.producers.readers.notes import Note
from nemesis.producers.readers.text_file import TextFile
from nemesis.producers.readers.text_lines import opened

DOCUMENT_BYTES_MAX: Final = 64 * 1024 * 1024
DOCUMENTS_MAX: Final = 1_000_000
FACTS_MAX: Final = 50_000
_HEAD: Final = 4  # documents that nobody knows before a file is taken for somebody else's
_decoder: Final = json.JSONDecoder()
_BETWEEN: Final = re.compile(r"[\s,\x1e]*")  # RFC 7464 begins each document with \x1e


def read_json_file(path: Path, file: str) -> TextFile | None:
    """What documents tell, None where there is none that is known.

    Raises:
        OSError, EOFError: it cannot be read, or its compression is broken.
    """
    with opened(path) as stream:
        payload = stream.read(DOCUMENT_BYTES_MAX + 1)
    if len(payload) > DOCUMENT_BYTES_MAX:
        return None
    text = payload.decode(errors="replace")
    found = TextFile(file, [])
    readers: list[Read] = [
        collectives.ras,
        collectives.Inspector().read,
        scheduler.events,
        scheduler.accounts,
        scheduler.nodes,
        health.diagnostics,
        health.states,
        switches.sonic,
        switches.notifications,
    ]
    known = unknown = 0
    for place, document in _documents(text):
        told = _told(readers, document)
        if told is None:
            unknown += 1
            if not known and unknown >= _HEAD:
                return None
            continue
        known += 1
        found.notes += _numbered(text, place, told)
        if len(found.notes) >= FACTS_MAX:
            found.cut = True
            break
    return found if known > unknown else None


def _documents(text: str) -> Iterator[tuple[int, object]]:
    """(where it begins, document), as far as the text is JSON."""
    place = 0
    for _ in range(DOCUMENTS_MAX):
        match = _BETWEEN.match(text, place)
        place = match.end() if match else place
        if place >= len(text):
            return
        try:
            document, end = _decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            return
        yield place, document
        place = end


def _told(readers: list[Read], document: object) -> Found | None:
    for read in readers:
        told = read(document)
        if told is not None:
            return told
    return None


def _numbered(text: str, start: int, found: Found) -> Iterator[Note]:
    place, number = start, text.count("\n", 0, start) + 1
    for count, (words, observation) in enumerate(found):
        if count >= FACTS_MAX:
            return
        there = text.find(words, place)
        if there >= 0:
            number += text.count("\n", place, there)
            place = there
        yield Note(number, observation)
