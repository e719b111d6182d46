"""What people hand over: files and folders, read by what is in them; what is not read is named.

A folder is walked in the order of names, links are not followed. Each file is a flight-recorder
dump, text of which each reader takes what it knows, or unread, with the reason.
"""

import hashlib
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Final

import msgspec

from nemesis.producers.flight_recorder import BadDumpError, Dump, read_dump
from nemesis.producers.readers.documents.json_file import read_json_file
from nemesis.producers.readers.dump_file import load_json, load_pickle
from nemesis.producers.readers.kernel_log import (
    KernelLog,
    is_kernel_log,
    is_kernels,
    read_kernel_log,
)
from nemesis.producers.readers.other_json import OTHER_JSON, is_other_json
from nemesis.producers.readers.own_answer import OWN_ANSWER, is_own_answer
from nemesis.producers.readers.pipe import SPOOL_BYTES_MAX, STDIN, is_pipe, spooled
from nemesis.producers.readers.text_file import TextFile, is_text, read_text_file
from nemesis.schemas.errors import NemesisError

FILES_MAX: Final = 20_000
_HEAD_BYTES: Final = 64
_PICKLE: Final = re.compile(rb"\x80[\x02-\x05]")
_JSON: Final = re.compile(rb"\s*(?:\{|\[\s*\{)")
# `rank` is torch's own default, /tmp/nccl_trace_rank_<n>; else the last number of the name
_RANK: Final = re.compile(
    r"(?P<stem>.*rank[._-]?)(?P<rank>\d{1,7})(?!\d)|(?P<stem_only>.*?)(?P<last>\d+)(?:\.[a-z]+)*\Z",
    re.DOTALL | re.IGNORECASE,
)


class NoSuchPathError(NemesisError):
    """A path that the user named is not there."""

    exit_code = 2


class Unread(msgspec.Struct):
    """A file that took no part in the verdict."""

    file: str
    why: str


class DumpFile(msgspec.Struct):
    """A flight-recorder dump and what its place says of it."""

    file: str
    series: str
    """Path without the trailing number: what the dumps of one run have in common."""
    number: int | None
    sha256: str
    dump: Dump


class Progress(msgspec.Struct):
    """Tells somebody who waits how much of the files, as large as they lie there, was read.

    A file may be read twice, and more may come out of a packed one than its size: it counts once.
    """

    on_read: Callable[[int], None] = lambda read_bytes: None
    left_bytes: int = 0
    """Of the file that is read now."""

    def begin(self, path: Path) -> None:
        """The file before is done with, whatever was read of it, and this one comes next."""
        self.end()
        self.left_bytes = path.stat().st_size if path.is_file() else 0

    def read(self, read_bytes: int) -> None:
        """So many bytes more."""
        more = min(read_bytes, self.left_bytes)
        self.left_bytes -= more
        self.on_read(more)

    def end(self) -> None:
        """All is done."""
        self.read(self.left_bytes)


class Bundle(msgspec.Struct):
    """Everything that could be read."""

    logs: list[KernelLog]
    dumps: list[DumpFile]
    unread: list[Unread]
    texts: list[TextFile]
    paths: dict[str, Path]
    """Where each file lies, by the name that reports use."""
    spools: list[IO[bytes]] = []
    """What came through pipes; a file lies there as long as it is open."""
    progress: Progress = msgspec.field(default_factory=Progress)

    @property
    def read_count(self) -> int:
        """Files that took part in the verdict."""
        files = [each.file for each in self.logs] + [each.file for each in self.dumps]
        return len({*files, *(each.file for each in self.texts)})


def read_bundle(
    roots: Sequence[Path], on_read: Callable[[int], None] = lambda read_bytes: None
) -> Bundle:
    """Read files and folders. Names are relative to the folder given, or as given for a file.

    `on_read` hears how many bytes more were read, in all as many as the files have.

    Raises:
        NoSuchPathError: a root does not exist or cannot be reached.
    """
    for root in roots:
        try:
            is_pipe(root)
        except OSError as error:
            raise NoSuchPathError(f"{root}: {_why(error)}", hint="check the path") from error
    bundle = Bundle([], [], [], [], {}, progress=Progress(on_read))
    several = len(roots) > 1
    for root in roots:
        prefix = f"{root.as_posix()}/" if several and root.is_dir() else ""
        for path, name in _walk(root, bundle.unread):
            file = prefix + name
            if file in bundle.paths:
                continue
            if len(bundle.paths) >= FILES_MAX:
                bundle.unread.append(Unread(file, f"more than {FILES_MAX} files"))
                break
            bundle.paths[file] = path
            try:
                bundle.progress.begin(path)
                _read(_lasting(path, file, bundle) if path == root else path, file, bundle)
            except BadDumpError as error:
                bundle.unread.append(Unread(file, error.message))
            except (OSError, EOFError, zlib.error) as error:
                bundle.unread.append(Unread(file, _why(error)))
    bundle.progress.end()
    return bundle


