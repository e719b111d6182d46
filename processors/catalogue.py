"""Which processors there are: by name and version, as the log names them."""

from collections.abc import Callable, Mapping
from typing import Final

from nemesis.processors.attribution.attribution import Attribution
from nemesis.processors.ecc_model.ecc_model import EccModel
from nemesis.processors.ecc_model.shipped import FIRST_MODEL
from nemesis.processors.ecc_rules.ecc_rules import EccRules
from nemesis.processors.goodput.goodput import Goodput
from nemesis.processors.healer.healer import Healer
from nemesis.processors.incident.incident import Incident
from nemesis.processors.intake import Intake
from nemesis.processors.processor import Processor
from nemesis.processors.scheduler.scheduler import Scheduler

Catalogue = Mapping[str, Mapping[int, Callable[[], Processor]]]
"""Name to version to what makes a fresh one. Superseded versions stay for as long as logs of theirs
are replayed."""

CATALOGUE: Final[Catalogue] = {
    "attribution": {1: Attribution},
    "ecc_model": {1: EccModel},
    "ecc_rules": {1: EccRules},
    "goodput": {1: Goodput},
    "healer": {1: Healer},
    "incident": {1: Incident},
    "intake": {1: Intake},
    "scheduler": {1: Scheduler},
}

RELEASES: Final[Mapping[str, Mapping[int, str]]] = {
    "attribution": {1: "0.1.0"},
    "ecc_model": {1: "0.1.0"},
    "ecc_rules": {1: "0.1.0"},
    "goodput": {1: "0.1.0"},
    "healer": {1: "0.1.0"},
    "incident": {1: "0.1.0"},
    "intake": {1: "0.1.0"},
    "scheduler": {1: "0.1.0"},
}
"""The first release that has each version, of those too that are not here any more."""


def first_settings(name: str) -> bytes:
    """What the first activation of a processor in a log sets, a JSON object."""
    named = name == "ecc_model" and FIRST_MODEL
    return b'{"model":"%s"}' % FIRST_MODEL.encode() if named else b"{}"
