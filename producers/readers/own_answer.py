"""Whether a file is an answer of `nemesis triage` that somebody saved beside the files it is about.

It quotes kernel lines, and read as a log it would count every fault twice.
"""

import re
from pathlib import Path
from typing import Final

from nemesis.producers.readers.text_lines import opened

OWN_ANSWER: Final = "an answer of nemesis triage"
_HEAD_BYTES: Final = 64 * 1024
_JSON: Final = re.compile(rb'\s*\{\s*"verdict":\s*"[a-z-]+",\s*"fault_class":')
_TEXT: Final = re.compile(rb"^  evidence  \S.*^  do        [a-z_]+", re.DOTALL | re.MULTILINE)


def is_own_answer(path: Path) -> bool:
    """Whether it is one, as JSON or as text.

    Raises:
        OSError, EOFError: it cannot be read, or its compression is broken.
    """
    with opened(path) as stream:
        head = stream.read(_HEAD_BYTES)
    return _JSON.match(head) is not None or _TEXT.search(head) is not None
