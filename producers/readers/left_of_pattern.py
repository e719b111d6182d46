"""The pattern that matches what is left of a pattern's lines when the digits 0 to 9 are taken out.

Why: two lines that differ in their numbers alone are looked at once (line_gate.py). How: what a
pattern takes one after another may have been digits, so whatever takes a digit may also take
nothing; what takes none is there as before. Where that cannot be said of a part it may be anything,
so the new pattern matches too much rather than too little. A word's boundary stays where a letter
is beside it: the other side is then no word, so no digit.

Repeats of more than one character become anything at all: taken out digits could be cut in
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
_DIGITS: Final = range(ord("0"), ord("9") + 1)
_WITH_DIGITS: Final = ("CATEGORY_DIGIT", "CATEGORY_WORD", "CATEGORY_NOT_SPACE")
_SINGLE: Final = ("LITERAL", "NOT_LITERAL", "ANY", "IN")
_REPEATS: Final = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
_Node = tuple[Any, Any]


def left_of(pattern: re.Pattern[str]) -> re.Pattern[str]:
    """Where `pattern` matches a line, this matches the line without digits, at that place."""
    tree = _parser.parse(pattern.pattern, pattern.flags)
    found: re.Pattern[str] = _compiler.compile(_left(tree), tree.state.flags)
    return found


def _left(tree: Any) -> Any:
    nodes: list[_Node] = list(tree)
    found: list[_Node] = []
    for at, node in enumerate(nodes):
        found += _left_of_node(tree.state, node, nodes[at - 1 : at] + nodes[at + 1 : at + 2])
    return _parser.SubPattern(tree.state, found)


def _left_of_node(state: Any, node: _Node, beside: Sequence[_Node]) -> list[_Node]:
    """Of one node; `beside` it are the one before, where there is one, and the one after."""
    operation, argument = node
    match str(operation):
        case "LITERAL" | "NOT_LITERAL" | "ANY" | "IN":
            if not any(_takes(node)):
                return [node]
            return [(_names.MAX_REPEAT, (0, 1, _parser.SubPattern(state, [node])))]
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
            stays = str(argument) == "AT_BOUNDARY" and any(_is_letter(each) for each in beside)
            return [node] if stays else []
        case "AT" | "FAILURE":
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


def _takes(node: _Node) -> list[bool]:
    """Of each digit, whether a node of one character takes it."""
    operation, argument = node
    match str(operation):
        case "LITERAL":
            return [digit == argument for digit in _DIGITS]
        case "NOT_LITERAL":
            return [digit != argument for digit in _DIGITS]
        case "IN":
            turned = str(argument[0][0]) == "NEGATE"
            return [any(_has(each, digit) for each in argument) != turned for digit in _DIGITS]
        case name:
            return [name == "ANY"] * len(_DIGITS)


def _has(member: _Node, digit: int) -> bool:
    operation, argument = member
    match str(operation):
        case "LITERAL":
            return bool(argument == digit)
        case "RANGE":
            return bool(argument[0] <= digit <= argument[1])
        case _:
            return str(argument) in _WITH_DIGITS


def _is_letter(node: _Node) -> bool:
    """Whether a node takes letters alone, at both of its ends."""
    operation, argument = node
    match str(operation):
        case "LITERAL":
            return chr(argument).isalpha()
        case "IN":
            return all(str(each[0]) == "LITERAL" and chr(each[1]).isalpha() for each in argument)
        case "BRANCH":
            return all(_ends_in_letters(list(each)) for each in argument[1])
        case "SUBPATTERN":
            return _ends_in_letters(list(argument[3]))
        case name if name in _REPEATS and argument[0]:
            return _ends_in_letters(list(argument[2]))
        case _:
            return False


def _ends_in_letters(nodes: Sequence[_Node]) -> bool:
    return bool(nodes) and _is_letter(nodes[0]) and _is_letter(nodes[-1])
