"""Files that people write: read whole, in bounded memory, and told in one line where they fail."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from nemesis.schemas.errors import NemesisError

DOCUMENT_BYTES_MAX: Final = 1 << 20  # the largest that a person writes is a thousandth of this
VALUE_CHARS_MAX: Final = 60


class BadDocumentError(NemesisError):
    """A file that cannot be read, or is not what its name says."""

    exit_code = 2


def read_document(path: Path, *, bytes_max: int = DOCUMENT_BYTES_MAX) -> bytes:
    """The bytes of a file.

    Raises:
        BadDocumentError: no plain file, not to be read, or larger than `bytes_max`.
    """
    try:
        if path.exists() and not path.is_file():  # a fifo that nobody writes to waits for ever
            raise BadDocumentError(f"cannot read {path}: not a plain file")
        with path.open("rb") as file:
            raw = file.read(bytes_max + 1)
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL
        why = getattr(error, "strerror", None) or error
        raise BadDocumentError(f"cannot read {path}: {why}") from error
    if len(raw) > bytes_max:
        raise BadDocumentError(f"{path} has more than {bytes_max} bytes")
    return raw


def read_toml(path: Path) -> dict[str, Any]:
    """What a TOML file says; a byte-order mark, which editors put before UTF-8, is left out.

    Raises:
        BadDocumentError: as `read_document`, or not TOML.
    """
    raw = read_document(path)
    try:
        return tomllib.loads(raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise BadDocumentError(
            f"{path}: byte {error.start}: not UTF-8, expected TOML: save it as UTF-8"
        ) from error
    except ValueError as error:  # no TOML, no text, a number of thousands of digits
        raise BadDocumentError(f"{path}: {error}") from error
    except RecursionError as error:
        raise BadDocumentError(f"{path}: nested too deeply") from error


def explained(error: msgspec.ValidationError, document: Mapping[str, Any]) -> str:
    """What is wrong with a document, its field and value in front: `fault[0].nic: 'x': ...`."""
    says, _, place = str(error).partition(" - at `$")
    field = place.rstrip("`").lstrip(".")
    value: Any = document
    for name, index in re.findall(r"\.(\w+)|\[(\d+)\]", place):
        try:
            value = value[name] if name else value[int(index)]
        except (KeyError, IndexError, TypeError):
            value = None
            break
    told = f"{field}: " if field else ""
    if not isinstance(value, Mapping | list | tuple) and value is not None:
        told += f"{value!r:.{VALUE_CHARS_MAX}}: "
    return f"{told}{says[:1].lower()}{says[1:]}"


def document_named(folder: Path, name: str, what: str) -> Path:
    """The TOML file of that name in a folder of the release, or anybody's if it ends in .toml.

    Raises:
        BadDocumentError: the folder holds no such `what`.
    """
    if name.endswith(".toml"):
        return Path(name)
    known = [each.stem for each in sorted(folder.glob("*.toml"))]
    if name not in known:
        raise BadDocumentError(
            f"no {what} {name!r}, expected a file ending in .toml or one of: {', '.join(known)}"
        )
    return folder / f"{name}.toml"
