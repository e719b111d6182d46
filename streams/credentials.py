"""Seeds of a cell's users: one file a role, mode 0600; the server is told public keys only."""

import functools
import logging
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import nkeys

from nemesis.schemas.errors import NemesisError
from nemesis.schemas.tokens import name_of
from nemesis.streams.permissions import user_of

_SEED_BYTES: Final = 32
_log: Final = logging.getLogger(__name__)


def seed_path(folder: Path, role: str) -> Path:
    """Where the seed of a role lies."""
    return folder / f"{user_of(role)}.nk"


def ensure(folder: Path, roles: Iterable[str]) -> dict[str, str]:
    """Make the seeds that are not there; role -> public key.

    Raises:
        BadNameError: no such role.
        NemesisError: a seed cannot be read.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return {role: _public_key(seed_path(folder, role)) for role in dict.fromkeys(roles)}


def names(folder: Path, kind: str) -> list[str]:
    """Of whom seeds lie there, of one kind of role; sorted."""
    return sorted(
        name_of(each.stem.removeprefix(f"{kind}-")) for each in folder.glob(f"{kind}-*.nk")
    )


def warn_if_open(path: Path) -> None:
    """Say, once a process, that everybody may read a seed. A group is left alone: service managers
    and Kubernetes hand secrets to their one reader by a group of its own."""
    try:
        is_open = bool(path.stat().st_mode & stat.S_IRWXO)
    except OSError:
        return  # whoever reads it says what is wrong
    if is_open:
        _warn_of(path)


@functools.cache
def _warn_of(path: Path) -> None:
    _log.warning("everybody here may read %s: chmod 600 it, or make new seeds", path)


def _public_key(path: Path) -> str:
    try:
        seed = path.read_bytes()
    except FileNotFoundError:
        seed = nkeys.encode_seed(os.urandom(_SEED_BYTES), nkeys.PREFIX_BYTE_USER)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(seed)
    try:
        # bytes, whatever the annotation there says
        return bytes(nkeys.from_seed(bytearray(seed.strip())).public_key).decode()
    except (ValueError, nkeys.NkeysError) as error:
        raise NemesisError(
            f"not a seed: {path}: {error}", hint="delete the file; a new one is made"
        ) from error
