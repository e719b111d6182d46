"""Promises of a file that is replaced: whole or as it was, and nobody else's to read."""

from pathlib import Path

import pytest

from nemesis.streams.replacing import replace_file


def test_a_file_is_replaced_whole_and_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(b"before")
    path.chmod(0o644)
    replace_file(path, b"after")
    assert path.read_bytes() == b"after"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_put_in_place_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.mkdir()
    with pytest.raises(OSError, match="directory"):
        replace_file(path, b"after")
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(FileNotFoundError):
        replace_file(tmp_path / "nosuch" / "plan.json", b"after")
