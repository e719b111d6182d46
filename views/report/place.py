"""Writes a page to where it was asked for, whole or not at all."""

import tempfile
from pathlib import Path

from nemesis.replay.writer import exists, explained, place


def place_page(document: str, path: Path, *, force: bool) -> None:
    """The page appears whole; one that is there stays until then.

    Raises:
        RecordingExistsError, CannotWriteError: there is one, or the file system refused it.
    """
    if path.exists() and not force:
        raise exists(path)
    with explained(path), tempfile.TemporaryDirectory(dir=path.parent, prefix=".") as folder:
        finished = Path(folder) / "page.html"
        finished.touch(mode=0o600)
        finished.write_text(document, encoding="utf-8")
        place(finished, path, force=force)
