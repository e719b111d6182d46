"""Reads a recording line by line in bounded memory; damage is an error with its place."""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

import msgspec
import zstandard

from nemesis import __version__
from nemesis.replay.recording import (
    FORMAT,
    FORMAT_VERSION,
    LINE_BYTES_MAX,
    STATES_BYTES_MAX,
    CorruptRecordingError,
    FactLine,
    Header,
    Line,
    NewerRecordingError,
    decode_line,
)
from nemesis.schemas.errors import NemesisError
from nemesis.schemas.facts import Record

# stays in the processor's cache while it is hashed, checked and parsed
_CHUNK_BYTES: Final = 1 << 16
_RELEASE: Final = re.compile(r"\d+(\.\d+)*\Z")
_headers: Final = msgspec.json.Decoder(Header)


class NoRecordingError(NemesisError):
    """There is no such file, or it cannot be read."""

    exit_code = 2


class _Beginning(msgspec.Struct):
    """What the header of any format version says."""

    format: str = ""
    format_version: int = 0
    readable_since: str = ""
    nemesis_version: str = ""


class Recording:
    """A file of a slice of the log."""

    def __init__(self, path: Path) -> None:
        """Read the header.

        Raises:
            NoRecordingError: no file, or not to be read.
            CorruptRecordingError: not a recording, cut short or damaged.
            NewerRecordingError: a format of a later release.
        """
        self.path: Final = path
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise NoRecordingError(
                f"cannot read {path}: not a plain file, and it is read more than once",
                hint="copy it to a file first",
            )
        block = next(self._blocks(), None)
        self.header: Final = _header(path, block[0]) if block is not None else _empty(path)

    def records(self) -> Iterator[Record]:
        """Every entry by sequence; the file is checked whole on the way."""
        last = 0
        for number, at, line in self._lines():
            if isinstance(line, FactLine):
                if line.seq <= last:
                    raise self._corrupt(number, at, f"expected a sequence above {last}", line.seq)
                last = line.seq
                yield line.record()

    def states(self) -> dict[str, bytes]:
        """By hash, the states that replay starts from: the blobs before the first fact."""
        blobs: dict[str, bytes] = {}
        held_bytes = 0
        for sha256, blob in self._blobs(before_facts=True):
            blobs[sha256] = blob
            held_bytes += len(blob)
            if held_bytes > STATES_BYTES_MAX:
                raise CorruptRecordingError(
                    f"{self.path}: expected states of at most {STATES_BYTES_MAX} bytes",
                    hint="record it again",
                )
        return blobs

    def blobs(self) -> Iterator[tuple[str, bytes]]:
        """Every blob with its hash, one at a time."""
        yield from self._blobs(before_facts=False)

    def _blobs(self, *, before_facts: bool) -> Iterator[tuple[str, bytes]]:
        """Blobs whose hash fits; the parts of one follow each other."""
        sha256, pieces, held_bytes = "", list[bytes](), 0
        for number, at, line in self._lines():
            if isinstance(line, FactLine):
                if before_facts:
                    return
                continue
            if line.part == 0:
                sha256, pieces, held_bytes = line.sha256, [], 0
            if line.sha256 != sha256 or line.part != len(pieces):
                raise self._corrupt(number, at, f"expected part {len(pieces)} of a blob", line.part)
            pieces.append(line.payload)
            held_bytes += len(line.payload)
            if held_bytes > STATES_BYTES_MAX:
                raise self._corrupt(number, at, f"expected at most {STATES_BYTES_MAX} bytes a blob")
            if line.part == line.parts - 1:
                blob = b"".join(pieces)
                found = hashlib.sha256(blob).hexdigest()
                if found != sha256:
                    raise CorruptRecordingError(
                        f"{self.path}: blob {sha256} has the hash {found}",
                        hint="record or copy it again",
                    )
                sha256, pieces, held_bytes = "", [], 0
                yield line.sha256, blob

    def _lines(self) -> Iterator[tuple[int, int, Line]]:
        """(number from 1, byte at which it starts, line) of all lines after the header."""
        header = self.header
        digest = hashlib.sha256()
        number, at, last_at, left_bytes = 1, 0, 0, header.bytes
        for lines in self._blocks():
            body = lines[1:] if number == 1 else lines
            if body:
                digest.update(b"\n".join(body))
                digest.update(b"\n")
            for raw in lines:
                if number > 1:
                    try:
                        line = decode_line(raw)
                    except ValueError as error:
                        raise self._corrupt(number, at, str(error)) from error
                    left_bytes -= len(raw) + 1
                    if number > header.lines + 1 or left_bytes < 0:
                        # a few bytes can be unpacked into as many as one likes
                        what = f"expected {header.lines + 1} lines and {header.bytes} bytes"
                        raise self._corrupt(number, at, what, "more")
                    yield number, at, line
                number, last_at = number + 1, at
                at += len(raw) + 1
        if number - 2 != header.lines:
            what = f"expected {header.lines + 1} lines, the file ends after {number - 1}"
            raise self._corrupt(number, at, what)
        if digest.hexdigest() != header.sha256:
            what = f"expected sha256 {header.sha256} of all lines after the first"
            raise self._corrupt(number - 1, last_at, what, digest.hexdigest())

    def _blocks(self) -> Iterator[list[bytes]]:
        """Lines without their ends, many at a time. Bytes count uncompressed."""
        number, at, rest = 1, 0, b""
        try:
            with self.path.open("rb") as file:
                for chunk in _chunks(file, compressed=self.path.suffix == ".zst"):
                    lines = chunk.split(b"\n")
                    lines[0] = rest + lines[0]
                    rest = lines.pop()
                    if lines:
                        yield lines
                        number += len(lines)
                        at += sum(map(len, lines)) + len(lines)
                    if len(rest) > LINE_BYTES_MAX:
                        raise self._corrupt(
                            number, at, f"expected lines of at most {LINE_BYTES_MAX} bytes"
                        )
        except OSError as error:
            raise NoRecordingError(
                f"cannot read {self.path}: {error.strerror or error}",
                hint="make one with: nemesis record --out FILE",
            ) from error
        except zstandard.ZstdError as error:
            raise self._corrupt(
                number, at + len(rest), f"expected zstd data, the decoder says: {error}"
            ) from error
        if rest:
            raise self._corrupt(
                number, at + len(rest), "expected the rest of the line, the file ends here"
            )

    def _corrupt(
        self, number: int, at: int, expected: str, got: object = None
    ) -> CorruptRecordingError:
        seen = "" if got is None else f", got {got}"
        return CorruptRecordingError(
            f"{self.path}: line {number}, byte {at}: {expected}{seen}",
            hint="record or copy it again",
        )


