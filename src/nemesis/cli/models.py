"""Failure models of one's own: files in the folder that NEMESIS_MODELS names.

They stand beside those of the release and are known by the hash of their content, whatever they are
called; every machine that runs or replays the processor needs them.
"""

import os
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from nemesis.processors.catalogue import Catalogue

VARIABLE: Final = "NEMESIS_MODELS"


def catalogue() -> "Catalogue":
    """The processors of this release, with the models that are at hand here."""
    from nemesis.processors.catalogue import CATALOGUE
    from nemesis.processors.ecc_model.ecc_model import EccModel

    folder = os.environ.get(VARIABLE, "")
    if not folder:
        return CATALOGUE
    return {**CATALOGUE, "ecc_model": {1: lambda: EccModel(lambda name: _find(folder, name))}}


def _find(folder: str, name: str) -> bytes | None:
    from nemesis.processors.ecc_model.shipped import shipped

    for path in sorted(Path(folder).glob("*.msgpack")):
        raw = path.read_bytes()
        if sha256(raw).hexdigest() == name:
            return raw
    return shipped(name)
