"""A run's ledger as a file: one entry a line, the opening first, the closing last.

Whoever scores a recording needs it beside the recording; nobody else should. A file that is cut
short, or of other entries, is refused with its line.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from nemesis import __version__
from nemesis.schemas.errors import NemesisError
from nemesis.sim.faults.scenario import Scenario
from nemesis.sim.topology.cluster import Cluster
from nemesis.sim.truth.ledger import (
    Entry,
    FaultInjected,
    LedgerClosed,
    LedgerOpened,
    MembershipFormed,
    Truth,
)
from nemesis.streams.documents import BadDocumentError, read_document
from nemesis.streams.replacing import replace_file

SUFFIX: Final = ".ledger.ndjson"
BYTES_MAX: Final = 1 << 28  # a fault is a few kilobytes
_encoder: Final = msgspec.json.Encoder()
_decoder: Final[msgspec.json.Decoder[Entry]] = msgspec.json.Decoder(Entry)


class BadLedgerError(NemesisError):
    """A ledger that cannot be read: cut short, damaged, or no ledger."""

    exit_code = 2


class Ledger(msgspec.Struct, kw_only=True, frozen=True):
    """What one run really was."""

    opened: LedgerOpened
    truths: tuple[Truth, ...]
    closed: LedgerClosed

    @property
    def faults(self) -> tuple[FaultInjected, ...]:
        """What broke, in the order in which it began."""
        return tuple(each for each in self.truths if isinstance(each, FaultInjected))

    @property
    def memberships(self) -> tuple[MembershipFormed, ...]:
        """How the job went on."""
        return tuple(each for each in self.truths if isinstance(each, MembershipFormed))

    @property
    def passed_ns(self) -> int:
        """How long the run took, simulated."""
        return self.closed.at_ns - self.opened.start_ns


def opening(
    cluster: Cluster,
    scenario: Scenario,
    *,
    seed: int,
    start_ns: int,
    params_sha256: str,
    suite: str = "",
    defects: tuple[str, ...] = (),
    began_wall_ns: int = 0,
    speed_ppm: int = 1_000_000,
) -> LedgerOpened:
    """The first entry of a run's ledger."""
    return LedgerOpened(
        scenario=scenario.name,
        seed=seed,
        cluster=cluster.cluster.name,
        nodes_count=len(cluster.node_names),
        gpus_count=sum(len(cluster.gpus_of(node)) for node in cluster.node_names),
        start_ns=start_ns,
        params_sha256=params_sha256,
        nemesis_version=__version__,
        suite=suite,
        defects=defects,
        began_wall_ns=began_wall_ns,
        speed_ppm=speed_ppm,
        expect=scenario.expect,
    )


def ledger_of(opened: LedgerOpened, truths: Iterable[Truth], ended_ns: int) -> Ledger:
    """The ledger of a run that ended at `ended_ns`, simulated time."""
    entries = tuple(truths)
    closed = LedgerClosed(at_ns=ended_ns, entries_count=len(entries) + 1)
    return Ledger(opened=opened, truths=entries, closed=closed)


def write_ledger(path: Path, ledger: Ledger) -> None:
    """Write it, readable by its owner alone; a file of that name is replaced at once.

    Raises:
        BadLedgerError: the folder refuses.
    """
    entries = (ledger.opened, *ledger.truths, ledger.closed)
    try:
        replace_file(path, b"".join(_encoder.encode(each) + b"\n" for each in entries))
    except OSError as error:
        raise BadLedgerError(f"cannot write {path}: {error.strerror}") from error


def read_ledger_file(path: Path) -> Ledger:
    """The ledger in a file.

    Raises:
        BadLedgerError: no such file, a line that is no entry, or an end that is missing.
    """
    try:
        lines = read_document(path, bytes_max=BYTES_MAX).splitlines()
    except BadDocumentError as error:
        raise BadLedgerError(error.message) from error
    entries: list[Entry] = []
    for number, line in enumerate(lines, 1):
        try:
            entries.append(_decoder.decode(line))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadLedgerError(f"{path}: line {number}: {error}") from error
    if not entries or not isinstance(entries[0], LedgerOpened):
        raise BadLedgerError(f"{path}: line 1: expected a ledger_opened")
    last = entries[-1]
    if not isinstance(last, LedgerClosed) or last.entries_count != len(entries) - 1:
        raise BadLedgerError(
            f"{path}: line {len(entries)}: expected the ledger_closed of {len(entries) - 1}"
            " entries, the file is cut short",
            hint="run it again",
        )
    truths = tuple(
        each for each in entries[1:-1] if isinstance(each, FaultInjected | MembershipFormed)
    )
    if len(truths) != len(entries) - 2:
        raise BadLedgerError(f"{path}: opened or closed twice")
    return Ledger(opened=entries[0], truths=truths, closed=last)
