"""The pattern that matches what is left of a pattern's lines when their numbers are taken out.

Why: two lines that differ in their numbers alone are looked at once (line_gate.py). Numbers are the
digits 0 to 9 wherever they are, and words of a to f that hold one, as addresses and hashes do.
How: what a pattern takes may have been of a number, so whatever takes a character of numbers may
also take nothing; what takes none is there as before, and so is a word that is written out whole or
has a letter beyond f. Where that cannot be said of a part it may be anything: the pattern matches
too much rather than too little. A word's boundary stays where such a letter is beside it: the other
side is then no word, so no number.

Repeats of more than one character become anything at all: what was taken out could be cut in
exponentially many ways between them.
"""

import re
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

# the tree that the standard library itself compiles; it has no public name since 3.11
_parser: Final[Any] = import_module("re._parser")
_compiler: Final[Any] = import_module("re._compiler")
_names: Final[Any] = import_module("re._constants")
_NUMBER: Final = re.compile(rb"(?<![0-9A-Za-z_])(?:0x)?[a-f]*0[0a-f]*(?![0-9A-Za-z_])")
_ZEROS: Final = bytes(48 if chr(each).isdecimal() else each for each in range(128)) + bytes(
    range(128, 256)
)
_OF_NUMBERS: Final = frozenset("0123456789abcdefx")
_CODES: Final = [ord(each) for each in sorted(_OF_NUMBERS | {each.upper() for each in _OF_NUMBERS})]
_WORD: Final = re.compile(r"[0-9A-Za-z_]+")
_SINGLE: Final = ("LITERAL", "NOT_LITERAL", "ANY", "IN")
_REPEATS: Final = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
_Node = tuple[Any, Any]


def shape_of(text: str) -> bytes:
    """A line with each digit a zero: what is left of it depends on this alone."""
    return text.encode("utf-8", "replace").translate(_ZEROS)


def left_of_shape(shape: bytes) -> bytes:
    """What is left of a line of this shape."""
    return _NUMBER.sub(b"", shape).translate(None, b"0")


def may_be_of_number(word: str) -> bool:
    """Whether a word, or a part of one, may have been taken out as part of a number."""
    return _OF_NUMBERS.issuperset(word.lower())


def left_of(pattern: re.Pattern[str]) -> re.Pattern[str]:
    """Where `pattern` matches a line, this matches what is left of the line, at that place."""
    tree = _parser.parse(pattern.pattern, pattern.flags)
    found: re.Pattern[str] = _compiler.compile(_left(tree), tree.state.flags)
    return found


def _left(tree: Any) -> Any:
    nodes: list[_Node] = list(tree)
    gone = _may_go(nodes)
    found: list[_Node] = []
    for at, node in enumerate(nodes):
        near = [each for each in (at - 1, at + 1) if 0 <= each < len(nodes)]
        by_letter = any(_is_letter(nodes[each], gone[each]) for each in near)
        if gone[at]:
            found.append((_names.MAX_REPEAT, (0, 1, _parser.SubPattern(tree.state, [node]))))
        else:
            found += _left_of_node(tree.state, node, by_letter)
    return _parser.SubPattern(tree.state, found)


def _left_of_node(state: Any, node: _Node, by_letter: bool) -> list[_Node]:
    """Of a node that is no character of a number; `by_letter`: a letter of none is beside it."""
    operation, argument = node
    match str(operation):
        case "LITERAL" | "NOT_LITERAL" | "ANY" | "IN" | "FAILURE":
            return [node]
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            return _left_of_repeat(state, *argument)
        case "BRANCH":
            return [(operation, (None, [_left(each) for each in argument[1]]))]
        case "SUBPATTERN":
            return [(operation, (*argument[:3], _left(argument[3])))]
        case "ASSERT":  # one that looks back has to have one width
            return [(operation, (1, _left(argument[1])))] if argument[0] == 1 else []
        case "ASSERT_NOT":
            inner: list[_Node] = list(argument[1])
            stays = not inner or (len(inner) == 1 and all(_takes(inner[0])))
            return [node] if stays else []
        case "AT" if "BOUNDARY" in str(argument):
            return [node] if by_letter and str(argument) == "AT_BOUNDARY" else []
        case "AT":
            return [node]
        case _:
            return [_anything(state)]