def _walk(root: Path, unread: list[Unread]) -> Iterator[tuple[Path, str]]:
    if is_pipe(root):
        yield root, "stdin" if root.as_posix() in STDIN else _printable(root.as_posix())
        return
    if not root.is_dir():
        # what a person names may be a link, what lies in a bundle of somebody else may not
        yield root.resolve(), _printable(root.as_posix())
        return

    def refuse(error: OSError) -> None:
        name = PurePosixPath(os.path.relpath(error.filename, root)).as_posix()
        unread.append(Unread(_printable(name), _why(error)))

    for folder, folders, files in os.walk(root, onerror=refuse):
        folders.sort()
        for name in sorted(files):
            path = Path(folder, name)
            yield path, _printable(path.relative_to(root).as_posix())


def _lasting(root: Path, file: str, bundle: Bundle) -> Path:
    """Where the file can be read again: what a pipe gives is kept until the bundle is dropped."""
    if not is_pipe(root):
        return root
    spool, cut = spooled(root)
    bundle.spools.append(spool)
    bundle.paths[file] = Path(spool.name)
    if cut:
        bundle.unread.append(Unread(file, f"cut at {SPOOL_BYTES_MAX} bytes: give it as a file"))
    return bundle.paths[file]


def _why(error: Exception) -> str:
    said = error.strerror if isinstance(error, OSError) else None
    return (said or str(error)).lower()


def _printable(name: str) -> str:
    """A file name that is not UTF-8 still has to fit into JSON."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _read(path: Path, file: str, bundle: Bundle) -> None:
    if path.is_symlink() or not stat.S_ISREG(path.stat().st_mode):
        bundle.unread.append(Unread(file, "not a plain file"))
        return
    with path.open("rb") as stream:
        head = stream.read(_HEAD_BYTES)
    if not head:
        bundle.unread.append(Unread(file, "empty"))
    elif _PICKLE.match(head):
        payload = path.read_bytes()
        bundle.dumps.append(_dump_file(file, payload, load_pickle(payload)))
    elif _JSON.match(head) and (dump := _json_dump(path, file)) is not None:
        bundle.dumps.append(dump)
    elif is_own_answer(path):
        bundle.unread.append(Unread(file, OWN_ANSWER))
    elif _JSON.match(head) and (told := read_json_file(path, file)) is not None:
        bundle.texts.append(told)
    elif is_other_json(path):
        bundle.unread.append(Unread(file, OTHER_JSON))
    elif not is_text(path):
        bundle.unread.append(Unread(file, "no format that any reader knows"))
    else:
        _read_lines(path, file, bundle)


def _read_lines(path: Path, file: str, bundle: Bundle) -> None:
    """A text is read twice: for what is a kernel's, and for what the rest says."""
    log = read_kernel_log(path, file, bundle.progress.read) if is_kernel_log(path) else None
    if log is not None:
        bundle.logs.append(log)
    if log is not None and log.skimmed:
        return  # a kernel log too long to be a report that holds other things
    certain = {number for number, line in log.lines if is_kernels(line)} if log else set()
    text = read_text_file(path, file, certain, log is not None, bundle.progress.read)
    if text is not None:
        bundle.texts.append(text)
        claimed = {note.number for note in text.notes}
        if log is not None and claimed:
            log.lines = [each for each in log.lines if each[0] not in claimed]
    elif log is None:
        bundle.unread.append(Unread(file, "no format that any reader knows"))


def _json_dump(path: Path, file: str) -> DumpFile | None:
    """The dump in a JSON file; None where it holds something else, for example journald's lines."""
    with path.open("rb") as stream:
        head = stream.read(1024 * 1024)
    if b'"pg_config"' not in head and b'"process_group"' not in head:
        return None
    payload = path.read_bytes()
    return _dump_file(file, payload, load_json(payload))


def _dump_file(file: str, payload: bytes, content: object) -> DumpFile:
    place = PurePosixPath(file)
    match = _RANK.match(place.name)
    stem, number = place.name, None
    if match is not None:
        stem = match["stem"] or match["stem_only"]
        digits = match["rank"] or match["last"]
        number = int(digits) if len(digits) < 8 else None
    return DumpFile(
        file=file,
        series=f"{place.parent.as_posix()}/{stem}",
        number=number,
        sha256=hashlib.sha256(payload).hexdigest(),
        dump=read_dump(content),
    )
