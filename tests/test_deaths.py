"""Promises of the tally of deaths: it outlives the process, counts one input, and forgets it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from nemesis.schemas.facts import Record
from nemesis.streams.deaths import DEATHS_MAX, ERROR_BYTES_MAX, SLOTS_MAX, Deaths, NoSlotError


def taken(seq: int, stored_ns: int = 70) -> Record:
    """An input, as it lies in one log."""
    return Record(seq, "nemesis.telemetry.n001.kernel", stored_ns, b"")


def die(folder: Path, seq: int, error: str = "", *, stored_ns: int = 70) -> None:
    """One life that ends in the step of an input."""
    deaths = Deaths(folder, "counting@1")
    deaths.enter(taken(seq, stored_ns))
    if error:
        deaths.crashed(error)
    deaths.close()


def lowest_free() -> int:
    """The number of the next file that is opened: higher where one was left open."""
    file = os.dup(0)
    os.close(file)
    return file


@pytest.fixture
def reopened(tmp_path: Path) -> Iterator[list[Deaths]]:
    """Closes what a test opened."""
    opened: list[Deaths] = []
    yield opened
    for deaths in opened:
        deaths.close()


def test_a_first_life_knows_of_no_death(tmp_path: Path, reopened: list[Deaths]) -> None:
    deaths = Deaths(tmp_path / "cell" / "copies", "counting@1")
    reopened.append(deaths)
    assert (deaths.seq, deaths.hopeless, deaths.slot) == (0, False, 0)
    assert (tmp_path / "cell" / "copies").stat().st_mode & 0o777 == 0o700
    (file,) = (tmp_path / "cell" / "copies").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.name.endswith(".0")


def test_an_input_that_kills_three_times_is_hopeless(
    tmp_path: Path, reopened: list[Deaths]
) -> None:
    for count in range(1, DEATHS_MAX + 1):
        die(tmp_path, 7)
        deaths = Deaths(tmp_path, "counting@1")
        assert (deaths.seq, deaths.hopeless) == (7, count == 3)
        assert deaths.error == "the process died in this step"
        deaths.close()


def test_a_step_that_ended_well_is_no_death(tmp_path: Path, reopened: list[Deaths]) -> None:
    deaths = Deaths(tmp_path, "counting@1")
    deaths.enter(taken(7))
    deaths.leave()
    deaths.close()
    deaths = Deaths(tmp_path, "counting@1")
    reopened.append(deaths)
    assert deaths.seq == 0


def test_a_death_in_another_input_starts_the_count_anew(
    tmp_path: Path, reopened: list[Deaths]
) -> None:
    for seq in (7, 7, 8, 7, 7):
        die(tmp_path, seq)
    deaths = Deaths(tmp_path, "counting@1")
    reopened.append(deaths)
    assert (deaths.seq, deaths.hopeless) == (7, False)


def test_another_input_at_the_same_sequence_is_another_death(
    tmp_path: Path, reopened: list[Deaths]
) -> None:
    for stored_ns in (70, 70, 71):
        die(tmp_path, 7, "ValueError" if stored_ns == 70 else "", stored_ns=stored_ns)
    deaths = Deaths(tmp_path, "counting@1")
    reopened.append(deaths)
    assert (deaths.seq, deaths.hopeless) == (7, False)
    assert deaths.error == "the process died in this step"
    assert deaths.of(taken(7, 71))
    assert not deaths.of(taken(7, 70))
    assert not deaths.of(taken(8, 71))


def test_a_life_without_a_death_between_keeps_the_count(
    tmp_path: Path, reopened: list[Deaths]
) -> None:
    die(tmp_path, 7)
    die(tmp_path, 7)
    Deaths(tmp_path, "counting@1").close()
    die(tmp_path, 7)
    deaths = Deaths(tmp_path, "counting@1")
    reopened.append(deaths)
    assert deaths.hopeless


def test_what_the_last_death_said_is_kept_and_cut(tmp_path: Path, reopened: list[Deaths]) -> None:
    die(tmp_path, 7, "ValueError: this step always crashes")
    deaths = Deaths(tmp_path, "counting@1")
    assert deaths.error == "ValueError: this step always crashes"
    deaths.enter(taken(7))
    deaths.crashed("x" * (ERROR_BYTES_MAX + 1))
    deaths.close()
    deaths = Deaths(tmp_path, "counting@1")
    assert deaths.error == "x" * ERROR_BYTES_MAX
    deaths.enter(taken(7))
    deaths.crashed("short")
    deaths.close()
    deaths = Deaths(tmp_path, "counting@1")
    reopened.append(deaths)
    assert deaths.error == "short"


def test_words_that_are_no_text_are_kept_as_far_as_they_are(
    tmp_path: Path, reopened: list[Deaths]
) -> None:
    die(tmp_path, 7, "é" * ERROR_BYTES_MAX + "\ud800")
    deaths = Deaths(tmp_path, "counting@1")
    reopened.append(deaths)
    assert deaths.error == "é" * (ERROR_BYTES_MAX // 2)
    deaths.enter(taken(7))
    deaths.crashed("\ud800" + "x")
    assert deaths.error == "?x"


def test_words_of_another_death_are_not_those_of_this_one(
    tmp_path: Path, reopened: list[Deaths]
) -> None:
    die(tmp_path, 7, "ValueError")
    die(tmp_path, 8)
    deaths = Deaths(tmp_path, "counting@1")
    reopened.append(deaths)
    assert deaths.error == "the process died in this step"


def test_an_input_that_went_through_is_forgotten(tmp_path: Path, reopened: list[Deaths]) -> None:
    die(tmp_path, 7)
    die(tmp_path, 7)
    deaths = Deaths(tmp_path, "counting@1")
    deaths.forget()
    assert (deaths.seq, deaths.hopeless) == (0, False)
    deaths.close()
    deaths = Deaths(tmp_path, "counting@1")
    assert (deaths.seq, deaths.hopeless) == (0, False)
    deaths.close()
    die(tmp_path, 7)
    deaths = Deaths(tmp_path, "counting@1")
    reopened.append(deaths)
    assert (deaths.seq, deaths.hopeless) == (7, False)


def test_each_copy_and_each_version_has_a_tally_of_its_own(
    tmp_path: Path, reopened: list[Deaths]
) -> None:
    die(tmp_path, 7)
    reopened += [Deaths(tmp_path, "counting@1") for _ in range(2)]
    reopened.append(Deaths(tmp_path, "counting@2"))
    assert [(each.slot, each.seq) for each in reopened] == [(0, 7), (1, 0), (0, 0)]
    reopened.pop(0).close()
    reopened.append(Deaths(tmp_path, "counting@1"))
    assert (reopened[-1].slot, reopened[-1].seq) == (0, 7)


def test_more_copies_than_make_sense_are_refused(tmp_path: Path, reopened: list[Deaths]) -> None:
    reopened += [Deaths(tmp_path, "counting@1") for _ in range(SLOTS_MAX)]
    assert [each.slot for each in reopened] == list(range(SLOTS_MAX))
    before = lowest_free()
    with pytest.raises(
        NoSlotError, match=rf"^64 copies of counting@1 run already, state in {tmp_path}$"
    ):
        Deaths(tmp_path, "counting@1")
    assert lowest_free() == before
