"""Runs a suite: every seed offline with the real processors, over processes, and goes on where it
was interrupted.

A run that is done lies as a file in the suite's folder, whose name holds the hashes of the suite,
the parameters and the code: whatever changes one of them starts anew, and nothing is mixed.
"""

import hashlib
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Final

import msgspec

import nemesis
from nemesis.schemas.errors import NemesisError
from nemesis.sim.offline import START_NS, OfflineRun, run_offline
from nemesis.sim.params import DEFAULT, Params, load_params
from nemesis.sim.recorded import write_recording
from nemesis.sim.truth.defects import told
from nemesis.sim.truth.drawn import Drawn, draw
from nemesis.sim.truth.ledger_file import SUFFIX, opening, write_ledger
from nemesis.sim.truth.scored import ScoredRun, scored
from nemesis.sim.truth.suites import Suite
from nemesis.streams.replacing import replace_file

QUANTUM_NS: Final = 200_000_000
"""How often agents look: a fifth of the shortest poll; four times as many runs as with 50 ms."""
CODE: Final = ("processors", "producers", "schemas", "sim")
"""Whose change may change a run."""
HASH_CHARS: Final = 12


class CannotKeepError(NemesisError):
    """A folder that takes no runs."""

    exit_code = 2


class Options(msgspec.Struct, kw_only=True, frozen=True):
    """How to run a suite."""

    suite: Suite
    folder: Path
    """Where runs are kept; of this suite, these parameters and this code alone."""
    seeds_count: int
    params: Path = DEFAULT
    keep: bool = False
    """Whether recording and ledger of each run are kept beside its score."""


def run_suite(options: Options, *, jobs_count: int) -> Iterator[ScoredRun]:
    """Every run, in order of its seed; those that are done already are read.

    Raises:
        BadScenarioError: a cluster that the suite draws cannot be broken so.
        CannotKeepError: the folder refuses.
    """
    try:
        options.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotKeepError(
            f"cannot make {options.folder}: {error.strerror}",
            hint="expected a folder that can be written and has room: name one with --out",
        ) from error
    first = options.suite.first_seed
    seeds = range(first, first + options.seeds_count)
    work = partial(run_seed, options)
    if jobs_count == 1:
        yield from map(work, seeds)
        return
    with ProcessPoolExecutor(jobs_count) as pool:
        try:
            yield from pool.map(work, seeds)
        except BaseException:
            # Not left to the interpreter's end: there it races with the pipe that it wakes it by.
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def run_seed(options: Options, seed: int) -> ScoredRun:
    """One run, or what is known of it already."""
    path = options.folder / f"{seed:05d}.json"
    kept = path.with_suffix(SUFFIX).exists() or not options.keep
    if path.exists() and kept:
        with suppress(msgspec.DecodeError):  # a disk that was full: it is run again
            return msgspec.json.decode(_read(path), type=ScoredRun)
    params = options.suite.assumed(load_params(options.params))
    drawn, run = run_drawn(options.suite, seed, params)
    ledger = run.ledger(
        opening(
            drawn.cluster,
            drawn.scenario,
            seed=seed,
            start_ns=START_NS,
            params_sha256=params.sha256,
            suite=options.suite.name,
            defects=told(drawn.defects),
        )
    )
    if options.keep:
        write_recording(path.with_suffix(".ndjson.zst"), run.records, force=True)
        write_ledger(path.with_suffix(SUFFIX), ledger)
    result = scored(ledger, run.facts)
    replace_file(path, msgspec.json.encode(result))
    return result


def run_drawn(suite: Suite, seed: int, params: Params) -> tuple[Drawn, OfflineRun]:
    """What a suite draws by a seed, and its run; `params` as the suite assumes them."""
    drawn = draw(suite, seed, params)
    with tempfile.TemporaryDirectory() as plans:
        run = run_offline(
            drawn.cluster,
            drawn.scenario,
            seed=seed,
            folder=Path(plans),
            quantum_ns=QUANTUM_NS,
            defects=drawn.defects,
            weigh=params,
        )
    return drawn, run


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CannotKeepError(
            f"cannot read {path}: {error.strerror}",
            hint="expected a folder of your own: name one with --out",
        ) from error


def folder_of(suite: Suite, params: Path, under: Path) -> Path:
    """Where the runs of a suite lie: of these parameters and this code."""
    about = msgspec.json.encode([suite, load_params(params).sha256, code_sha256()])
    return under / f"{suite.name}-{hashlib.sha256(about).hexdigest()[:HASH_CHARS]}"


@cache
def code_sha256() -> str:
    """The hash of everything that a run follows from besides its seed."""
    digest = hashlib.sha256()
    (root,) = nemesis.__path__
    for part in CODE:
        for path in sorted((Path(root) / part).resolve().rglob("*")):
            if path.suffix in (".py", ".toml", ".json"):
                digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
