"""The recording: one portable file that holds a slice of the log and all that replay needs.

NDJSON, compressed when the name ends in `.zst`. Line 1 is the header: what is in the file, and for
each processor what replay must know before it reads on (where to start, what was skipped or lost,
where states can be compared). Then come blobs with the states to start from, facts by sequence,
and blobs that facts refer to. Each line after the header ends in the CRC-32 of what precedes it, so
that damage is found where it lies; the header holds a SHA-256 of everything after it.
Telemetry stays msgpack in base64; an event stays the JSON that it was, byte for byte.
"""

import zlib
from typing import Final

import msgspec

from nemesis.schemas.errors import NemesisError
from nemesis.schemas.facts import Record
from nemesis.schemas.observed import Count, Ns

FORMAT: Final = "nemesis-recording"
FORMAT_VERSION: Final = 1
READABLE_SINCE: Final = "0.1"
"""The oldest release that reads FORMAT_VERSION."""

STATES_BYTES_MAX: Final = 1 << 30  # held in memory by a reader; much above any cell's
BLOB_PART_BYTES: Final = 1 << 20  # keeps every line, so a reader's memory, small
LINE_BYTES_MAX: Final = 16 << 20  # the server takes messages up to 8 MiB at most; base64 adds 4/3
_CRC_FIELD: Final = b',"crc32":"'
_CRC_BYTES: Final = len(_CRC_FIELD) + 10  # eight digits and `"}`


class CorruptRecordingError(NemesisError):
    """A recording that is cut short or damaged; names the line, the byte and what was expected."""


class NewerRecordingError(NemesisError):
    """A recording in a format that this release does not read."""

    exit_code = 3


class RecordingExistsError(NemesisError):
    """There is a file of that name, and nobody said that it may go."""

    exit_code = 4


class ProcessorPlan(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What replay must know of one processor before it reads the facts."""

    name: str
    start_seq: int = 0
    """Every input up to here is in the state that replay starts from."""
    start_version: int = 0
    """The version that answers the next input; 0 where no version was in force yet."""
    start_handed_over: bool = False
    """The state is that of another version, which handed over after it."""
    start_sha256: str = ""
    """The state's hash, its bytes are among the blobs; empty for the empty state at sequence 0."""
    startable: bool = True
    """False where the recording holds neither the log's beginning nor a state."""
    answered_seq: int = 0
    """Its last position: conclusions to later inputs need not be in the recording."""
    skips: dict[int, str] = {}
    """Inputs that it did not step, with the error."""
    lost: list[tuple[int, int]] = []
    rereads: list[int] = []
    """Inputs at which a copy came up without its state, or a window of it, and had read again what
    was left."""
    states: list[tuple[int, str]] = []
    """(input, hash of the state after it) wherever the log says."""


class Header(msgspec.Struct, kw_only=True):
    """The first line."""

    format: str
    format_version: int
    readable_since: str
    nemesis_version: str
    schema: str
    """The release whose facts these are."""
    cell: str
    made_by: str
    made_at: str
    from_seq: Count
    to_seq: Count
    first_ns: Ns
    last_ns: Ns
    lines: Count
    """After this one."""
    bytes: Count
    """Of these lines, unpacked."""
    sha256: str
    counts: dict[str, int]
    gaps: list[tuple[int, int]]
    """Sequences of the slice that the log no longer had."""
    gap_cause: str
    processors: list[ProcessorPlan]
    incident: str = ""


class FactLine(msgspec.Struct, tag_field="line", tag="fact", omit_defaults=True, frozen=True):
    """One entry of the log."""

    seq: Count
    subject: str
    stored_ns: Ns
    payload: bytes = b""
    event: msgspec.Raw = msgspec.Raw()

    def record(self) -> Record:
        """The entry as it lay in the log."""
        payload = self.payload or bytes(self.event)
        return Record(self.seq, self.subject, self.stored_ns, payload)


class BlobLine(msgspec.Struct, tag_field="line", tag="blob", omit_defaults=True, frozen=True):
    """A piece of something that facts refer to by hash."""

    sha256: str
    part: Count
    parts: Count
    payload: bytes


Line = FactLine | BlobLine

_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(Line)
_raw: Final = msgspec.json.Decoder(msgspec.Raw)


def fact_line(record: Record) -> FactLine:
    """How an entry is written: as JSON where it is JSON on one line, else in base64."""
    payload = record.payload
    if record.subject.startswith("nemesis.events.") and _is_one_json_line(payload):
        return FactLine(
            record.seq, record.subject, record.stored_ns, b"", event=msgspec.Raw(payload)
        )
    return FactLine(record.seq, record.subject, record.stored_ns, payload)


def _is_one_json_line(payload: bytes) -> bool:
    if b"\n" in payload or b"\r" in payload:
        return False
    try:
        payload.decode("utf-8", "strict")
        return bytes(_raw.decode(payload)) == payload != b""
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def encode_line(line: Line) -> bytes:
    """A line's bytes with its check and the line's end."""
    body = _encoder.encode(line)[:-1]
    return b'%s%s%08x"}\n' % (body, _CRC_FIELD, zlib.crc32(body))


def decode_line(raw: bytes) -> Line:
    """The line in these bytes, without the line's end.

    Raises:
        ValueError: says what was expected and what was there.
    """
    crc, check = zlib.crc32(raw[:-_CRC_BYTES]), raw[-_CRC_BYTES:]
    if check != b'%s%08x"}' % (_CRC_FIELD, crc):
        if not check.startswith(_CRC_FIELD) or not check.endswith(b'"}'):
            raise ValueError(f"expected a line that ends in its crc32, got {_shown(raw)}")
        raise ValueError(
            f"the line does not fit its check: expected crc32 {crc:08x},"
            f" got {_shown(check[len(_CRC_FIELD) : -2])}"
        )
    try:
        return _decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"expected a fact or a blob: {error}") from error


def encode_header(header: Header) -> bytes:
    """The first line's bytes."""
    return _encoder.encode(header) + b"\n"


def _shown(raw: bytes) -> str:
    return ascii(raw[:60].decode("utf-8", "replace")) + (" ..." if len(raw) > 60 else "")
