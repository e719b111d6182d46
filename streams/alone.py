"""A file that one process holds at a time; the kernel lets go of it when that one ends."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nemesis.schemas.errors import NemesisError


@contextmanager
def alone(path: Path, taken: NemesisError) -> Iterator[None]:
    """Hold a lock file; raises `taken` where somebody else holds it."""
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise taken from error
        yield
