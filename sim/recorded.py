"""A log that lies in memory, as a recording; and what a recording says, in simulated time.

With its ledger beside it a recording can be scored by anybody, as often as the score is improved:
`nemesis score` reads both.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from nemesis import __version__
from nemesis.replay.reader import Recording
from nemesis.replay.writer import RecordingWriter
from nemesis.schemas.facts import Fact, Record, split_subject
from nemesis.sim.events import fact_of
from nemesis.sim.truth.ledger import LedgerOpened
from nemesis.sim.truth.ledger_file import SUFFIX, Ledger, read_ledger_file
from nemesis.sim.truth.score import READ

SUFFIXES: Final = (".ndjson.zst", ".ndjson")


def write_recording(path: Path, records: Iterable[Record], *, force: bool = False) -> None:
    """Write a whole log.

    Raises:
        RecordingExistsError, CannotWriteError: see RecordingWriter.
    """
    made_by = f"nemesis sim {__version__}"
    last_seq = 0
    with RecordingWriter(
        path, cell="sim", made_by=made_by, made_at="simulated", from_seq=1, force=force
    ) as writer:
        for record in records:
            writer.record(record)
            last_seq = record.seq
        writer.finish(to_seq=last_seq)


def judged_facts(recording: Recording, opened: LedgerOpened) -> Iterator[Fact]:
    """The facts that a score is made from, each at the simulated time at which it was stored."""
    for record in recording.records():
        space, token, _ = split_subject(record.subject)
        if space == "events" and token in READ:
            fact = fact_of(record, opened.simulated_ns(record.stored_ns))
            if fact is not None:
                yield fact


def ledger_beside(recording: Path) -> Path:
    """The ledger's name beside a recording's: `run.ledger.ndjson` beside `run.ndjson.zst`."""
    stem = next(
        (recording.name.removesuffix(each) for each in SUFFIXES if recording.name.endswith(each)),
        recording.stem,
    )
    return recording.with_name(stem + SUFFIX)


def recordings_in(folder: Path) -> list[Path]:
    """Every recording with a ledger beside it, by name."""
    found = [
        path
        for path in sorted(folder.iterdir())
        if path.name.endswith(SUFFIXES) and not path.name.endswith(SUFFIX)
    ]
    return [path for path in found if ledger_beside(path).exists()]


def read_pair(recording: Path, ledger: Path | None = None) -> tuple[Ledger, list[Fact]]:
    """A run's ledger and what was said in it.

    Raises:
        BadLedgerError: no ledger, or one that cannot be read.
        NoRecordingError, CorruptRecordingError, NewerRecordingError: see Recording.
    """
    truth = read_ledger_file(ledger or ledger_beside(recording))
    return truth, list(judged_facts(Recording(recording), truth.opened))
