"""Mutants that live, and the checked-in reasons why they may."""

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
from mutmut.mutation.data import SourceFileMutationData
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.stats import status_by_exit_code
from mutmut.utils.format_utils import orig_function_and_class_names_from_key

EXPLAINED = Path(__file__).parent / "survivors.toml"


class Change(NamedTuple):
    """What a mutant changed; no number of line or mutant, so that edits elsewhere keep it."""

    file: str
    function: str
    was: str
    now: str


class Verdicts(msgspec.Struct):
    """What became of the mutants of one file."""

    file: str
    killed: int = 0
    timeouts: int = 0
    """The tests did not come to an end: noticed too."""
    survivors: list[Change] = []


class _Survivor(msgspec.Struct, forbid_unknown_fields=True):
    file: str
    function: str
    was: str
    now: list[str]
    why: str


def verdicts_of(path: str) -> Verdicts:
    """The verdicts on one mutated file, a path as mutmut knows it."""
    data = SourceFileMutationData(path=path)
    data.load()
    verdicts = Verdicts(path.removeprefix("src/nemesis/"))
    for mutant, exit_code in data.exit_code_by_key.items():
        status = status_by_exit_code[exit_code]
        if status == "killed":
            verdicts.killed += 1
        elif status == "timeout":
            verdicts.timeouts += 1
        else:
            verdicts.survivors.append(_change(verdicts.file, mutant, path))
    return verdicts


def alive(paths: Iterable[str]) -> list[str]:
    """Names of the mutants that no test noticed, or that were not tried."""
    names: list[str] = []
    for path in paths:
        data = SourceFileMutationData(path=path)
        data.load()
        names += [
            name
            for name, exit_code in data.exit_code_by_key.items()
            if status_by_exit_code[exit_code] not in ("killed", "timeout")
        ]
    return names


def explained() -> dict[Change, str]:
    """Why each of the known survivors may live."""
    document = tomllib.loads(EXPLAINED.read_text())
    entries = msgspec.convert(document["survivor"], list[_Survivor])
    return {
        Change(each.file, each.function, each.was, now): each.why
        for each in entries
        for now in each.now
    }


def as_toml(changes: Iterable[Change]) -> str:
    """Entries for survivors.toml, to be given a reason or a test."""
    together: dict[tuple[str, str, str], list[str]] = {}
    for change in changes:
        together.setdefault(change[:3], []).append(change.now)
    return "\n".join(_entry(*where, now) for where, now in together.items())


def _entry(file: str, function: str, was: str, now: list[str]) -> str:
    fields: Mapping[str, object] = {
        "file": file,
        "function": function,
        "was": was,
        "now": now,
        "why": "",
    }
    lines = [f"{name} = {msgspec.json.encode(value).decode()}" for name, value in fields.items()]
    return "\n".join(["[[survivor]]", *lines, ""])


def _change(file: str, mutant: str, path: str) -> Change:
    function, owner = orig_function_and_class_names_from_key(mutant)
    lines = get_diff_for_mutant(mutant, path=path).splitlines()[2:]
    was = " ".join(line[1:].strip() for line in lines if line.startswith("-"))
    now = " ".join(line[1:].strip() for line in lines if line.startswith("+"))
    return Change(file, f"{owner}.{function}" if owner else function, was, now)
