"""Makes a recording from a log: a slice, the states before it, and the blobs that it refers to.

The slice is widened to the front, so that for each processor it starts at a state the log still
holds: then everything in it can be verified. Where no state is left the recording says so.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from nemesis import __version__
from nemesis.processors.fold import Input, first_needed
from nemesis.replay.recording import Header
from nemesis.replay.writer import RecordingWriter
from nemesis.schemas.errors import NemesisError
from nemesis.schemas.facts import Record, cursor_subject, snapshot_subject
from nemesis.schemas.kept import ProcessorAdvanced, SnapshotTaken
from nemesis.schemas.tokens import name_of
from nemesis.streams.log import TELEMETRY_TTL_S, Log
from nemesis.streams.lookup import first_since, next_from, subjects

_PROGRESS_EVERY: Final = 4096
_snapshots: Final = msgspec.msgpack.Decoder(SnapshotTaken)
_positions: Final = msgspec.msgpack.Decoder(ProcessorAdvanced)


class NothingRecordedError(NemesisError):
    """The slice holds no fact."""

    exit_code = 3


class SliceExpiredError(NemesisError):
    """The log no longer holds all of the slice."""

    exit_code = 3


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """A state of a processor that the log still holds."""

    name: str
    in_seq: int
    version: int
    """The version that answers the next input."""
    state: bytes
    handed_over: bool
    """The state is that of another version."""

    @property
    def from_seq(self) -> int:
        """The first record that replay from here must read."""
        return first_needed(self.state) or self.in_seq + 1


class Made(msgspec.Struct, frozen=True):
    """Who made a recording, and when."""

    by: str
    at: str


async def capture(
    log: Log,
    path: Path,
    *,
    from_seq: int,
    to_seq: int,
    cell: str,
    incident: str = "",
    force: bool = False,
    whole: bool = False,
    made: Made | None = None,
    progress: Callable[[int], None] | None = None,
) -> Header:
    """Write the slice from `from_seq` to `to_seq`, widened to the states before it.

    `whole`: a slice of which something has expired is refused, what is only to be read again aside;
    `made`: else by whom and when the file says by itself.

    Raises:
        NothingRecordedError: the log holds nothing of the slice.
        SliceExpiredError: it was to be whole and is not.
        RecordingExistsError, CannotWriteError: see RecordingWriter.
    """
    bounds = await log.bounds()
    from_seq, to_seq = max(from_seq, 1), min(to_seq, bounds.last_seq)
    if to_seq < from_seq or bounds.messages_count == 0:
        raise NothingRecordedError(
            f"no fact from {from_seq} to {to_seq}, the log ends at {bounds.last_seq}",
            hint="give another slice",
        )
    made = made or Made(f"nemesis record {__version__}", f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}")
    first_seq, starts = await starts_of(log, from_seq, to_seq)
    with RecordingWriter(
        path,
        cell=cell,
        made_by=made.by,
        made_at=made.at,
        from_seq=first_seq,
        force=force,
    ) as writer:
        for start in starts:
            writer.start(
                start.name,
                in_seq=start.in_seq,
                version=start.version,
                state=start.state,
                handed_over=start.handed_over,
            )
        whole_from = min([from_seq, *(start.in_seq + 1 for start in starts)]) if whole else to_seq
        dumps = await _copy(log, writer, first_seq, to_seq, progress, whole_from=whole_from)
        for sha256 in dumps:
            if (content := await log.blobs.get(sha256)) is not None:
                writer.blob(sha256, content)
        return writer.finish(
            to_seq=to_seq,
            gap_cause=gap_cause(writer.after_gaps_ns, time.time_ns()),
            incident=incident,
        )


async def starts_of(log: Log, from_seq: int, to_seq: int) -> tuple[int, list[Start]]:
    """Where the slice must begin, and for each processor the state it starts from.

    That is the last state before the slice; where none is left, the log's beginning if nothing
    has expired yet, else the first state in the slice.
    """
    bounds = await log.bounds()
    whole = bounds.first_seq == 1 and bounds.messages_count == bounds.last_seq
    if whole and from_seq == 1:
        return 1, []  # everybody starts with nothing
    told_seq = from_seq if whole else await _behind_what_expired(log, from_seq, to_seq)
    starts: list[Start] = []
    for subject in await subjects(log, "nemesis.cursor.*"):
        name = name_of(subject.rpartition(".")[2])
        if await next_from(log, subject, told_seq) is None:
            continue  # it answered nothing in the slice, and its last state may be days old
        start = await _start_of(log, name, told_seq, to_seq)
        if whole and (start is None or start.in_seq >= from_seq):
            return 1, []
        starts.extend([start] if start is not None else [])
    return min([from_seq, *(start.from_seq for start in starts)]), starts


async def _behind_what_expired(log: Log, from_seq: int, to_seq: int) -> int:
    """The first sequence of the slice that is young enough for everything to be there still."""
    young = await first_since(log, time.time_ns() - TELEMETRY_TTL_S * 1_000_000_000)
    return max(from_seq, young.seq) if young is not None and young.seq <= to_seq else from_seq


async def _start_of(log: Log, name: str, from_seq: int, to_seq: int) -> Start | None:
    subject = snapshot_subject(name)
    record = await log.last(subject, up_to_seq=from_seq)
    while record is not None and await _version_after(log, name, record) is None:
        record = await log.last(subject, up_to_seq=record.seq - 1) if record.seq > 1 else None
    # a state is written after the inputs that went into it: later ones may still lie before
    later = await next_from(log, subject, record.seq + 1 if record is not None else 1)
    while later is not None and (
        record is None or _snapshots.decode(later.payload).in_seq < from_seq
    ):
        if await _version_after(log, name, later) is not None:
            record = later
        later = await next_from(log, subject, later.seq + 1)
    version = await _version_after(log, name, record) if record is not None else None
    if record is None or version is None:
        return None
    taken = _snapshots.decode(record.payload)
    state = taken.state or await log.states.get(taken.sha256)
    if taken.in_seq > to_seq or state is None:
        return None
    return Start(
        name=name,
        in_seq=taken.in_seq,
        version=version,
        state=state,
        handed_over=taken.version != version,
    )


async def _version_after(log: Log, name: str, record: Record) -> int | None:
    """Who goes on from the state in this record, as the position of its batch says.

    None: a store that ended inside the batch has lost the position, and the state was given up.
    """
    found = await next_from(log, cursor_subject(name), record.seq)
    if found is None:
        return None
    position = _positions.decode(found.payload)
    whole = position.snapshot and position.in_seq == _snapshots.decode(record.payload).in_seq
    return position.version if whole else None


async def _copy(
    log: Log,
    writer: RecordingWriter,
    from_seq: int,
    to_seq: int,
    progress: Callable[[int], None] | None,
    *,
    whole_from: int,
) -> list[str]:
    """Copy the facts; hashes of the dumps that they refer to, in order."""
    dumps: dict[str, None] = {}
    count, next_seq = 0, max(from_seq, whole_from)
    async for record in log.read_range(from_seq, to_seq):
        if record.seq > next_seq:
            raise SliceExpiredError(
                f"sequences {next_seq} to {record.seq - 1} are no longer in the log",
                hint="`nemesis incident --archived` lists what was kept",
            )
        next_seq = max(next_seq, record.seq + 1)
        writer.record(record)
        count += 1
        if record.subject.endswith(".collective"):
            item = Input(record)
            if item.decoded() is not None and item.value.dump_sha256:
                dumps[item.value.dump_sha256] = None
        if progress is not None and count % _PROGRESS_EVERY == 0:
            progress(count)
    return list(dumps)


def gap_cause(after_gaps_ns: int, now_ns: int) -> str:
    """Why sequences are missing; the fact behind the newest gap was stored at `after_gaps_ns`."""
    if after_gaps_ns < now_ns - TELEMETRY_TTL_S * 1_000_000_000:
        return f"telemetry expires after {TELEMETRY_TTL_S // 3600} h"
    return f"younger than {TELEMETRY_TTL_S // 3600} h, so not expired: the log has lost them"
