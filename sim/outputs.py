"""What a run leaves on disk: told before it begins where it cannot be, and never left in part."""

import errno
import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from nemesis.replay.writer import exists, explained


def expect_writable(*paths: Path | None, force: bool) -> None:
    """Try the folders of files that are to be written in the end.

    A recording in the place of an older one would be scored by that one's ledger.

    Raises:
        RecordingExistsError: a file is there already, and `force` does not say to replace it.
        CannotWriteError: the folder is not there or takes no file, or a folder has that name.
    """
    for path in filter(None, paths):
        if path.is_file() and not force:
            raise exists(path)
        with explained(path):
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            if path.exists() and not path.is_file():  # it would be replaced, a device as well
                raise OSError(errno.EINVAL, "not a plain file")
            tempfile.TemporaryFile(dir=path.parent).close()


@contextmanager
def whole_folder(folder: Path) -> Generator[Path]:
    """A folder to write to, that becomes `folder` at the end; it is gone where that fails.

    `folder` is empty or not there.

    Raises:
        CannotWriteError: the disk is full, or refuses.
    """
    folder = folder.absolute()
    with explained(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            yield fresh
            fresh.rename(folder)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise
