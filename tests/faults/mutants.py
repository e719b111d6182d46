"""Mutation testing of the runner: break one operator at a time, and see whether a test notices.

Not mutmut: it names a mutant by its path, and here one file has two paths (STYLE of the links in
`src/nemesis`), so its mutants are never switched on. Survivors that are known to be harmless are
explained, one a line, in tests/faults/survivors.txt; any other fails the campaign.
`python -m tests.faults.mutants [--sample N] [FILE...]`
"""

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
FILES = [
    f"streams/{name}.py"
    for name in ("outbox", "commit", "comparison", "deaths", "lane", "position", "runner", "watch")
]
TESTS = [
    "tests/faults/test_outbox.py",
    "tests/faults/test_simulated.py",
    "tests/faults/test_cut_points.py",
]
TEST_TIMEOUT_S = 300
SEEDS = "4"  # enough to catch what more seeds catch, in a quarter of the time
SURVIVORS = ROOT / "tests/faults/survivors.txt"
_COMPARE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


def mutants(source: str) -> Iterator[tuple[str, str]]:
    """(what was changed and where, the changed source), one for each change."""
    nodes = list(ast.walk(ast.parse(source)))
    options = {
        id(inner)
        for node in nodes
        if isinstance(node, ast.ClassDef)
        for keyword in node.keywords
        for inner in ast.walk(keyword)
    }
    for at, original in enumerate(nodes):
        if id(original) in options:  # frozen and the like change nothing that a test can see
            continue
        tree = ast.parse(source)
        node = list(ast.walk(tree))[at]
        what = _change(node)
        if what:
            place = f"{node.lineno}:{node.col_offset}"  # type: ignore[attr-defined]
            yield f"{place} {what}", ast.unparse(tree)


def _change(node: ast.AST) -> str:
    """Change the node in place; what was done, empty where there is nothing to change."""
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in _COMPARE:
            node.ops = [_COMPARE[type(operator)]()]
            return f"{type(operator).__name__} -> {type(node.ops[0]).__name__}"
        case ast.BoolOp(op=ast.And()):
            node.op = ast.Or()
            return "and -> or"
        case ast.BoolOp(op=ast.Or()):
            node.op = ast.And()
            return "or -> and"
        case ast.BinOp(op=ast.Add()):
            node.op = ast.Sub()
            return "+ -> -"
        case ast.BinOp(op=ast.Sub()):
            node.op = ast.Add()
            return "- -> +"
        case ast.UnaryOp(op=ast.Not()):
            node.op = ast.UAdd()
            return "not -> +"
        case ast.Constant(value=bool(value)):
            node.value = not value
            return f"{value} -> {not value}"
    return ""


def survives(tree: Path, file: str, source: str) -> bool:
    """Whether the tests pass with this source in the place of the file."""
    target = tree / file
    original = target.read_text()
    target.write_text(source)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:randomly", *TESTS],
            cwd=tree,
            env=os.environ
            | {
                "PYTHONPATH": str(tree / "src"),
                "PYTHONDONTWRITEBYTECODE": "1",
                "NEMESIS_FAULT_SEEDS": SEEDS,
            },
            capture_output=True,
            timeout=TEST_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    finally:
        target.write_text(original)
    return done.returncode == 0


def main() -> int:
    """The number of survivors that nobody has explained."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=0, help="only so many, drawn at random")
    parser.add_argument("files", nargs="*", default=FILES)
    arguments = parser.parse_args()
    explained = {entry.partition(" # ")[0].strip() for entry in SURVIVORS.read_text().splitlines()}
    all_of_them = [
        (file, what, source)
        for file in arguments.files
        for what, source in mutants((ROOT / file).read_text())
    ]
    if arguments.sample:
        all_of_them = random.Random(1).sample(all_of_them, arguments.sample)
    surprising = 0
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(
            ROOT, tree, symlinks=True, ignore=shutil.ignore_patterns(".*_cache", ".venv", ".git")
        )
        for file, what, source in all_of_them:
            if survives(tree, file, source):
                name = f"{file}:{what}"
                known = name in explained
                surprising += not known
                print(f"{'explained' if known else 'SURVIVED'} {name}", flush=True)
    print(f"{len(all_of_them)} mutants, {surprising} survived unexplained")
    return surprising


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
