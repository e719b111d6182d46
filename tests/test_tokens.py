"""Promises of subject tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemesis.schemas.errors import BadNameError
from nemesis.schemas.tokens import NAME_BYTES_MAX, name_of, token_of

names = st.text(min_size=1).filter(
    lambda s: len(s.encode("utf-8", "surrogatepass")) <= NAME_BYTES_MAX
)


@given(names)
def test_every_name_comes_back_from_its_token(name: str) -> None:
    assert name_of(token_of(name)) == name


@given(names)
def test_a_token_holds_nothing_that_a_subject_gives_a_meaning(name: str) -> None:
    assert set(token_of(name)) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_")


@pytest.mark.parametrize("name", ["", "x" * (NAME_BYTES_MAX + 1)])
def test_a_name_of_no_or_too_many_bytes_is_refused(name: str) -> None:
    with pytest.raises(BadNameError, match="1 to 100 bytes"):
        token_of(name)


@pytest.mark.parametrize("token", ["_", "_4", "_zz", "_61", "A", "a.b", "", "_ff", "é"])
def test_what_no_name_has_as_token_is_refused(token: str) -> None:
    with pytest.raises(BadNameError):
        name_of(token)
