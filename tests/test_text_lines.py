"""Promises of the line counter: the numbers that `str.splitlines` gives, however a file is read."""

import gzip
from pathlib import Path

import zstandard
from hypothesis import given
from hypothesis import strategies as st

from nemesis.producers.readers.bundle import read_bundle
from nemesis.producers.readers.text_lines import LINE_BYTES_MAX, lines_at, numbered_lines, opened

NONE: tuple[bytes, ...] = ()
MARK = (b"mark",)


def read(path: Path, *, whole_count: int, then: tuple[bytes, ...]) -> list[tuple[int, str]]:
    with opened(path) as stream:
        return list(numbered_lines(stream, whole_count=whole_count, then=then))


@given(st.lists(st.sampled_from(["mark", "a", "é", "\n", "\r\n", "\r", "\x0b", "\x85", "\u2028"])))
def test_lines_are_numbered_as_splitlines_numbers_them(parts: list[str]) -> None:
    text = "".join(parts)
    path = Path.home() / "lines.txt"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text.encode())
    expected = list(enumerate(text.splitlines(), 1))
    assert read(path, whole_count=1000, then=NONE) == expected
    marked = [(number, line) for number, line in expected if "mark" in line]
    assert read(path, whole_count=0, then=MARK) == marked
    wanted = {number for number, _ in expected}
    assert lines_at(path, wanted) == dict(expected)


def test_a_line_without_an_end_is_cut_and_counts_once(tmp_path: Path) -> None:
    path = tmp_path / "endless"
    path.write_bytes(b"x" * (3 * LINE_BYTES_MAX) + b"\nmark\n")
    lines = read(path, whole_count=1000, then=NONE)
    assert [number for number, _ in lines] == [1, 2]
    assert lines[1][1] == "mark"
    assert len(lines[0][1]) == LINE_BYTES_MAX


def test_bytes_that_are_no_utf8_become_a_replacement_character(tmp_path: Path) -> None:
    path = tmp_path / "bytes"
    path.write_bytes(b"\xff\xfe mark \xc3\nlast")
    assert read(path, whole_count=10, then=NONE) == [(1, "�� mark �"), (2, "last")]


def test_a_gzip_file_is_read_as_what_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "kern.log.1.gz"
    path.write_bytes(gzip.compress(b"one\nmark\n"))
    assert read(path, whole_count=1, then=MARK) == [(1, "one"), (2, "mark")]
    assert lines_at(path, {2}) == {2: "mark"}


def test_a_zstd_file_is_read_like_the_text_in_it(tmp_path: Path) -> None:
    path = tmp_path / "packed"
    path.write_bytes(zstandard.ZstdCompressor().compress(b"one\ntwo\n" * 5000))
    with opened(path) as stream:
        lines = list(numbered_lines(stream, whole_count=20_000, then=()))
    assert (len(lines), lines[-1]) == (10_000, (10_000, "two"))
    assert lines_at(path, {2}) == {2: "two"}


def test_a_zstd_file_that_is_cut_or_broken_is_unread_with_the_reason(tmp_path: Path) -> None:
    whole = zstandard.ZstdCompressor().compress(b"[    1.000001] NVRM: Xid\n" * 9000)
    (tmp_path / "broken").write_bytes(whole[:8] + b"\xff" * 40)
    bundle = read_bundle([tmp_path])
    assert [each.file for each in bundle.unread] == ["broken"]
