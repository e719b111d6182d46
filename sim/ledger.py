"""The ledger: what was really broken and what the job really did.

It lies in a stream of its own, NEMESIS_TRUTH, that no processor may read: NEMESIS is judged by it
and must never learn from it. One JSON document a subject `nemesis.truth.<run>.<what>`.
"""

from typing import Final

import msgspec

from nemesis.schemas.codes import Action, FaultClass
from nemesis.schemas.errors import MalformedFactError
from nemesis.sim.cluster import FaultKind
from nemesis.sim.faults import Fault

TRUTH_STREAM: Final = "NEMESIS_TRUTH"


class FaultInjected(msgspec.Struct, kw_only=True, frozen=True, tag="fault_injected"):
    """One thing broke."""

    at_ns: int
    """Simulated time, which is log time."""
    kind: FaultKind
    node: str
    culprit: str
    classes: tuple[FaultClass, ...]
    lost_ranks: tuple[int, ...]
    actions: tuple[Action, ...]


class MembershipFormed(msgspec.Struct, kw_only=True, frozen=True, tag="membership_formed"):
    """The job finished its first step in an epoch: it really goes on."""

    at_ns: int
    epoch: int
    step: int
    world: int
    redone_count: int
    """Steps finished twice since the job began."""
    restarts_count: int
    """Processes started anew since the job began."""


_encoder: Final = msgspec.json.Encoder()
_decoder: Final[msgspec.json.Decoder[FaultInjected | MembershipFormed]] = msgspec.json.Decoder(
    FaultInjected | MembershipFormed
)


def truth_subject(run: str, what: str) -> str:
    """The subject of a ledger entry."""
    return f"nemesis.truth.{run}.{what}"


def injected(fault: Fault, start_ns: int) -> FaultInjected:
    """The entry for a fault of a run that began at `start_ns`."""
    return FaultInjected(
        at_ns=start_ns + fault.onset_ns,
        kind=fault.kind,
        node=fault.node,
        culprit=fault.culprit,
        classes=fault.classes,
        lost_ranks=fault.lost_ranks,
        actions=fault.actions,
    )


def encode_truth(truth: FaultInjected | MembershipFormed) -> bytes:
    """An entry's bytes."""
    return _encoder.encode(truth)


def decode_truth(payload: bytes) -> FaultInjected | MembershipFormed:
    """The entry in these bytes.

    Raises:
        MalformedFactError: there is none.
    """
    try:
        return _decoder.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedFactError(f"ledger: {error}") from error
