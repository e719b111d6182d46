"""Promises of the comparison: two authors that disagree are told apart, word for word."""

from hashlib import sha256

import pytest

from nemesis.processors.emission import Emission
from nemesis.processors.fold import Fold
from nemesis.schemas.facts import Record, encode_conclusion
from nemesis.schemas.operated import NoteAdded
from nemesis.streams.comparison import NOTHING, Comparison, Difference
from tests.faults.processors import Counting


def said(seq: int, k: int = 0, *, name: str = "counting", text: str = "x") -> Emission:
    identity = f"{name}/{seq}/{k}"
    subject, payload = encode_conclusion(
        id=identity,
        source=f"/processors/{name}",
        at_ns=1,
        data=NoteAdded(at_ns=1, by=name, reason="", incident="i", text=text),
        key="i",
    )
    return Emission(seq, subject, payload, identity, False)


def passed(comparison: Comparison, emission: Emission) -> Difference | None:
    return comparison.passed(Record(100, emission.subject, 0, emission.payload))


def digest(emission: Emission) -> str:
    return sha256(emission.payload).hexdigest()


@pytest.fixture
def comparison() -> Comparison:
    """A copy that restored at input 10 and concluded two things since."""
    comparison = Comparison("counting", 10)
    comparison.expect([said(11), said(12)])
    return comparison


def test_the_same_conclusion_is_no_difference_and_is_awaited_no_longer(
    comparison: Comparison,
) -> None:
    assert passed(comparison, said(11)) is None
    assert comparison.answered(11) == []
    assert passed(comparison, said(12)) is None
    assert comparison.answered(99) == []


def test_another_text_is_a_difference(comparison: Comparison) -> None:
    theirs = said(11, text="y")
    assert passed(comparison, theirs) == Difference(
        "counting/11/0", digest(said(11)), digest(theirs)
    )
    assert comparison.answered(11) == []


def test_another_subject_is_a_difference(comparison: Comparison) -> None:
    mine = said(11)
    record = Record(100, "nemesis.events.note_added.other", 0, mine.payload)
    assert comparison.passed(record) == Difference("counting/11/0", digest(mine), digest(mine))


def test_a_conclusion_that_this_copy_did_not_make_is_a_difference(comparison: Comparison) -> None:
    theirs = said(11, 1)
    assert passed(comparison, theirs) == Difference("counting/11/1", NOTHING, digest(theirs))
    assert NOTHING == ""


def test_a_conclusion_that_the_log_does_not_show_is_a_difference_once_it_is_answered(
    comparison: Comparison,
) -> None:
    assert comparison.answered(10) == []
    assert comparison.answered(11) == [Difference("counting/11/0", digest(said(11)), NOTHING)]
    assert comparison.answered(11) == []
    assert comparison.answered(12) == [Difference("counting/12/0", digest(said(12)), NOTHING)]


def test_what_was_concluded_before_this_copy_began_is_not_compared(comparison: Comparison) -> None:
    assert passed(comparison, said(10)) is None
    assert passed(comparison, said(9)) is None


@pytest.mark.parametrize("name", ["count", "counting2", "echoing"])
def test_conclusions_of_other_processors_are_none_of_its_business(
    comparison: Comparison, name: str
) -> None:
    assert passed(comparison, said(11, name=name, text="y")) is None
    assert comparison.answered(10) == []


@pytest.mark.parametrize("identity", ["counting/runner/1/2", "counting/x/0", "counting/11"])
def test_what_a_runner_says_under_the_name_of_its_processor_is_not_compared(
    comparison: Comparison, identity: str
) -> None:
    payload = said(11).payload.replace(b"counting/11/0", identity.encode())
    assert comparison.passed(Record(100, "nemesis.events.note_added.i", 0, payload)) is None


def test_a_long_identity_is_found_and_an_endless_one_is_not_searched_for(
    comparison: Comparison,
) -> None:
    long = "counting/11/" + "7" * 150
    payload = said(11).payload.replace(b"counting/11/0", long.encode())
    record = Record(100, "nemesis.events.note_added.i", 0, payload)
    assert comparison.passed(record) == Difference(long, NOTHING, sha256(payload).hexdigest())


def test_a_stand_in_that_names_what_was_refused_is_no_difference(comparison: Comparison) -> None:
    stand_in = Fold(Counting()).undeliverable(11, "counting/11/0", said(11).payload, "too large")
    assert passed(comparison, stand_in) is None
    assert comparison.answered(11) == []


def test_a_stand_in_for_something_else_is_a_difference(comparison: Comparison) -> None:
    stand_in = Fold(Counting()).undeliverable(11, "counting/11/0", b"other", "too large")
    assert passed(comparison, stand_in) == Difference(
        "counting/11/0", digest(said(11)), digest(stand_in)
    )
    unasked = Fold(Counting()).undeliverable(12, "counting/12/1", b"other", "too large")
    assert passed(comparison, unasked) == Difference("counting/12/1", NOTHING, digest(unasked))


def test_a_hash_in_any_other_fact_excuses_nothing(comparison: Comparison) -> None:
    theirs = said(11, text=digest(said(11)))
    assert passed(comparison, theirs) == Difference(
        "counting/11/0", digest(said(11)), digest(theirs)
    )


def under(identity: bytes) -> Record:
    """An event of somebody who uses the name of the processor, cut off behind its id."""
    return Record(100, "nemesis.events.x", 0, b'{"specversion":"1.0","id":"' + identity + b'"}')


def test_an_event_under_the_name_of_the_processor_is_a_difference_however_short(
    comparison: Comparison,
) -> None:
    record = under(b"counting/11/7")
    assert comparison.passed(record) == Difference(
        "counting/11/7", NOTHING, sha256(record.payload).hexdigest()
    )


@pytest.mark.parametrize("identity", [b"counting/\xff/0", b"counting/11/" + b"0" * 300])
def test_an_id_that_no_processor_gives_is_nobody_s_conclusion(
    comparison: Comparison, identity: bytes
) -> None:
    assert comparison.passed(under(identity)) is None


def test_an_id_that_is_no_text_is_a_difference_and_harms_nobody(comparison: Comparison) -> None:
    difference = comparison.passed(under(b"counting/11/\xff"))
    assert difference is not None
    assert difference.id == "counting/11/\N{REPLACEMENT CHARACTER}"
