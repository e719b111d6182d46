"""A suite: which clusters, faults, decoys, parameters and seeds a score is made of, as data.

One TOML file each under `sim/suites/`; every run of a suite follows from the file and a seed. A
held-out suite is only ever scored, never tuned on: its topologies, cascades or parameters stand in
no scenario and in no other suite.
"""

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from nemesis.schemas.errors import NemesisError
from nemesis.sim.faults.planned import KINDS
from nemesis.sim.faults.rates import distribution_named
from nemesis.sim.params import Params, changed, load_params
from nemesis.sim.topology.fabric import FabricModel
from nemesis.sim.topology.node import node_kinds
from nemesis.streams.documents import BadDocumentError, document_named, explained, read_toml

FOLDER: Final = Path(__file__).parent.parent / "suites"

Positive = Annotated[int, msgspec.Meta(ge=1)]
Weight = Annotated[int, msgspec.Meta(ge=0)]
Timeout = Annotated[float, msgspec.Meta(gt=0.0, le=86_400.0)]
Some = Annotated[tuple[Positive, ...], msgspec.Meta(min_length=1)]


class BadSuiteError(NemesisError):
    """A suite that cannot be run."""

    exit_code = 2


class Layout(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parallel degrees of a job; the rest of its world is data parallel."""

    tp: Positive = 1
    cp: Positive = 1
    pp: Positive = 1
    ep: Positive = 1

    def fits(self, world: int) -> bool:
        """Whether it divides a job of so many ranks."""
        return world % (self.tp * self.cp * self.pp) == 0


class Topologies(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Clusters to draw from: each list is drawn from evenly."""

    nodes: Some = (16,)
    kinds: tuple[str, ...] = ("dgx-h100",)
    """Kinds of nodes (docs/clusters.md)."""
    fabrics: tuple[FabricModel, ...] = (FabricModel(nodes_per_leaf=4),)
    layouts: tuple[Layout, ...] = (Layout(),)
    poll_ms: Some = (1_000,)
    step_ms: tuple[Positive, Positive] = (900, 900)
    """From, to; as likely in each decade."""
    job_share_pct: tuple[Positive, Positive] = (75, 100)
    """Of the nodes; the others are spares."""
    timeout_s: Annotated[tuple[Timeout, ...], msgspec.Meta(min_length=1)] = (600.0,)
    """After which watchdogs fire; torch's default."""


class Mix(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """What breaks in a run."""

    kinds: tuple[str, ...] = ()
    """None: every kind that is a fault."""
    without: tuple[str, ...] = ()
    """Kinds that are left out."""
    rates: str = ""
    """Kinds as often as published (sim/rates.toml), in place of evenly."""
    counts: Annotated[tuple[Weight, ...], msgspec.Meta(min_length=1)] = (0, 1)
    """Weights of runs with 0, 1, 2, ... faults."""
    spread: tuple[float, float] = (1.0, 2.0)
    """By which factor a parameter lies above or below its default: from, to."""
    apart_s: tuple[float, float] = (0.0, 40.0)
    """Between one fault and the next."""


class Decoys(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """What looks like trouble and is none."""

    kinds: tuple[str, ...] = ()
    on_spares: tuple[str, ...] = ()
    """Kinds that strike nodes of no job: planned work."""
    counts: Annotated[tuple[Weight, ...], msgspec.Meta(min_length=1)] = (1,)
    """Weights of runs with 0, 1, 2, ... decoys."""


class Suite(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """One suite."""

    name: str
    """The file's, without .toml."""
    title: str
    held_out: bool = False
    seeds_count: Positive = 100
    """Runs, seeds from first_seed on."""
    first_seed: Annotated[int, msgspec.Meta(ge=0)] = 1
    after_s: float = 75.0
    """Watched after the last symptom: a verdict on a straggler takes half a minute."""
    topologies: Topologies = Topologies()
    faults: Mix = Mix()
    decoys: Decoys = Decoys()
    defects: Annotated[float, msgspec.Meta(ge=0.0, le=1_000.0)] = 1.0
    """How much more often than in the parameter file evidence is missing or wrong; 0: never."""
    params: dict[str, Any] = {}
    """Lines of the parameter file that are otherwise in this suite, by section."""

    def assumed(self, params: Params) -> Params:
        """What the suite assumes of a cluster where a file of parameters says this.

        Raises:
            BadParamsError: it changes what no such file has.
        """
        return changed(params, self.params, where=f"suite {self.name}: params")


def load_suite(path: Path) -> Suite:
    """The suite in a file.

    Raises:
        BadSuiteError: no such file, not TOML, or a field that is missing, unknown or wrong.
        BadParamsError: a line of the parameter file that it changes is none, or impossible.
    """
    document: dict[str, Any] = {}
    try:
        document = {"name": path.stem, **read_toml(path)}
        suite = msgspec.convert(document, Suite)
    except BadDocumentError as error:
        raise BadSuiteError(error.message) from error
    except msgspec.ValidationError as error:
        raise BadSuiteError(f"{path}: {explained(error, document)}") from error
    mix = suite.faults
    _expect(
        path,
        "kind",
        (*mix.kinds, *mix.without, *suite.decoys.kinds, *suite.decoys.on_spares),
        KINDS,
    )
    _expect(path, "kind of node", suite.topologies.kinds, node_kinds())
    if mix.rates:
        distribution_named(mix.rates)
    suite.assumed(load_params())
    return suite


def _expect(path: Path, what: str, named: Iterable[str], known: Collection[str]) -> None:
    for each in named:
        if each not in known:
            raise BadSuiteError(f"{path}: no {what} {each!r}, expected some of: {', '.join(known)}")


def suites() -> tuple[Suite, ...]:
    """Those of the release, by name."""
    return tuple(load_suite(path) for path in sorted(FOLDER.glob("*.toml")))


def suite_named(name: str) -> Suite:
    """The suite of that name, or in the file of that name if it ends in .toml.

    Raises:
        BadSuiteError: there is none, or it cannot be run.
    """
    try:
        path = document_named(FOLDER, name, "suite")
    except BadDocumentError as error:
        raise BadSuiteError(error.message) from error
    return load_suite(path)