def _chunks(file: IO[bytes], *, compressed: bool) -> Iterator[bytes]:
    """Pieces of the text, of bounded size however well it is packed."""
    if not compressed:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk
        return
    unpacked = zstandard.ZstdDecompressor().stream_reader(
        file, read_across_frames=True, closefd=False
    )
    while chunk := unpacked.read(_CHUNK_BYTES):
        yield chunk


def _header(path: Path, first: bytes) -> Header:
    try:
        start = msgspec.json.decode(first, type=_Beginning)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptRecordingError(
            f"{path}: line 1, byte 0: expected the header of a recording, {error}",
            hint="nemesis record makes recordings, nemesis triage reads logs",
        ) from error
    if start.format != FORMAT:
        raise CorruptRecordingError(
            f"{path}: line 1, byte 0: expected format {FORMAT!r}, got {start.format[:40]!r}",
            hint="nemesis record makes recordings, nemesis triage reads logs",
        )
    if start.format_version > FORMAT_VERSION:
        raise NewerRecordingError(
            f"{path} was written by NEMESIS {start.nemesis_version} in format"
            f" {start.format_version}, this is {__version__} and reads up to {FORMAT_VERSION}",
            hint=f"pip install 'nemesis-gpu>={start.readable_since}'"
            if _RELEASE.match(start.readable_since)  # a shell is to run this
            else "read it with a newer release",
        )
    try:
        return _headers.decode(first)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptRecordingError(
            f"{path}: line 1, byte 0: the header does not fit: {error}",
            hint="record or copy it again",
        ) from error


def _empty(path: Path) -> Header:
    what = "the file ends here" if path.stat().st_size else "the file is empty"
    raise CorruptRecordingError(
        f"{path}: line 1, byte 0: expected the header of a recording, {what}",
        hint="record or copy it again",
    )
