"""Which readers a line is for: of those that wait for nothing, the ones with a pattern in it.

A line that no reader has a pattern for changes nothing in any of them, so it need not be shown to
them. What a line's words leave possible is remembered: logs say the same over and over with other
numbers.
"""

import re
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import Any, Final

from nemesis.producers.readers.left_of_pattern import left_of, left_of_shape, shape_of
from nemesis.producers.readers.needed_words import (
    alternatives,
    any_of,
    folded,
    needed_words,
)

REMEMBERED_MAX: Final = 16_384
REMEMBERED_BYTES_MAX: Final = 512
"""Of one line. Both bound what is remembered to some 20 MB, mostly to much less."""
Wants = tuple[Sequence[re.Pattern[str]], Sequence[re.Pattern[str]]]
"""Patterns of the lines that a reader wants: at their start, and anywhere."""
_Test = Callable[[str], Any]
Plan = tuple[tuple[int, tuple[_Test, ...]], ...]
"""(place of a reader, what to try on the line until one matches), ascending."""


class _Try:
    """One alternative of a reader's patterns."""

    def __init__(self, place: int, pattern: re.Pattern[str], *, starts: bool) -> None:
        self.place: Final = place
        self.words: Final = needed_words(pattern)
        self.test: Final[_Test] = pattern.match if starts else pattern.search
        self._pattern: Final = pattern
        self._starts: Final = starts

    @cached_property
    def left(self) -> _Test:
        """The same for what is left of a line without its numbers."""
        left = left_of(self._pattern)
        return left.match if self._starts else left.search


class LineGate:
    """Answers for readers in one order."""

    def __init__(self, readers: Sequence[Wants]) -> None:
        self._tries: Final = [
            _Try(place, each, starts=starts)
            for place, (beginnings, parts) in enumerate(readers)
            for patterns, starts in ((beginnings, True), (parts, False))
            for pattern in patterns
            for each in alternatives(pattern)
        ]
        self._always: Final[list[int]] = []
        self._by_word: Final[dict[bytes, list[int]]] = {}
        for number, each in enumerate(self._tries):
            if each.words is None:
                self._always.append(number)
            for word in each.words or ():
                self._by_word.setdefault(word, []).append(number)
        self._words: Final = re.compile(b"(?=(" + any_of(self._by_word) + b"))")
        self._of_left: Final = lru_cache(REMEMBERED_MAX)(self._plan_of)
        self._of_shape: Final = lru_cache(REMEMBERED_MAX)(self._plan_of_shape)

    def readers_of(self, text: str) -> list[int]:
        """Places of the readers that have a pattern in a line, ascending."""
        shape = shape_of(text)
        if len(shape) <= REMEMBERED_BYTES_MAX:
            plan = self._of_shape(shape)
        else:
            plan = self._plan_of(left_of_shape(shape))
        found = []
        for place, tests in plan:
            for test in tests:
                if test(text):
                    found.append(place)
                    break
        return found

    def _plan_of_shape(self, shape: bytes) -> Plan:
        return self._of_left(left_of_shape(shape))

    def _plan_of(self, left: bytes) -> Plan:
        """What could match a line of which this is left without its numbers."""
        text = left.decode()
        numbers = set(self._always)
        for word in set(self._words.findall(folded(text))):
            for end in range(1, len(word) + 1):
                numbers.update(self._by_word.get(word[:end], ()))
        tests: dict[int, list[_Test]] = {}
        for each in (self._tries[number] for number in sorted(numbers)):
            if each.left(text):
                tests.setdefault(each.place, []).append(each.test)
        return tuple((place, tuple(each)) for place, each in tests.items())
