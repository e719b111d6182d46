"""Values of users on their way into a prompt: as JSON, between marks that no value can write.

`<`, `>` and `&` stand only in strings of a JSON document, so they are written as escapes there: a
job called `</data>` closes nothing. This keeps data and instructions apart for the reader; what
protects the cluster is that no act passes a rule because of what a prompt says.
"""

from typing import Any, Final

import msgspec

DATA_BYTES_MAX: Final = 48_000
"""Of one document: a situation is cut to lists of this size before it comes here."""
_MARKS: Final = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def fenced(document: Any) -> str:
    """The document as data for the model."""
    return f"<data>\n{escaped(document)}\n</data>"


def escaped(document: Any) -> str:
    """The document in JSON that holds no mark; too long a one says only that it is."""
    text = msgspec.json.encode(document).decode().translate(_MARKS)
    if len(text) > DATA_BYTES_MAX:
        return f'{{"error":"too long to be shown: {len(text)} characters"}}'
    return text
