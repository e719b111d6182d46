"""Names as subject tokens: one reversible function.

NATS splits subjects at dots and gives `*`, `>` and blanks a meaning; names of nodes, jobs and
decisions hold all of them. Every byte outside `[a-z0-9-]` becomes `_hh`, capitals too, so that
two names that differ never share a token, on servers and file systems of any kind.
"""

from typing import Final

from nemesis.schemas.errors import BadNameError

NAME_BYTES_MAX: Final = 100  # three times this, escaped, stays far below the server's 4 KiB line
_PLAIN: Final = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789-")
_HEX: Final = frozenset("0123456789abcdef")


def token_of(name: str) -> str:
    """The token that stands for `name`.

    Raises:
        BadNameError: the name is empty or longer than NAME_BYTES_MAX bytes of UTF-8.
    """
    raw = name.encode("utf-8", "surrogatepass")
    if not 0 < len(raw) <= NAME_BYTES_MAX:
        raise BadNameError(
            f"a name must have 1 to {NAME_BYTES_MAX} bytes, got {len(raw)}: {name[:40]!r}",
            hint="shorten the name at its source",
        )
    return "".join(chr(byte) if byte in _PLAIN else f"_{byte:02x}" for byte in raw)


def name_of(token: str) -> str:
    """The name behind a token; only what `token_of` makes is accepted.

    Raises:
        BadNameError: no name has this token.
    """
    raw = bytearray()
    at = 0
    while at < len(token):
        if token[at] != "_":
            raw += token[at].encode()
            at += 1
            continue
        digits = token[at + 1 : at + 3]
        if len(digits) != 2 or not _HEX.issuperset(digits):
            raise BadNameError(f"not a token, an escape is broken at {at}: {token[:80]!r}")
        raw.append(int(digits, 16))
        at += 3
    try:
        name = raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        name = ""
    if not name or token_of(name) != token:
        raise BadNameError(f"not a token: {token[:80]!r}")
    return name
