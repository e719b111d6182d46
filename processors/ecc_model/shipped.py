"""The trained models of this release, as package data: `weights/<SHA-256>.msgpack`.

A model is known by the hash of its file, so two releases never mean different ones, and those that
recorded logs were written with stay beside newer ones. What it was trained on and how well it
did stands in the file (`Model.data_sha256`, `Model.card`). To ship one, put its file there and its
hash into FIRST_MODEL; a cell that has an activation keeps the one that it names.
"""

from importlib.resources import files
from typing import Final

SUFFIX: Final = ".msgpack"
FIRST_MODEL: Final = ""
"""What a new cell is activated with; empty: none was shown real telemetry, so a person decides."""


def latest() -> str:
    """What is judged where no model is named: FIRST_MODEL, else one that is here; "": none is."""
    folder = files("nemesis.processors.ecc_model").joinpath("weights")
    names = [each.name for each in folder.iterdir()] if folder.is_dir() else []
    return FIRST_MODEL or max((name.removesuffix(SUFFIX) for name in names), default="")


def shipped(sha256: str) -> bytes | None:
    """The file of a model, None where this release does not have it."""
    file = files("nemesis.processors.ecc_model").joinpath("weights", f"{sha256}{SUFFIX}")
    return file.read_bytes() if file.is_file() else None
