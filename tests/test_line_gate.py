"""Promises of the gate before the readers: no line that means anything to one is kept from it."""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemesis.producers.readers.bundle import read_bundle
from nemesis.producers.readers.left_of_pattern import left_of, left_of_shape, shape_of
from nemesis.producers.readers.line_gate import LineGate
from nemesis.producers.readers.needed_words import alternatives, folded, needed_words
from nemesis.producers.readers.text_file import READERS, TextFile, read_text_file

Read = TypeVar("Read")
HELD = ("cases", "data")
LINES_MAX = 60
BYTES_MAX = 20_000
HARMLESS = (
    "INFO trainer: step 3503/500000 loss 6.1485 lr 3.0e-04 grad_norm 6.1485 tokens/s 3503",
    "node-0:41000:42000 [0] NCCL INFO Channel 07/0 : 0[0] -> 7[0] via P2P/CUMEM/read",
    "2026-11-03 12:00:00,002 DEBUG fetcher: GET 8fa3-11 200 in the cache",
    "[pod/trainer-0-x7k2p/trainer] [rank3]: bucket 12 of 4096 in flight on stream 3",
    "",
)
PATTERNS = [each for reader in READERS for each in (*reader.starts, *reader.holds)]
PIECES = [piece for pattern in PATTERNS for piece in alternatives(pattern)]


def shown_all(monkeypatch: pytest.MonkeyPatch, read: Callable[[], Read]) -> Read:
    """What is read where every reader is shown every line."""
    with monkeypatch.context() as patch:
        patch.setattr(LineGate, "readers_of", lambda self, text: list(range(len(READERS) + 1)))
        return read()


def text_of(path: Path) -> TextFile | None:
    return read_text_file(path, path.name)


def files_of(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders.sort()
        yield from (Path(folder, name) for name in sorted(names))


def test_what_people_handed_in_reads_the_same_whether_readers_see_every_line_or_not(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in HELD:
        for number, path in enumerate(files_of(shared / place)):
            with path.open("rb") as stream:
                head = stream.read(BYTES_MAX)
            there = tmp_path / f"{place}-{number:05}{path.suffix}"
            there.write_bytes(b"".join(head.splitlines(keepends=True)[:LINES_MAX]))
    gated = read_bundle([tmp_path])
    whole = shown_all(monkeypatch, lambda: read_bundle([tmp_path]))
    assert gated.logs == whole.logs
    assert gated.texts == whole.texts
    assert gated.unread == whole.unread
    assert any(text.notes for text in gated.texts)


@settings(max_examples=120)
@given(
    lines=st.lists(
        st.one_of(
            st.sampled_from(HARMLESS),
            st.sampled_from(PIECES).flatmap(st.from_regex),
            st.tuples(
                st.sampled_from(HARMLESS),
                st.sampled_from(PIECES).flatmap(lambda piece: st.from_regex(piece, fullmatch=True)),
            ).map("".join),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_no_line_that_a_pattern_of_a_reader_matches_is_kept_from_it(
    lines: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("lines") / "log.txt"
    path.write_bytes("\n".join(lines).encode("utf-8", "replace"))
    with pytest.MonkeyPatch.context() as patch:
        assert text_of(path) == shown_all(patch, lambda: text_of(path))


@settings(max_examples=200)
@given(data=st.data())
def test_what_a_pattern_matches_has_a_word_that_it_needs_and_matches_without_digits(
    data: st.DataObject,
) -> None:
    piece = data.draw(st.sampled_from(PIECES))
    words = needed_words(piece)
    text = data.draw(st.from_regex(piece))
    left = left_of_shape(shape_of(text)).decode()
    assert words is None or any(word in folded(left) for word in words)
    assert left_of(piece).search(left)
    if piece.match(text):
        assert left_of(piece).match(left)


def test_the_words_that_a_pattern_needs_are_the_longest_that_do() -> None:
    assert needed_words(re.compile(r"rank (?:\d+ )?(?:lost it|hangs up)")) == frozenset(
        {b"lost it", b"hangs up"}
    )
    assert needed_words(re.compile(r"x?Xid 79: \d+")) == frozenset({b"xid : "})
    assert needed_words(re.compile(r"(?:dead)?\d+")) is None
    assert needed_words(re.compile(r"(?!)lost")) == frozenset()
    assert [each.pattern for each in alternatives(re.compile(r"a[|\]]|(?:b|c)|\|[]|]"))] == [
        r"a[|\]]",
        r"(?:b|c)",
        r"\|[]|]",
    ]


def test_letters_that_a_pattern_takes_for_others_are_found_under_those() -> None:
    letters = "abcdefghijklmnopqrstuvwxyz"
    everything = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x110000))))
    for letter in letters:
        for like in re.findall(letter, everything, re.IGNORECASE):
            assert folded(f"x{like}") == f"x{letter}".encode()
