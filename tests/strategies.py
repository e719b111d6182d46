"""Any value of a struct, from its type hints and limits."""

from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from hypothesis import strategies as st

S = TypeVar("S", bound=msgspec.Struct)

TEXT = st.text(max_size=12)
_INT = {"min_value": -(2**63), "max_value": 2**63 - 1}


def any_of(struct: type[S], words: st.SearchStrategy[str] = TEXT) -> st.SearchStrategy[S]:
    """Instances of a struct; fields with a default are there or not; `words`: what texts say."""
    hints = get_type_hints(struct, include_extras=True)
    required: dict[str, st.SearchStrategy[Any]] = {}
    optional: dict[str, st.SearchStrategy[Any]] = {}
    for field in msgspec.structs.fields(struct):
        strategy = _values(hints[field.name], words)
        (required if field.required else optional)[field.name] = strategy
    values = st.fixed_dictionaries(required, optional=optional)
    return values.map(lambda chosen: struct(**chosen))


def _values(hint: Any, words: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _limited(arguments[0], arguments[1:], words)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is tuple:
        if arguments[-1] is ...:
            return st.lists(_values(arguments[0], words), max_size=3).map(tuple)
        return st.tuples(*(_values(each, words) for each in arguments))
    if origin is dict:
        return st.dictionaries(words, _values(arguments[1], words), max_size=3)
    if arguments:  # a union
        return st.one_of(*(_values(each, words) for each in arguments))
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return any_of(hint, words)
    return words if hint is str else _plain(hint)


def _limited(
    base: Any, extras: tuple[Any, ...], words: st.SearchStrategy[str]
) -> st.SearchStrategy[Any]:
    limits = dict(_INT)
    for meta in extras:
        if getattr(meta, "pattern", None) is not None:
            return st.from_regex(meta.pattern, fullmatch=True)
        if getattr(meta, "ge", None) is not None:
            limits["min_value"] = meta.ge
        if getattr(meta, "le", None) is not None:
            limits["max_value"] = meta.le
    return st.integers(**limits) if base is int else _values(base, words)


def _plain(hint: Any) -> st.SearchStrategy[Any]:
    plain: dict[Any, st.SearchStrategy[Any]] = {
        int: st.integers(**_INT),
        bool: st.booleans(),
        bytes: st.binary(max_size=12),
        type(None): st.none(),
        msgspec.Raw: st.dictionaries(TEXT, st.integers(0, 9), max_size=3).map(
            lambda held: msgspec.Raw(msgspec.json.encode(held))
        ),
    }
    return plain[hint]
