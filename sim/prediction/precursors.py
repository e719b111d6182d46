"""How often GPUs fail and what shows before: the parameters, from one file with their sources.

Not here: what a kind of life looks like (stories.py).
"""

from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from nemesis.schemas.errors import NemesisError
from nemesis.sim.params import Quartiles
from nemesis.streams.documents import BadDocumentError, read_document, read_toml

DEFAULT: Final = Path(__file__).with_name("precursors.toml")
MILLION: Final = 1_000_000
Mix = Literal["honest", "seed"]
"""honest: failures by published counts, most without a sign; seed: each announces itself."""


class BadPrecursorsError(NemesisError):
    """A file of precursors that cannot be used."""

    exit_code = 2


class _Section(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A section of the file."""


class Kind(_Section, kw_only=True, frozen=True):
    """A kind of life."""

    name: str
    rate: float
    """Per million GPU-days."""
    fails: bool
    sign: bool
    """Something shows before, if anybody can read it: the ceiling of recall."""


class LifeParams(_Section, kw_only=True, frozen=True):
    """What is looked at of a GPU."""

    minutes: int
    probation_days: int


class RampParams(_Section, kw_only=True, frozen=True):
    """Corrected errors that come faster and faster, rows that are remapped."""

    hours: Quartiles
    errors_count: Quartiles
    remaps_count: Quartiles
    abates_at_ppm: Quartiles
    regular: bool
    """In the scenarios' rhythm, whose end follows from it; else at random times of that density."""


class StormParams(_Section, kw_only=True, frozen=True):
    """One weak cell that is read all the time."""

    hours: Quartiles
    errors_per_s: Quartiles


class HeatParams(_Section, kw_only=True, frozen=True):
    """A memory that grows hot."""

    minutes: Quartiles
    rise_c: Quartiles
    fails_above_rise_c: int


class ReplayParams(_Section, kw_only=True, frozen=True):
    """A PCIe link that sends again and again."""

    minutes: Quartiles
    events_count: Quartiles


class PollParams(_Section, kw_only=True, frozen=True):
    """What cannot be read."""

    lost_ppm: int
    gap_ppm: int
    gap_minutes: Quartiles
    no_sram_ppm: int
    no_nvlink_ppm: int
    mig_ppm: int


class LoadParams(_Section, kw_only=True, frozen=True):
    """What GPUs do."""

    changes_per_day: int
    idle_ppm: int
    stalled_ppm: int


class Split(_Section, kw_only=True, frozen=True):
    """GPUs that are in no other split."""

    name: str
    families: tuple[str, ...]
    mixes: tuple[Mix, ...] = ("honest", "seed")
    """Where it is judged by."""
    changes: dict[str, Any] = {}
    """Lines of the file that are otherwise here."""
    ce_days: int = 0
    """Between corrected errors of a healthy GPU; 0: as everywhere."""


class Precursors(_Section, kw_only=True, frozen=True):
    """The file."""

    kind: tuple[Kind, ...]
    life: LifeParams
    ramp: RampParams
    storm: StormParams
    heat: HeatParams
    replays: ReplayParams
    polls: PollParams
    load: LoadParams
    split: tuple[Split, ...]
    seed_changes: dict[str, Any] = {}
    """Lines that are otherwise in the mix in which every failure announces itself."""
    sha256: str = ""

    def named(self, split: str) -> Split:
        """A split by its name.

        Raises:
            BadPrecursorsError: there is none of that name.
        """
        found = [each for each in self.split if each.name == split]
        if not found:
            names = ", ".join(each.name for each in self.split)
            raise BadPrecursorsError(f"no split {split!r}: there are {names}")
        return found[0]

    def of(self, split: Split, mix: Mix = "honest") -> "Precursors":
        """The parameters as they are in a split."""
        document = msgspec.to_builtins(self)
        for changes in (self.seed_changes if mix == "seed" else {}, split.changes):
            for section, lines in changes.items():
                document[section] = document[section] | lines
        return msgspec.convert(document, Precursors)

    def ceiling(self) -> float:
        """Share of failures that any sign precedes: nobody's recall can be higher."""
        fails = [each for each in self.kind if each.fails]
        return sum(each.rate for each in fails if each.sign) / sum(each.rate for each in fails)


@cache
def load_precursors(path: Path = DEFAULT) -> Precursors:
    """The parameters that a file gives.

    Raises:
        BadPrecursorsError: no such file, not TOML, or a field that is missing or unknown.
    """
    try:
        document = read_toml(path)
        digest = sha256(read_document(path)).hexdigest()
        found = msgspec.convert({**document, "sha256": digest}, Precursors)
        for split in found.split:
            found.of(split, "seed")
    except (BadDocumentError, msgspec.ValidationError, KeyError) as error:
        raise BadPrecursorsError(f"{path}: {error}") from error
    return found
