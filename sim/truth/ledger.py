"""The ledger: what was really broken and what the job really did.

It lies in a stream of its own, NEMESIS_TRUTH, that no processor may read: NEMESIS is judged by it
and must never learn from it. One JSON document a subject `nemesis.truth.<run>.<what>`; as a file it
is one document a line (ledger_file.py).
"""

from typing import Final

import msgspec

from nemesis.schemas.codes import Action, FaultClass
from nemesis.schemas.errors import MalformedFactError
from nemesis.sim.faults.causal import Cause, Expected
from nemesis.sim.faults.scenario import ANYTHING, Expect
from nemesis.sim.faults.symptoms import Fault

TRUTH_STREAM: Final = "NEMESIS_TRUTH"


class LedgerOpened(msgspec.Struct, kw_only=True, frozen=True, tag="ledger_opened"):
    """What was run: with it anybody makes the run again."""

    scenario: str
    seed: int
    cluster: str
    nodes_count: int
    gpus_count: int
    start_ns: int
    """Simulated time at which it began."""
    params_sha256: str
    """Of the parameter file: a score counts only beside scores of the same."""
    nemesis_version: str
    suite: str = ""
    began_wall_ns: int = 0
    """What the clock of the log's server showed then, where it is not simulated time."""
    speed_ppm: int = 1_000_000
    """How fast simulated time passed."""
    defects: tuple[str, ...] = ()
    """What was wrong with the evidence itself: `n003 no_kernel_log`."""
    expect: Expect = ANYTHING
    """What must hold of the run besides right answers."""

    def simulated_ns(self, stored_ns: int) -> int:
        """Simulated time at which the log stored something."""
        if not self.began_wall_ns:
            return stored_ns
        return self.start_ns + max(0, stored_ns - self.began_wall_ns) * self.speed_ppm // 1_000_000


class LedgerClosed(msgspec.Struct, kw_only=True, frozen=True, tag="ledger_closed"):
    """The run is over; a ledger without it is cut short."""

    at_ns: int
    entries_count: int
    """Before this one, the opening included."""


class FaultInjected(msgspec.Struct, kw_only=True, frozen=True, tag="fault_injected"):
    """One thing broke."""

    at_ns: int
    """When it strikes, in simulated time, which is log time."""
    kind: str
    node: str
    culprit: str
    """The component that it sits in."""
    classes: tuple[FaultClass, ...]
    lost_ranks: tuple[int, ...]
    actions: tuple[Action, ...]
    began_ns: int
    """When the first of it could be seen; earlier than at_ns where something announces it."""
    over_ns: int
    """When its last symptom appears."""
    components: tuple[str, ...] = ()
    """Any of these is right to name; none for a decoy."""
    harmless: tuple[str, ...] = ()
    """What else may be named: it went down with the culprit."""
    stalls: bool = True
    """The job stands still from then on."""
    chain: tuple[Cause, ...] = ()
    """What caused what, the root first."""
    evidence: tuple[Expected, ...] = ()
    """What the log must show of it if all arrives."""
    innocent: tuple[str, ...] = ()
    """Loud though nothing is wrong with them."""
    repaired_ns: int = -1
    """When it was mended or ended by itself; -1: not in this run."""
    delivered: tuple[int, ...] = ()
    """Which of the evidence reaches the log in time, by place."""
    attributable: bool | None = None
    """Whether that names the culprit; None: nobody weighed it."""
    job: str = ""
    """Whose node it struck; none: a spare's."""


class MembershipFormed(msgspec.Struct, kw_only=True, frozen=True, tag="membership_formed"):
    """The job finished its first step in an epoch, or after a stall: it really goes on."""

    at_ns: int
    epoch: int
    step: int
    world: int
    redone_count: int
    """Steps finished twice since the job began."""
    restarts_count: int
    """Processes started anew since the job began."""
    members: str = ""
    """In rank_ranges form."""
    since_last_step_ns: int = 0
    """Between this step and the one before it; 0 for the first of the job, and in the last entry,
    which says how the job stands at the end."""
    job: str = ""
    """Which one; old ledgers have one only."""


Truth = FaultInjected | MembershipFormed
Entry = LedgerOpened | FaultInjected | MembershipFormed | LedgerClosed

_encoder: Final = msgspec.json.Encoder()
_decoder: Final[msgspec.json.Decoder[FaultInjected | MembershipFormed]] = msgspec.json.Decoder(
    FaultInjected | MembershipFormed
)


def truth_subject(run: str, what: str) -> str:
    """The subject of a ledger entry."""
    return f"nemesis.truth.{run}.{what}"


def injected(fault: Fault, start_ns: int, job: str = "") -> FaultInjected:
    """The entry for a fault of a run that began at `start_ns`, in a node of a job."""
    return FaultInjected(
        at_ns=start_ns + fault.onset_ns,
        kind=fault.kind,
        node=fault.node,
        culprit=fault.culprit,
        classes=fault.classes,
        lost_ranks=fault.lost_ranks,
        actions=fault.actions,
        began_ns=start_ns + fault.began_ns,
        over_ns=start_ns + fault.over_ns,
        components=fault.components,
        harmless=fault.harmless,
        stalls=fault.stalls,
        chain=fault.chain,
        evidence=fault.evidence,
        delivered=fault.delivered,
        attributable=fault.attributable,
        innocent=fault.innocent,
        repaired_ns=start_ns + fault.repaired_ns if fault.repaired_ns >= 0 else -1,
        job=job,
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
