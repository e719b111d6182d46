"""Whether a file is a JSON document that may quote a kernel's lines but is no log of them.

A log has a record a line, of whatever shape; a document lies over many lines and, unlike
`journalctl -o json-pretty` and `dmesg --json`, names no message in them. A ticket, a report or
another tool's answer says again what the log beside it says: read as a log it would count every
fault twice, the second time on a node that is named after the file.
"""

import re
from pathlib import Path
from typing import Final

from nemesis.producers.readers.text_lines import opened

OTHER_JSON: Final = "JSON without messages of a kernel"
_HEAD_BYTES: Final = 64 * 1024
# dmesg prints a time in brackets, but not alone on a line
_DOCUMENT: Final = re.compile(rb'\s*[{\[][ \t]*\r?\n\s*["{\[]')
# what journalctl, dmesg, container runtimes and services that keep logs call a line's text
_MESSAGE: Final = re.compile(rb'"(MESSAGE|@?message|log|msg|line|text|textPayload)"\s*:')


def is_other_json(path: Path) -> bool:
    """Whether it begins as a document and nothing near its start is named as a message.

    Raises:
        OSError, EOFError: it cannot be read, or its compression is broken.
    """
    with opened(path) as stream:
        head = stream.read(_HEAD_BYTES)
    return _DOCUMENT.match(head) is not None and _MESSAGE.search(head) is None
