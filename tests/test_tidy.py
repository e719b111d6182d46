"""House rules that a machine can see."""

import ast
import os
import pwd
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
OUR_PATHS = tuple(f"{path}/" for path in (ROOT, pwd.getpwuid(os.getuid()).pw_dir))
CODE = ("actors", "processors", "producers", "replay", "schemas", "sim", "src", "streams", "views")
FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70
BANNED = {
    r"\bNotImplementedError\b": "a Protocol, or the thing itself",
    r"\b(TODO|FIXME|XXX)\b": "an issue",
    r"\butils?\.py\b|\bimport utils?\b": "a module named after its one idea",
    r"except Exception:\s*pass|except:\s": "the exception that is meant, and what to do about it",
    r"\bpickle\.loads?\(": "an Unpickler whose find_class refuses",
    r"shell=True|os\.system\(": "a list of arguments",
}


def tracked(*suffixes: str) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    names = [name for name in listed.stdout.splitlines() if name.endswith(suffixes)]
    return [ROOT / name for name in names if (ROOT / name).is_file()]


def code_files() -> list[Path]:
    return [p for p in tracked(".py") if p.relative_to(ROOT).parts[0] in CODE]


def ids(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", code_files(), ids=ids)
def test_a_file_holds_one_idea(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= FILE_LINES_MAX, "split it"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            assert lines <= FUNCTION_LINES_MAX, f"{node.name} has {lines} lines"


@pytest.mark.parametrize("path", code_files(), ids=ids)
def test_a_file_says_what_it_is_for_and_uses_no_banned_words(path: Path) -> None:
    text = path.read_text()
    assert ast.get_docstring(ast.parse(text)), "no docstring"
    for pattern, instead in BANNED.items():
        found = re.search(pattern, text)
        assert found is None, f"{found and found[0]!r}: write {instead}"


@pytest.mark.parametrize("path", tracked(".md", ".toml", ".yml", ".py", "Makefile"), ids=ids)
def test_no_file_names_a_path_of_the_machine_it_was_written_on(path: Path) -> None:
    text = path.read_text()
    assert [own for own in OUR_PATHS if own in text] == []


def test_every_test_can_fail() -> None:
    idle = []
    for path in tracked(".py"):
        if path.relative_to(ROOT).parts[0] != "tests":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith(
                "test_"
            ):
                body = ast.unparse(node)
                if not re.search(r"assert|raises|check_|expect", body):
                    idle.append(f"{ids(path)}: {node.name}")
    assert idle == []


def test_every_part_of_the_code_is_imported_by_something() -> None:
    sources = {p: p.read_text() for p in tracked(".py")}
    dead = []
    for path in code_files():
        parts = path.relative_to(ROOT).with_suffix("").parts
        module = ".".join(parts[2:] if parts[0] == "src" else parts)
        if path.name in ("__init__.py", "__main__.py") or path.name == "app.py":
            continue
        package, _, name = f"nemesis.{module}".rpartition(".")
        pattern = (
            rf"nemesis\.{re.escape(module)}\b|from {re.escape(package)} import [^\n]*\b{name}\b"
        )
        multi = rf"from {re.escape(package)} import \([^)]*\b{name}\b"
        used = any(
            re.search(pattern, text) or re.search(multi, text)
            for other, text in sources.items()
            if other != path
        )
        if not used:
            dead.append(ids(path))
    assert dead == []
