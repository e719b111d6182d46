"""A scenario: what is broken in one run, what a right answer is, what must hold of the run.

One TOML file each; those of the release lie in `scenarios/`, and `nemesis demo --scenario` takes
anybody's. A file that cannot be run is refused with its field and the value that is wrong.
"""

from pathlib import Path
from typing import Annotated, Final

import msgspec

from nemesis.schemas.errors import NemesisError
from nemesis.sim.faults.plan import Seconds
from nemesis.sim.faults.planned import KINDS, FaultPlanned
from nemesis.sim.truth.assertions import Assertion, unknown
from nemesis.streams.documents import BadDocumentError, document_named, explained, read_toml

FOLDER: Final = Path(__file__).parent.parent / "scenarios"


class BadScenarioError(NemesisError):
    """A scenario that cannot be run."""

    exit_code = 2


class Expect(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """What must hold of a run besides right answers; times are simulated."""

    goes_on: bool = True
    """After the last fault the job finishes steps again."""
    predicted: bool = False
    """A `failure_predicted` names the component before it fails."""
    verdict_within_s: Seconds = 0.0
    """From the fault's onset; 0: any time."""
    resumed_within_s: Seconds = 0.0
    """From the fault's onset to the job's next step; 0: any time."""
    world_min: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Ranks at the end."""
    steps_redone_max: Annotated[int, msgspec.Meta(ge=-1)] = -1
    """-1: any number."""
    restarts_max: Annotated[int, msgspec.Meta(ge=-1)] = -1
    """Processes started anew; -1: any number."""


ANYTHING: Final = Expect(goes_on=False)
"""Nothing is expected of the run."""


class Scenario(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """One run."""

    name: str
    """The file's, without .toml."""
    title: str
    faults: Annotated[tuple[FaultPlanned, ...], msgspec.Meta(min_length=1, max_length=1000)] = (
        msgspec.field(name="fault")
    )
    expect: Expect = Expect()
    duration_s: Seconds = 0.0
    """How long the run takes; 0: until everything is answered."""
    assertions: tuple[Assertion, ...] = msgspec.field(name="assert", default=())
    """What must be concluded, or must not; where there are any, only what `[expect]` says is
    expected besides."""


def load_scenario(path: Path) -> Scenario:
    """The scenario in a file.

    Raises:
        BadScenarioError: no such file, not TOML, or a field that is missing, unknown or wrong.
    """
    try:
        document = read_toml(path)
    except BadDocumentError as error:
        raise BadScenarioError(error.message) from error
    if "name" in document:
        raise BadScenarioError(f"{path}: name: leave it out, a scenario is named by its file")
    try:
        scenario = msgspec.convert({"name": path.stem, **document}, Scenario)
        if scenario.assertions and "expect" not in document:
            scenario = msgspec.structs.replace(scenario, expect=ANYTHING)
    except msgspec.ValidationError as error:
        says, invalid, what = explained(error, document).partition("invalid value")
        if invalid and ".kind: " in says:
            invalid, what = "no such kind, expected one of: ", ", ".join(KINDS)
        raise BadScenarioError(f"{path}: {says}{invalid}{what}") from error
    for said in unknown(scenario.assertions):
        raise BadScenarioError(f"{path}: {said}")
    if not scenario.duration_s and any(each.per_node_day for each in scenario.faults):
        raise BadScenarioError(f"{path}: duration_s: missing, and faults come at a rate")
    if not scenario.duration_s and all(each.answer == "nothing" for each in scenario.faults):
        raise BadScenarioError(
            f"{path}: duration_s: missing, and nothing else says when a run of decoys is over"
        )
    return scenario


def scenarios() -> tuple[Scenario, ...]:
    """Those of the release, by name."""
    return tuple(load_scenario(path) for path in sorted(FOLDER.glob("*.toml")))


def scenario_named(name: str) -> Scenario:
    """The scenario of that name, or in the file of that name if it ends in .toml.

    Raises:
        BadScenarioError: there is none, or it cannot be run.
    """
    try:
        path = document_named(FOLDER, name, "scenario")
    except BadDocumentError as error:
        raise BadScenarioError(error.message) from error
    return load_scenario(path)
