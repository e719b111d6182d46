"""How facts may change from release to release, as rules that a machine checks.

A fact that was written once must decode for ever, to the same meaning, and encode again to the same
bytes. So: fields keep their name, type, default and order; new ones have a default that means "as
before"; a closed list may grow, never shrink. `evolution.json` describes what was released or is
about to be; a test compares the code with it.
"""

from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from nemesis.schemas import (
    advised,
    decided,
    done,
    envelope,
    inferred,
    kept,
    observed,
    operated,
    plans,
    saved,
    scheduled,
    timed,
    watched,
)

MODULES = (
    advised,
    decided,
    done,
    envelope,
    inferred,
    kept,
    observed,
    operated,
    plans,
    saved,
    scheduled,
    timed,
    watched,
)
"""Where everything that lies in the log or goes over the plan channel is defined."""


class FieldDescription(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True):
    """One field."""

    name: str
    """As it is written."""
    type: str
    choices: tuple[str, ...] = ()
    """The closed list that it speaks in."""
    default: str | None = None
    """As JSON; None where the field must be there."""


class StructDescription(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True):
    """One struct."""

    fields: tuple[FieldDescription, ...]
    array: bool = False
    """Written as an array: a new field can only be the last one."""


Description = Mapping[str, StructDescription]


def described(modules: Iterable[ModuleType] = MODULES) -> dict[str, StructDescription]:
    """Every struct of these modules, by `module.Name`."""
    structs = {
        f"{module.__name__.rpartition('.')[2]}.{name}": struct
        for module in modules
        for name, struct in vars(module).items()
        if isinstance(struct, type)
        and issubclass(struct, msgspec.Struct)
        and struct.__module__ == module.__name__
    }
    return {name: describe(structs[name]) for name in sorted(structs)}


def describe(struct: type[msgspec.Struct]) -> StructDescription:
    """One struct."""
    hints = get_type_hints(struct, include_extras=True)
    return StructDescription(
        array=struct.__struct_config__.array_like,
        fields=tuple(
            FieldDescription(
                name=field.encode_name,
                type=_spelled(hints[field.name]),
                choices=_choices(hints[field.name]),
                default=_default(field),
            )
            for field in msgspec.structs.fields(struct)
        ),
    )


def broken_rules(old: Description, new: Description) -> list[str]:
    """What a new release may not do to what an old one has written; empty where all is well."""
    broken: list[str] = []
    for name, before in old.items():
        after = new.get(name)
        if after is None:
            broken.append(f"{name} is gone: facts of it can no longer be read")
        else:
            broken.extend(f"{name}{what}" for what in _broken(before, after))
    return broken


def _broken(before: StructDescription, after: StructDescription) -> list[str]:
    broken: list[str] = []
    if before.array != after.array:
        broken.append(" is written in another form: make it a new fact")
    fields = {field.name: field for field in after.fields}
    for old in before.fields:
        broken.extend(f".{old.name} {what}" for what in _changed(old, fields.get(old.name)))
    known = {field.name for field in before.fields}
    for new in after.fields:
        if new.name not in known and new.default is None:
            broken.append(f".{new.name} is new and has no default: old facts lack it")
    order = [field.name for field in after.fields if field.name in known]
    if order != [field.name for field in before.fields if field.name in fields]:
        broken.append(" has its fields in another order: old facts would change their bytes")
    elif before.array and [field.name for field in after.fields[: len(order)]] != order:
        broken.append(" is an array: a new field can only be the last one")
    return broken


def _changed(old: FieldDescription, new: FieldDescription | None) -> Iterator[str]:
    if new is None:
        yield "is gone: a rename is a new fact"
        return
    if new.type != old.type:
        yield f"was {old.type} and is {new.type}: add a field instead"
    if new.default != old.default:
        yield f"had the default {old.default} and has {new.default}"
    if gone := sorted(set(old.choices) - set(new.choices)):
        yield f"no longer takes {', '.join(gone)}"


def _spelled(hint: Any) -> str:
    """A type, with what it refuses and without what is only said to people."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        base, *extras = arguments
        limits = "".join(
            f" {name}={getattr(meta, name)}"
            for meta in extras
            for name in (
                "ge",
                "gt",
                "le",
                "lt",
                "multiple_of",
                "pattern",
                "min_length",
                "max_length",
            )
            if getattr(meta, name, None) is not None
        )
        return _spelled(base) + limits
    if origin is Literal:
        return "choice"
    if arguments:
        name = getattr(origin, "__name__", str(origin))
        return f"{name}[{', '.join(_spelled(argument) for argument in arguments)}]"
    return "..." if hint is ... else getattr(hint, "__name__", str(hint))


def _choices(hint: Any) -> tuple[str, ...]:
    if get_origin(hint) is Literal:
        return tuple(str(choice) for choice in get_args(hint))
    return tuple(choice for argument in get_args(hint) for choice in _choices(argument))


def _default(field: msgspec.structs.FieldInfo) -> str | None:
    if field.default is not msgspec.NODEFAULT:
        return msgspec.json.encode(field.default).decode()
    if field.default_factory is not msgspec.NODEFAULT:
        return msgspec.json.encode(field.default_factory()).decode()
    return None
