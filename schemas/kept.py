"""What the runner writes about itself: where a processor stands and what went wrong on the way."""

from typing import Literal

import msgspec

from nemesis.schemas.inferred import Inference
from nemesis.schemas.observed import Count, Ns


class ProcessorAdvanced(
    msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True, rename={"in_seq": "in"}
):
    """A processor's position: `nemesis.cursor.<name>`, the last message of each batch."""

    in_seq: Count
    """Every input up to here is answered."""
    log_time_ns: Ns
    version: Count
    """The version that must answer the next input."""
    snapshot: bool = False
    """The batch also holds a snapshot of the state after in_seq."""
    written: Count = 0
    """How many conclusions of input in_seq + 1 are written, where they did not fit one batch."""
    skipped_seq: Count = 0
    """The newest input skipped so far: who stepped it must restore from a snapshot after it."""


class SnapshotTaken(
    msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True, rename={"in_seq": "in"}
):
    """A processor's state after one input: `nemesis.cursor.<name>.snapshot`."""

    in_seq: Count
    log_time_ns: Ns
    version: Count
    sha256: str
    size_bytes: Count
    state: bytes = b""
    """The state itself; empty where it is too large and lies in NEMESIS_STATE under its hash."""


class ProcessorStarted(Inference, kw_only=True, frozen=True):
    """A copy took up work; replay resets the state at the same place."""

    name: str
    version: Count
    in_seq: Count
    state_from: Count
    how: Literal["cold", "snapshot", "reread"]
    missed_count: Count = 0
    """Inputs before state_from that it had to read again, and that had expired."""


class InputLost(Inference, kw_only=True, frozen=True):
    """Inputs expired before this processor read them."""

    name: str
    from_seq: Count
    to_seq: Count


class ProcessorDiverged(Inference, kw_only=True, frozen=True):
    """Two copies answered one input differently: one of them runs on broken hardware or code."""

    name: str
    fact: str
    """The id of the conclusion that differs."""
    mine_sha256: str
    theirs_sha256: str


class ConclusionUndeliverable(Inference, kw_only=True, frozen=True):
    """The log refused a conclusion for good."""

    name: str
    error: str
    sha256: str


class FactSkipped(Inference, kw_only=True, frozen=True):
    """A step crashed three times on one input; the processor goes on without it."""

    name: str
    seq: Count
    error: str


class LogShortened(Inference, kw_only=True, frozen=True):
    """The log ends before what this copy had read: it was rolled back."""

    name: str
    read_seq: Count
    last_seq: Count


class DeliveryFailed(Inference, kw_only=True, frozen=True):
    """A sink gave an event up: whoever should have got it did not."""

    sink: str
    """The sink's own name."""
    event: str
    """The id of the event."""
    attempts: Count
    error: str
    """What the last attempt was answered."""


class LogMeasured(Inference, kw_only=True, frozen=True):
    """How full the log is, once a minute."""

    used_bytes: Count
    limit_bytes: Count
    fill_ppm: Count
    first_seq: Count
    last_seq: Count


class IncidentArchived(Inference, kw_only=True, frozen=True):
    """A slice of an incident, with the states before it, is kept for ever in NEMESIS_INCIDENTS."""

    incident: str
    object: str
    """Its name in the store."""
    sha256: str
    size_bytes: Count
    from_seq: Count
    to_seq: Count
    """Everything of the incident up to here is in this part or in one before."""
    part_index: Count = 0
    """More than one where an incident was open for long, or was opened again."""
    closed: bool = False
    """The incident was over when this part was made."""
    missing_count: Count = 0
    """Sequences of it that had expired before: what needs them cannot be verified."""
