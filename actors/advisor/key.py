"""The key of the API: out of the environment or a file that nobody else may read, and nowhere else.

It is never an argument of a command, so no list of processes shows it; it has no `repr`; and what
another machine says is searched for it before a word of that is kept.
"""

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from nemesis.schemas.errors import NemesisError

VARIABLE: Final = "ANTHROPIC_API_KEY"
KEY_BYTES_MAX: Final = 4096
HIDDEN: Final = "[key]"


class NoKeyError(NemesisError):
    """There is no key: rules decide alone."""

    exit_code = 3


class OpenKeyError(NemesisError):
    """A key that others can read is no secret: it is not used."""

    exit_code = 4


class Key:
    """A secret; `reveal` is asked by the client alone."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text: Final = text

    def __repr__(self) -> str:
        return f"Key({HIDDEN})"

    def reveal(self) -> str:
        """The key itself."""
        return self._text

    def hide(self, text: str) -> str:
        """The same words without the key."""
        return text.replace(self._text, HIDDEN)


def key_of(key_file: str, environment: Mapping[str, str] = os.environ) -> Key:
    """The key in this file; where none is named, the one in the environment.

    Raises:
        NoKeyError: neither says one.
        OpenKeyError: the file may be read by others, or belongs to somebody else.
    """
    if key_file:
        text, where = _read(Path(key_file).expanduser()), key_file
    else:
        text, where = environment.get(VARIABLE, "").strip(), VARIABLE
    if not text:
        raise NoKeyError(
            "no key for the advisor: the rules of the scheduler decide alone",
            hint=f"set {VARIABLE}, or key_file in its settings to a file of mode 0600",
        )
    if not text.isascii() or not text.isprintable() or " " in text:
        raise NoKeyError(f"{where} holds no key, expected one word of plain characters")
    return Key(text)


def _read(path: Path) -> str:
    """The first bytes of a plain file that is ours alone; what is opened is what is checked."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise NoKeyError(f"cannot read the key in {path}: {error.strerror}") from error
    with os.fdopen(descriptor, "rb") as file:
        told = os.fstat(descriptor)
        if not stat.S_ISREG(told.st_mode):
            raise NoKeyError(f"cannot read the key in {path}: not a plain file")
        if told.st_uid != os.geteuid():
            raise OpenKeyError(f"{path} belongs to user {told.st_uid}, expected a file of ours")
        if told.st_mode & 0o077:
            raise OpenKeyError(
                f"{path} has mode {stat.S_IMODE(told.st_mode):04o}, expected 0600",
                hint=f"chmod 600 {path}, and have a new key made: others could read this one",
            )
        return file.read(KEY_BYTES_MAX).decode("ascii", "replace").strip()
