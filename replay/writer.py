"""Writes a recording: facts stream into a body, then header and body become the file at once.

The file appears whole or not at all, readable by its owner alone, and replaces nothing unless told.
"""

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from types import TracebackType
from typing import IO, Final

import msgspec
import zstandard

from nemesis import __version__
from nemesis.replay.plan import Planner
from nemesis.replay.recording import (
    BLOB_PART_BYTES,
    FORMAT,
    FORMAT_VERSION,
    READABLE_SINCE,
    BlobLine,
    Header,
    Line,
    RecordingExistsError,
    encode_header,
    encode_line,
    fact_line,
)
from nemesis.schemas.errors import NemesisError
from nemesis.schemas.facts import Record, split_subject
from nemesis.schemas.kept import SnapshotTaken
from nemesis.schemas.registry import SCHEMA

# level 9 packs the integer blocks of samples half again as small as 3, at 40 MB/s
_LEVEL: Final = 9


class CannotWriteError(NemesisError):
    """The file system refused the recording."""


class RecordingWriter:
    """Use it as a context; `finish` makes the file, leaving without it leaves nothing behind."""

    def __init__(
        self, path: Path, *, cell: str, made_by: str, made_at: str, from_seq: int, force: bool
    ) -> None:
        if path.exists() and not force:
            raise exists(path)
        self._path: Final = path
        self._force: Final = force
        self._about: Final = {"cell": cell, "made_by": made_by, "made_at": made_at}
        self._from_seq: Final = from_seq
        self._planner: Final = Planner(from_beginning=from_seq <= 1)
        self._counts: Final[Counter[str]] = Counter()
        self._gaps: Final[list[tuple[int, int]]] = []
        self._digest: Final = hashlib.sha256()
        self.after_gaps_ns = 0
        """When the entry behind the last gap was stored."""
        self._lines = self._bytes = 0
        self._next_seq = from_seq
        self._first_ns = self._last_ns = 0
        with explained(path):
            # without a name: nothing of it is left where the process is killed
            self._file: Final[IO[bytes]] = tempfile.TemporaryFile(dir=path.parent)  # noqa: SIM115
        self._body: Final[IO[bytes]] = (
            _compressor().stream_writer(self._file, closefd=False)
            if path.suffix == ".zst"
            else self._file
        )

    def __enter__(self) -> "RecordingWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # a full disk is told once, by what failed first
        with contextlib.suppress(OSError, zstandard.ZstdError):
            self._body.close()
        with contextlib.suppress(OSError):
            self._file.close()

    def start(
        self, name: str, *, in_seq: int, version: int, state: bytes, handed_over: bool = False
    ) -> None:
        """Replay of this processor starts from this state; before any record.

        `version` answers the next input; `handed_over`: the state is that of another one.
        """
        assert self._next_seq == self._from_seq, "states come before facts"
        sha256 = hashlib.sha256(state).hexdigest()
        self._planner.start(name, in_seq, version, sha256, handed_over=handed_over)
        self.blob(sha256, state)

    def record(self, record: Record) -> None:
        """The next entry of the log."""
        if record.seq > self._next_seq:
            self._gaps.append((self._next_seq, record.seq - 1))
            self.after_gaps_ns = record.stored_ns
        self._next_seq = record.seq + 1
        self._first_ns = self._first_ns or record.stored_ns
        self._last_ns = record.stored_ns
        self._planner.see(record)
        space, token, _ = split_subject(record.subject)
        self._counts[f"{space}.{token}" if token else space] += 1
        self._write(fact_line(_without_state(record) if token == "snapshot" else record))

    def blob(self, sha256: str, content: bytes) -> None:
        """Something that facts refer to by its hash."""
        parts = max(1, -(-len(content) // BLOB_PART_BYTES))
        for part in range(parts):
            piece = content[part * BLOB_PART_BYTES : (part + 1) * BLOB_PART_BYTES]
            self._write(BlobLine(sha256, part, parts, piece))
        self._counts["blob"] += 1

    def finish(self, *, to_seq: int, gap_cause: str = "", incident: str = "") -> Header:
        """Make the file."""
        if to_seq >= self._next_seq:
            self._gaps.append((self._next_seq, to_seq))
        header = Header(
            format=FORMAT,
            format_version=FORMAT_VERSION,
            readable_since=READABLE_SINCE,
            nemesis_version=__version__,
            schema=SCHEMA,
            **self._about,
            from_seq=self._from_seq,
            to_seq=to_seq,
            first_ns=self._first_ns,
            last_ns=self._last_ns,
            lines=self._lines,
            bytes=self._bytes,
            sha256=self._digest.hexdigest(),
            counts=dict(sorted(self._counts.items())),
            gaps=self._gaps,
            gap_cause=gap_cause if self._gaps else "",
            processors=self._planner.plans(),
            incident=incident,
        )
        with explained(self._path):
            if self._body is not self._file:
                self._body.close()
            self._publish(encode_header(header))
        return header

    def _publish(self, first: bytes) -> None:
        """Header and body under the final name, in one step."""
        handle, name = tempfile.mkstemp(prefix=f".{self._path.name}.", dir=self._path.parent)
        try:
            self._file.seek(0)
            with os.fdopen(handle, "wb") as whole:
                whole.write(_compressor().compress(first) if self._path.suffix == ".zst" else first)
                shutil.copyfileobj(self._file, whole, 1 << 20)
                whole.flush()
                os.fsync(whole.fileno())
            place(Path(name), self._path, force=self._force)
        finally:
            Path(name).unlink(missing_ok=True)

    def _write(self, line: Line) -> None:
        raw = encode_line(line)
        self._digest.update(raw)
        self._lines += 1
        self._bytes += len(raw)
        with explained(self._path):
            self._body.write(raw)


def _without_state(record: Record) -> Record:
    """A snapshot's hash is enough to compare; states would be most of a recording."""
    try:
        taken = msgspec.msgpack.decode(record.payload, type=SnapshotTaken)
    except msgspec.DecodeError:
        return record
    bare = msgspec.msgpack.encode(msgspec.structs.replace(taken, state=b""))
    return msgspec.structs.replace(record, payload=bare)


def _compressor() -> zstandard.ZstdCompressor:
    return zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)


def place(finished: Path, path: Path, *, force: bool) -> None:
    """Give a finished file its name, in one step; `finished` may stay and is then the caller's."""
    if force:
        finished.replace(path)
    else:
        os.link(finished, path)  # refuses where a file came into being meanwhile


@contextlib.contextmanager
def explained(path: Path) -> Generator[None]:
    """Say what was to be written where the file system refuses."""
    try:
        yield
    except FileExistsError as error:
        raise exists(path) from error
    except OSError as error:
        raise CannotWriteError(
            f"cannot write {path}: {error.strerror or error}",
            hint="choose a folder that exists, can be written and has room",
        ) from error


def exists(path: Path) -> RecordingExistsError:
    """What is said of a file that is there already."""
    return RecordingExistsError(
        f"{path} exists", hint="choose another name or give --force to replace it"
    )
