"""Promises of the distribution: what git holds, the wheel holds, by way of the sdist too."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.test_layout import PARTS, ROOT


def modules_in_git() -> set[str]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    inside = {f"nemesis/{name}" for name in listed if name.split("/")[0] in PARTS}
    inside |= {name.removeprefix("src/") for name in listed if name.startswith("src/nemesis/")}
    return {n for n in inside if n.endswith((".py", "py.typed")) and (ROOT / "src" / n).is_file()}


@pytest.mark.timeout(300)
def test_the_wheel_holds_every_module_that_git_holds(tmp_path: Path) -> None:
    # the sdist first, then the wheel from that sdist: the way an installer without a wheel goes
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)],
        check=True,
        capture_output=True,
    )
    wheel = zipfile.ZipFile(next(tmp_path.glob("*.whl")))
    assert modules_in_git() <= set(wheel.namelist())
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as sdist:
        assert any(name.endswith("/LICENSE") for name in sdist.getnames())


def test_help_answers_without_the_heavy_libraries() -> None:
    ran = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "nemesis.cli", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    imported = {line.rpartition("|")[2].strip() for line in ran.stderr.splitlines()}
    assert imported.isdisjoint({"nats", "numpy", "polars", "networkx", "zstandard"})
    assert "Usage" in ran.stdout
