"""Promises of evolution: what was written once can be read for ever, and the rules notice."""

from typing import Literal

import msgspec
import pytest

from nemesis.schemas.evolution import StructDescription, broken_rules, describe


class Before(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A fact as it was released."""

    at_ns: int
    name: str
    action: Literal["watch", "drain"]
    count: int = 0


Field = tuple[str, object] | tuple[str, object, object]
FIELDS: list[Field] = [
    ("at_ns", int),
    ("name", str),
    ("action", Literal["watch", "drain"]),
    ("count", int, 0),
]


def broken(fields: list[Field], *, array: bool = False) -> list[str]:
    after = msgspec.defstruct("Before", fields, kw_only=True, omit_defaults=True, array_like=array)
    return broken_rules({"Before": describe(Before)}, {"Before": describe(after)})


def changed(at: int, field: Field) -> list[Field]:
    return [field if i == at else each for i, each in enumerate(FIELDS)]


def test_nothing_changed_breaks_nothing() -> None:
    assert broken(FIELDS) == []


def test_a_new_last_field_with_a_default_is_allowed() -> None:
    assert broken([*FIELDS, ("reason", str, "")]) == []


def test_a_closed_list_may_grow() -> None:
    assert broken(changed(2, ("action", Literal["drain", "watch", "swap"]))) == []


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ([*FIELDS, ("reason", str)], "Before.reason is new and has no default"),
        (FIELDS[:3], "Before.count is gone: a rename is a new fact"),
        (changed(0, ("at_ns", float)), "Before.at_ns was int and is float"),
        (changed(3, ("count", int, 1)), "Before.count had the default 0 and has 1"),
        (changed(3, ("count", int)), "Before.count had the default 0 and has None"),
        (changed(1, ("name", str, "")), 'Before.name had the default None and has ""'),
        (changed(2, ("action", Literal["watch"])), "Before.action no longer takes drain"),
        ([FIELDS[1], FIELDS[0], *FIELDS[2:]], "Before has its fields in another order"),
    ],
)
def test_what_old_facts_do_not_survive_is_refused(fields: list[Field], says: str) -> None:
    assert [line for line in broken(fields) if line.startswith(says)], broken(fields)


def test_a_struct_that_went_is_refused() -> None:
    assert broken_rules({"Before": describe(Before)}, {}) == [
        "Before is gone: facts of it can no longer be read"
    ]


def test_a_struct_cannot_become_an_array() -> None:
    assert (
        broken(FIELDS, array=True) == [" is written in another form"]
        or "Before is written" in (broken(FIELDS, array=True)[0])
    )


def test_an_array_takes_new_fields_at_its_end_only() -> None:
    def array(*fields: Field) -> dict[str, StructDescription]:
        return {"A": describe(msgspec.defstruct("A", fields, kw_only=True, array_like=True))}

    old = array(("a", int), ("b", int, 0))
    assert broken_rules(old, array(("a", int), ("b", int, 0), ("c", int, 0))) == []
    assert broken_rules(old, array(("a", int), ("c", int, 0), ("b", int, 0))) == [
        "A is an array: a new field can only be the last one"
    ]
