"""The documents say only what the program can do."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.text import Text

from nemesis.cli.app import app

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
NAMES = [str(path.relative_to(ROOT)) for path in DOCUMENTS]


def commands_in(text: str) -> list[list[str]]:
    """Every `nemesis ...` of console blocks and of inline code."""
    found: list[str] = []
    for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
        joined = block.replace("\\\n", " ")
        line = r"^\$ (?:.*&& )?(nemesis (?:'[^'\n]*'|[^\n|&;'])*)"
        found += re.findall(line, joined, re.MULTILINE)
    found += re.findall(r"`(nemesis [^`]*)`", text)
    return [shlex.split(line.split(" #")[0]) for line in found]


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command that these words name, and what follows it."""
    command: Any = typer.main.get_command(app)
    at = 1
    while at < len(words) and words[at] in getattr(command, "commands", {}):
        command = command.commands[words[at]]
        at += 1
    return command, words[at:]


@pytest.mark.parametrize("path", DOCUMENTS, ids=NAMES)
def test_every_command_and_option_that_a_document_names_exists(path: Path) -> None:
    for words in commands_in(path.read_text()):
        command, rest = command_of(words)
        rest = rest[: rest.index("--")] if "--" in rest else rest
        said = " ".join(words)
        is_group = hasattr(command, "commands")
        assert not is_group or not rest or rest[0].startswith("-"), said
        options = {option for each in command.params for option in each.opts} | {"--help"}
        named = {word.split("=")[0] for word in rest if word.startswith("--")}
        assert named <= options, said


def helps(command: Any, name: str) -> Iterator[tuple[str, str]]:
    """(where, text) of everything that help says of a command and of those below it."""
    for each in (command, *command.params):
        yield f"{name} {each.name}", getattr(each, "help", None) or ""
    for below, sub in getattr(command, "commands", {}).items():
        yield from helps(sub, f"{name} {below}")


def test_no_help_loses_what_stands_in_brackets() -> None:
    for where, text in helps(typer.main.get_command(app), "nemesis"):
        assert Text.from_markup(text).plain == text.replace("\\[", "["), where


@pytest.mark.parametrize("path", DOCUMENTS, ids=NAMES)
def test_every_make_target_that_a_document_names_exists(path: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = path.read_text()
    named = set(re.findall(r"`make ([a-z-]+)`", text))
    named |= set(re.findall(r"^\$ make ([a-z-]+)", text, re.MULTILINE))
    assert named <= targets


@pytest.mark.parametrize("path", DOCUMENTS, ids=NAMES)
def test_every_file_that_a_document_links_to_exists(path: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", path.read_text())
    missing = [link for link in links if not (path.parent / link).exists()]
    assert missing == []


def test_the_example_of_a_processor_runs_as_it_is_printed() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "processors.md").read_text(), re.S)
    assert len(blocks) == 2
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, "docs/processors.md", "exec"), names)  # noqa: S102
    assert names["fold"].processor.snapshot() != names["Exits"]().snapshot()
