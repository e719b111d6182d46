"""A file that somebody else writes, turns over and cuts off is read line by line."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemesis.producers import tail as tails
from nemesis.producers.tail import Tail


def test_what_was_there_is_passed_over_and_what_comes_is_read_in_whole_lines(
    tmp_path: Path,
) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"old\n")
    tail = Tail(path)
    with path.open("ab") as file:
        file.write(b"one\ntw")
        file.flush()
        assert tail.read() == [b"one"]
        file.write(b"o\n")
    assert tail.read() == [b"two"]
    assert tail.read() == []
    tail.close()


def test_a_file_that_is_turned_over_is_read_to_its_end_and_the_new_one_from_its_start(
    tmp_path: Path,
) -> None:
    path = tmp_path / "lines"
    tail = Tail(path)
    assert tail.read() == []
    path.write_bytes(b"one\n")
    assert tail.read() == [b"one"]
    with path.open("ab") as file:
        file.write(b"two\n")
    path.rename(tmp_path / "lines.1")
    assert tail.read() == [b"two"]
    assert tail.read() == []
    path.write_bytes(b"three\n")
    assert tail.read() == []  # the end of the old one is seen first
    assert tail.read() == [b"three"]
    path.write_bytes(b"4\n")  # cut off, and written anew
    assert tail.read() == [b"4"]
    tail.close()


def test_a_line_without_end_is_dropped_and_counted_and_the_next_one_read(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.touch()
    tail = Tail(path)
    path.write_bytes(b"x" * (tails.LINE_BYTES_MAX + 2))
    assert tail.read() == []
    with path.open("ab") as file:
        file.write(b"xx\nnext\n")
    assert tail.read() == [b"next"]
    assert tail.dropped_count == 1
    tail.close()


@given(pieces=st.lists(st.binary(max_size=8).map(lambda raw: raw.replace(b"x", b"\n")), max_size=8))
def test_however_it_is_written_every_line_is_read_once(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes]
) -> None:
    path = tmp_path_factory.mktemp("tail") / "lines"
    path.touch()
    tail, found = Tail(path), list[bytes]()
    for piece in pieces:
        with path.open("ab") as file:
            file.write(piece)
        found += tail.read()
    tail.close()
    assert found == b"".join(pieces).split(b"\n")[:-1]
