"""Lines of a text file, plain or gzip, numbered as `str.splitlines` numbers them.

A file may be a gigabyte, one endless line, or no text at all: reading is streamed and bounded, and
what is not UTF-8 becomes a replacement character.
"""

import gzip
import io
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import BinaryIO, Final, cast

from nemesis.producers.readers.zstd_file import ZstdFile

LINE_BYTES_MAX: Final = 64 * 1024  # the rest of a longer line is dropped
READ_BYTES_MAX: Final = 4 * 1024 * 1024 * 1024  # also bounds what a small .gz can become
BLOCK_BYTES: Final = 4 * 1024 * 1024
TOLD_BYTES: Final = 1024 * 1024
# what splitlines breaks at besides \n, \r\n and \r; searching for each is ten times as fast as one
# regular expression, and a gigabyte has to be read within a minute
_ODD_BREAKS: Final = tuple(each.encode() for each in "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029")
_ODD_ASCII_BREAKS: Final = tuple(each for each in _ODD_BREAKS if each.isascii())


def opened(path: Path) -> BinaryIO:
    """The file's bytes, unpacked where it is a gzip or a zstd file.

    Raises:
        OSError: it cannot be opened.
    """
    with path.open("rb") as stream:
        magic = stream.read(4)
    if magic[:2] == b"\x1f\x8b":
        return cast(BinaryIO, gzip.open(path))
    if magic == b"\x28\xb5\x2f\xfd":
        return cast(BinaryIO, io.BufferedReader(ZstdFile(path)))
    return path.open("rb")


def numbered_lines(
    stream: BinaryIO,
    *,
    whole_count: int,
    then: Collection[bytes],
    on_read: Callable[[int], None] = lambda read_bytes: None,
) -> Iterator[tuple[int, str]]:
    """(number from 1, text) of the first `whole_count` lines, then of those with one of `then`.

    `on_read` hears how many bytes more were read, now and then.
    """
    number = read_bytes = told_bytes = 0
    cut = False
    while number < whole_count:
        raw = stream.readline(LINE_BYTES_MAX)
        if not raw:
            return
        read_bytes += len(raw)
        if read_bytes - told_bytes > TOLD_BYTES:
            on_read(read_bytes - told_bytes)
            told_bytes = read_bytes
        went_on, cut = cut, not raw.endswith(b"\n")
        if went_on:
            continue
        for text in raw.decode(errors="replace").splitlines():
            number += 1
            yield number, text
    while read_bytes < READ_BYTES_MAX:
        block = stream.read(BLOCK_BYTES) + stream.readline(LINE_BYTES_MAX)
        if not block:
            return
        read_bytes += len(block)
        on_read(len(block))
        for line, text in _found(block, then):
            yield number + line, text
        number += _line_count(block)


def lines_at(path: Path, numbers: Collection[int]) -> dict[int, str]:
    """The text of some of a file's lines as they lie there, by number.

    Raises:
        OSError, EOFError: it cannot be read any more.
    """
    last = max(numbers, default=0)
    found: dict[int, str] = {}
    number = 0
    with opened(path) as stream:
        while number < last and (
            block := stream.read(BLOCK_BYTES) + stream.readline(LINE_BYTES_MAX)
        ):
            count = _line_count(block)
            wanted = {each - number for each in numbers if number < each <= number + count}
            if wanted:
                texts = block.decode(errors="replace").splitlines()
                found |= {number + each: texts[each - 1] for each in wanted}
            number += count
    return found


def _found(block: bytes, words: Collection[bytes]) -> Iterator[tuple[int, str]]:
    """(number within the block, text) of the lines with one of the words."""
    if _breaks_oddly(block):
        for number, text in enumerate(block.decode(errors="replace").splitlines(), 1):
            if any(word in text.encode() for word in words):
                yield number, text
        return
    places = sorted({place for word in words for place in _places(block, word)})
    number = done = 0
    for place in places:
        if place < done:
            continue
        start = block.rfind(b"\n", 0, place) + 1
        number += block.count(b"\n", done, start)
        done = block.find(b"\n", place) + 1 or len(block)
        yield number + 1, block[start:done].decode(errors="replace").rstrip("\r\n")
        number += 1


def _places(block: bytes, word: bytes) -> Iterator[int]:
    place = block.find(word)
    while place >= 0:
        yield place
        place = block.find(word, place + len(word))


def _breaks_oddly(block: bytes) -> bool:
    if b"\r" in block and block.count(b"\r") != block.count(b"\r\n"):
        return True
    odd = _ODD_ASCII_BREAKS if block.isascii() else _ODD_BREAKS
    return any(each in block for each in odd)


def _line_count(block: bytes) -> int:
    if _breaks_oddly(block):
        return len(block.decode(errors="replace").splitlines())
    return block.count(b"\n") + (not block.endswith(b"\n"))
