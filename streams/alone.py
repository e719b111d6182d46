"""A file or a name that one process holds; the kernel lets go of it when that process ends."""

import errno
import fcntl
import hashlib
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from nemesis.schemas.errors import NemesisError
from nemesis.streams.connection import Login

_NAME: Final = b"\0nemesis/"


@contextmanager
def alone(path: Path, taken: NemesisError) -> Iterator[None]:
    """Hold a lock file; raises `taken` where somebody else holds it."""
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise taken from error
        yield


@contextmanager
def alone_as(login: Login, taken: NemesisError) -> Iterator[None]:
    """Be the only process that signs in so, whoever runs it and wherever it keeps its files.

    A credential is of one node in one log, so its digest is a name for both, which who cannot read
    the credential cannot occupy. It is held as an abstract Unix socket (unix(7)): of Linux alone,
    and seen in one network namespace. Who signs in by nothing is not held to it.

    Raises `taken` where somebody else is it.
    """
    secret = _secret_of(login)
    if not secret or sys.platform != "linux":
        yield
        return
    digest = hashlib.sha256(login.user.encode() + b"\0" + secret).hexdigest()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as held:
        try:
            held.bind(_NAME + digest.encode())
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise taken from error
        yield


def _secret_of(login: Login) -> bytes:
    path = login.seed_path or login.creds_path
    try:
        return path.read_bytes().strip() if path is not None else login.password.encode()
    except OSError:
        return b""  # signing in will say what is wrong with it
