"""Whether a file is JSON that may quote a kernel's lines but is no log of them.

A ticket, a report or another tool's answer says again what the log beside it says: read as a log it
would count every fault twice, the second time on a node that is named after the file.
"""

import re
from pathlib import Path
from typing import Final

from nemesis.producers.readers.text_lines import opened

OTHER_JSON: Final = "JSON without messages of a kernel"
_HEAD_BYTES: Final = 64 * 1024
# dmesg prints a time in brackets, which is no JSON
_JSON: Final = re.compile(rb'\s*(\{\s*"|\[\s*\{)')
# journalctl, container runtimes and `dmesg --json` name a line's text so
_MESSAGE: Final = re.compile(rb'"(MESSAGE|message|log|msg)"\s*:')


def is_other_json(path: Path) -> bool:
    """Whether it begins as JSON and nothing near its start is named as a message.

    Raises:
        OSError, EOFError: it cannot be read, or its compression is broken.
    """
    with opened(path) as stream:
        head = stream.read(_HEAD_BYTES)
    return _JSON.match(head) is not None and _MESSAGE.search(head) is None
