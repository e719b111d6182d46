"""A file that is read as it was or as it is, never in between: written beside it and renamed."""

import os
from pathlib import Path


def replace_file(path: Path, content: bytes) -> None:
    """Put this in the place of a file, readable by its owner alone.

    Raises:
        OSError: the folder or the disk refuses; the file is as it was.
    """
    fresh = path.with_name(f".{path.name}.{os.getpid()}.new")
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
