"""Which words a line needs so that a pattern can match it, read off the pattern itself.

Why: readers know some four hundred forms of lines, nearly every line of a log has none of them, and
to ask every pattern is what takes the time. How: a pattern is a sequence, and whatever is written
out in it has to be there, of alternatives one of them; of the words that would do, the longest are
taken. They are looked for in what is left of a line without its numbers (left_of_pattern.py), and
case is left out on both sides (`folded`). Nothing is kept by hand: a pattern that changes changes
its words.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from typing import Any, Final

from nemesis.producers.readers.left_of_pattern import may_be_of_number

# the tree that the standard library itself compiles; it has no public name since 3.11
_parse: Final[Any] = import_module("re._parser").parse
_WORDS: Final = re.compile(r"[0-9A-Za-z_]+|[^0-9A-Za-z_]+")
_DIGITS: Final = b"0123456789"
_LOWER: Final = bytes(range(256)).lower()
# what `re.IGNORECASE` takes for ASCII letters besides capitals: re/_casefix.py
_LIKE: Final = {0x130: "i", 0x131: "i", 0x17F: "s", 0x212A: "k"}
_BRANCHES: Final = {"(": 1, ")": -1}


def folded(text: str) -> bytes:
    """A text as needed words are looked for: without digits and case."""
    if not text.isascii():
        text = text.translate(_LIKE).lower()
    return text.encode("utf-8", "replace").translate(_LOWER, _DIGITS)


def alternatives(pattern: re.Pattern[str]) -> list[re.Pattern[str]]:
    """The outermost alternatives of a pattern: it matches where one of them does."""
    source, flags = pattern.pattern, pattern.flags
    starts, depth, member, at = [0], 0, 0, 0
    while at < len(source):
        each = source[at]
        if each == "\\":
            at += 1
        elif member:
            member = 0 if each == "]" and at > member else member
        elif each == "[":
            # a bracket right after the opening one, or after ^, is a member of the class
            member = at + 1 + (source[at + 1] == "^")
        elif each == "|" and not depth:
            starts.append(at + 1)
        else:
            depth += _BRANCHES.get(each, 0)
        at += 1
    ends = [start - 1 for start in starts[1:]] + [len(source)]
    return [re.compile(source[a:b], flags) for a, b in zip(starts, ends, strict=True)]


def needed_words(pattern: re.Pattern[str]) -> frozenset[bytes] | None:
    """Words of which every text that the pattern matches has one, without digits and case.

    None where the pattern needs no word, none at all where it never matches.
    """
    return _best(_parse(pattern.pattern, pattern.flags))


def _best(tree: Iterable[Any]) -> frozenset[bytes] | None:
    found = [words for words in _choices(tree) if words is not None and b"" not in words]
    return max(
        found, key=lambda words: (min(map(len, words), default=99), -len(words)), default=None
    )


def _choices(tree: Iterable[Any]) -> Iterator[frozenset[bytes] | None]:
    """What each element of a sequence needs; characters that are written out are one word."""
    run = ""
    for operation, argument in tree:
        name = str(operation)
        if name == "LITERAL":
            run += chr(argument)
            continue
        yield from _staying(run)
        run = ""
        match name:
            case "BRANCH":
                yield _either([_best(each) for each in argument[1]])
            case "SUBPATTERN":
                yield _best(argument[3])
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT" if argument[0]:
                yield _best(argument[2])
            case "ASSERT":
                yield _best(argument[1])
            case "ATOMIC_GROUP":
                yield _best(argument)
            case "FAILURE":
                yield frozenset()
            case "ASSERT_NOT" if not list(argument[1]):
                yield frozenset()  # (?!) before Python 3.12
            case _:
                yield None
    yield from _staying(run)


def _staying(run: str) -> Iterator[frozenset[bytes]]:
    """The parts of what is written out that cannot have been taken out with a number."""
    stays = ""
    for part in _WORDS.findall(run):
        if may_be_of_number(part) and not part.isdecimal():
            yield frozenset({folded(stays)})
            stays = ""
        else:
            stays += part
    yield frozenset({folded(stays)})


def _either(choices: Sequence[frozenset[bytes] | None]) -> frozenset[bytes] | None:
    words = [each for each in choices if each is not None]
    return frozenset().union(*words) if len(words) == len(choices) else None


def any_of(words: Iterable[bytes]) -> bytes:
    """A pattern for the longest of these words, a tree by their letters."""
    rests: dict[bytes, list[bytes]] = {}
    ends = False
    for word in words:
        ends = ends or not word
        if word:
            rests.setdefault(word[:1], []).append(word[1:])
    if not rests:
        return b""
    tree = b"|".join(re.escape(first) + any_of(rest) for first, rest in sorted(rests.items()))
    return b"(?:" + tree + (b")?" if ends else b")")
