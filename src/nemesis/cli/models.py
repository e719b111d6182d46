"""Failure models of one's own, in the folder that NEMESIS_MODELS names, and what computes them.

Models stand beside those of the release and are known by the hash of their content, whatever they
are called; every machine that runs or replays the processor needs them. NEMESIS_ENGINE is a matter
of each machine: every engine gives the same bits.
"""

import os
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from nemesis.processors.catalogue import Catalogue
    from nemesis.processors.ecc_model.network import Network

VARIABLE: Final = "NEMESIS_MODELS"
ENGINE: Final = "NEMESIS_ENGINE"


def catalogue() -> "Catalogue":
    """The processors of this release, with the models and the engine that are at hand here."""
    from nemesis.processors.catalogue import CATALOGUE
    from nemesis.processors.ecc_model.ecc_model import EccModel

    folder, engine = os.environ.get(VARIABLE, ""), os.environ.get(ENGINE, "")

    def made() -> EccModel:  # torch is looked for where the model runs, not by each process
        return EccModel(lambda name: _find(folder, name), network_of(engine))

    if not folder and not engine:
        return CATALOGUE
    return {**CATALOGUE, "ecc_model": {1: made}}


def network_of(engine: str) -> "type[Network]":
    """What makes the model's steps.

    Raises:
        EngineError: it cannot be had here.
    """
    from nemesis.processors.ecc_model.network import Network
    from nemesis.streams.torch_network import EngineError, TorchNetwork, integer_torch

    match engine:
        case "" | "numpy":
            return Network
        case "torch":
            integer_torch()
            return TorchNetwork
        case _:
            raise EngineError(
                f"{ENGINE}={engine[:60]}: no such engine", hint="numpy is the default, torch faster"
            )


def _find(folder: str, name: str) -> bytes | None:
    from nemesis.processors.ecc_model.shipped import shipped

    for path in sorted(Path(folder).glob("*.msgpack")) if folder else ():
        raw = path.read_bytes()
        if sha256(raw).hexdigest() == name:
            return raw
    return shipped(name)