def _left_of_repeat(state: Any, least: int, most: int, tree: Any) -> list[_Node]:
    nodes: list[_Node] = list(tree)
    if len(nodes) == 1 and str(nodes[0][0]) in _SINGLE:
        least = 0 if any(_takes(nodes[0])) else least
        return [(_names.MAX_REPEAT, (least, most, tree))]
    if most == 1:
        return [(_names.MAX_REPEAT, (least, most, _left(tree)))]
    return [_anything(state)]


def _anything(state: Any) -> _Node:
    each = [
        (_names.CATEGORY, _names.CATEGORY_SPACE),
        (_names.CATEGORY, _names.CATEGORY_NOT_SPACE),
    ]
    tree = _parser.SubPattern(state, [(_names.IN, each)])
    return (_names.MAX_REPEAT, (0, _names.MAXREPEAT, tree))


def _may_go(nodes: Sequence[_Node]) -> list[bool]:
    """Of each node of a sequence, whether it takes one character and that may be of a number."""
    text = "".join(chr(each[1]) if str(each[0]) == "LITERAL" else "\n" for each in nodes)
    stays = [False] * len(nodes)
    for word in _WORD.finditer(text):
        first, end = word.span()
        whole = (
            first > 0 and _is_edge(nodes[first - 1]) and any(map(_is_edge, nodes[end : end + 1]))
        )
        word_stays = not may_be_of_number(word[0]) or (whole and word[0].isalpha())
        for at in range(first, end):
            stays[at] = word_stays and not text[at].isdecimal()
    return [
        str(each[0]) in _SINGLE and any(_takes(each)) and not stay
        for each, stay in zip(nodes, stays, strict=True)
    ]


def _is_edge(node: _Node) -> bool:
    """Whether words end here: a number has a digit, so no whole word of letters is one."""
    operation, argument = node
    if str(operation) == "ASSERT_NOT":
        return len(argument[1]) == 1 and all(_takes(argument[1][0]))
    return str(argument) == "AT_BOUNDARY"


def _takes(node: _Node) -> list[bool]:
    """Of each character of numbers, in either case, whether a node of one character takes it."""
    operation, argument = node
    match str(operation):
        case "LITERAL":
            return [code == argument for code in _CODES]
        case "NOT_LITERAL":
            return [code != argument for code in _CODES]
        case "IN":
            turned = str(argument[0][0]) == "NEGATE"
            return [any(_has(each, code) for each in argument) != turned for code in _CODES]
        case name:
            return [name == "ANY"] * len(_CODES)


def _has(member: _Node, code: int) -> bool:
    operation, argument = member
    match str(operation), str(argument):
        case "LITERAL", _:
            return bool(argument == code)
        case "RANGE", _:
            return bool(argument[0] <= code <= argument[1])
        case _, "CATEGORY_DIGIT":
            return chr(code).isdecimal()
        case _, name:
            return name in ("CATEGORY_WORD", "CATEGORY_NOT_SPACE") or (
                name == "CATEGORY_NOT_DIGIT" and not chr(code).isdecimal()
            )


def _is_letter(node: _Node, gone: bool) -> bool:
    """Whether a node takes letters that stay, and nothing else, at both of its ends."""
    operation, argument = node
    match str(operation):
        case "LITERAL":
            return not gone and chr(argument).isalpha()
        case "IN":
            members = [chr(each[1]) for each in argument if str(each[0]) == "LITERAL"]
            return len(members) == len(argument) and not gone and all(map(str.isalpha, members))
        case "BRANCH":
            return all(_ends_in_letters(list(each)) for each in argument[1])
        case "SUBPATTERN":
            return _ends_in_letters(list(argument[3]))
        case name if name in _REPEATS and argument[0]:
            return _ends_in_letters(list(argument[2]))
        case _:
            return False


def _ends_in_letters(nodes: Sequence[_Node]) -> bool:
    gone = _may_go(nodes)
    return bool(nodes) and all(_is_letter(nodes[at], gone[at]) for at in (0, -1))
