"""Recordings of a past incident: from the log while it has the slice, else from the archive.

An incident is one piece of the log, or several where it was open for long or was opened again.
"""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

import msgspec
import zstandard

from nemesis.processors.fold import Input
from nemesis.replay.capture import SliceExpiredError, capture
from nemesis.replay.cases import Case, Cases
from nemesis.replay.reader import Recording
from nemesis.replay.slices import answered_after, matching
from nemesis.replay.writer import exists, explained, place
from nemesis.schemas.facts import EVENTS_SUBJECT, Record
from nemesis.schemas.kept import IncidentArchived
from nemesis.streams.errors import DamagedObjectError, MissingObjectError
from nemesis.streams.log import Log
from nemesis.streams.objects import ObjectStore
from nemesis.streams.permissions import INCIDENTS

ARCHIVIST: Final = "archivist"


class Piece(msgspec.Struct, frozen=True):
    """A recording of an incident, or of a part of it."""

    path: Path
    source: Literal["log", "archive"]
    from_seq: int
    to_seq: int


async def read_cases(log: Log) -> Cases:
    """Every incident that the log knows, and what is kept of it."""
    cases = Cases()
    async for record in matching(log, EVENTS_SUBJECT):
        cases.take(Input(record))
    return cases


async def bring(
    log: Log,
    case: Case,
    out: Path,
    *,
    cell: str,
    force: bool = False,
    progress: Callable[[int], None] | None = None,
) -> list[Piece]:
    """Make the recordings of an incident: `out`, or `out` with a number where there are several.

    Raises:
        SliceExpiredError: the log no longer has it, and nothing was archived.
        MissingObjectError, DamagedObjectError: the archive does not have what was archived.
        RecordingExistsError, CannotWriteError: see RecordingWriter.
    """
    wanted: list[tuple[int, int, IncidentArchived | None]] = [
        (part.from_seq, part.to_seq, part) for part in case.parts
    ]
    if case.facts and not case.is_whole:  # what is said of one that is kept whole is a remark
        last_seq = await answered_after(log, case.facts[-1].seq)
        wanted.append((case.from_seq, last_seq, None))
    pieces: list[Piece] = []
    for number, (from_seq, to_seq, part) in enumerate(wanted, 1):
        path = out if len(wanted) == 1 else _numbered(out, number)
        try:
            header = await capture(
                log,
                path,
                from_seq=from_seq,
                to_seq=to_seq,
                cell=cell,
                incident=case.incident,
                force=force,
                whole=True,
                progress=progress,
            )
        except SliceExpiredError as error:
            if part is None:
                raise SliceExpiredError(
                    f"{case.incident} was not archived, and {error.message}",
                    hint="what is left of it: `nemesis record --from SEQ --to SEQ --out FILE`",
                ) from error
            await fetch(log, part, path, force=force)
            pieces.append(Piece(path, "archive", part.from_seq, part.to_seq))
        else:
            pieces.append(Piece(path, "log", header.from_seq, header.to_seq))
    return pieces


async def fetch(log: Log, part: IncidentArchived, path: Path, *, force: bool = False) -> None:
    """Write what the archive keeps of an incident into a file.

    Raises:
        MissingObjectError, DamagedObjectError: the archive does not have what was archived.
        RecordingExistsError, CannotWriteError: see RecordingWriter.
    """
    _refuse_existing(path, force=force)
    store = ObjectStore(log.connection, INCIDENTS, owner=ARCHIVIST)
    with explained(path), tempfile.TemporaryDirectory(dir=path.parent, prefix=".") as folder:
        packed = Path(folder) / "packed.zst"
        with packed.open("wb") as file:
            try:
                await store.copy(part.sha256, file)
            except (MissingObjectError, DamagedObjectError) as error:
                raise type(error)(
                    f"archive of {part.incident}: {error.message}", hint=error.hint
                ) from error
        finished = packed if path.suffix == ".zst" else _unpacked(packed)
        finished.chmod(0o600)
        place(finished, path, force=force)


async def archived_record(log: Log, case: Case, seq: int) -> Record | None:
    """A record of an incident that the log no longer has; None where the archive has not either."""
    for part in case.parts:
        if part.from_seq <= seq <= part.to_seq:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "part.ndjson.zst"
                await fetch(log, part, path)
                return next((each for each in Recording(path).records() if each.seq == seq), None)
    return None


def _refuse_existing(path: Path, *, force: bool) -> None:
    if path.exists() and not force:
        raise exists(path)


def _numbered(out: Path, number: int) -> Path:
    """`incident.ndjson.zst` -> `incident-1.ndjson.zst`."""
    name, dot, suffixes = out.name.partition(".")
    return out.with_name(f"{name}-{number}{dot}{suffixes}")


def _unpacked(packed: Path) -> Path:
    plain = packed.with_suffix("")
    with packed.open("rb") as source, plain.open("wb") as target:
        unpacked = zstandard.ZstdDecompressor().stream_reader(source, read_across_frames=True)
        shutil.copyfileobj(unpacked, target, 1 << 20)
        target.flush()
        os.fsync(target.fileno())
    return plain
