"""NCCL changes members in the documented order or not at all: by table, stand-in and library."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemesis.schemas.layout import Degrees, Kind
from nemesis.training import gpu_check
from nemesis.training.nccl_lanes import nccl_here
from nemesis.training.nccl_library import Library, NcclError
from nemesis.training.nccl_shrink import RebuildError, shrunk
from nemesis.training.nccl_versions import (
    FIRST,
    HAZARDS,
    SYMBOLS,
    Version,
    calls_of,
    version_of,
    way_of,
)
from tests.nccl_stand_in import Ranks, StandIn, WrongCallError

ALL = frozenset(name for names in SYMBOLS.values() for name in names)
DEADLINE_S, SHORT_S = 60.0, 0.3
"""The short one is for what never ends."""
KINDS: tuple[Kind, ...] = ("world", "dp", "tp")
DEGREES, WORLD = Degrees(tp=2), 6
LOST = frozenset({2, 3})
LEFT = (0, 1, 4, 5)
GOOD: list[Version] = [(2, 27, 3), (2, 28, 9), (2, 29, 2), (2, 31, 0), (2, 32, 3)]
BAD: list[Version] = [(2, 26, 5), (2, 27, 2), (2, 28, 3), (2, 28, 7), (2, 28, 8)]


def symbols_of(version: Version) -> frozenset[str]:
    return frozenset(name for call in calls_of(version) for name in SYMBOLS[call])


class Votes:
    """What survivors tell each other after a step, as a store would carry it."""

    def __init__(self) -> None:
        self.said: dict[str, dict[int, bool]] = {}
        self.changed = threading.Condition()

    def of(self, rank: int) -> Callable[[str, bool], bool]:
        def all_say(step: str, said: bool) -> bool:
            with self.changed:
                heard = self.said.setdefault(step, {})
                heard[rank] = said
                self.changed.notify_all()
                assert self.changed.wait_for(lambda: len(heard) == len(LEFT), timeout=30)
                return all(heard.values())

        return all_say


def recovered(
    ranks: Ranks, ill: frozenset[int] = frozenset(), deadline_s: float = DEADLINE_S
) -> dict[int, object]:
    """What each survivor has afterwards: its communicators, or why it makes all anew."""
    ended: dict[int, object] = {}
    votes = Votes()

    def run(rank: int) -> None:
        parts: dict[str, StandIn] = {}
        for kind in KINDS:
            members = DEGREES.groups_of(rank, WORLD)[kind]
            parts[kind] = StandIn(ranks, f"{kind}{members[0]}", members, rank)
        try:
            ended[rank] = shrunk(
                parts,
                LOST,
                version=ranks.version,
                symbols=symbols_of(ranks.version),
                is_well=lambda: rank not in ill,
                all_say=votes.of(rank),
                deadline_s=deadline_s,
            )
        except RebuildError as error:
            ended[rank] = str(error)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in LEFT]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    ranks.over.set()
    with ranks.changed:
        ranks.changed.notify_all()
    return ended


@pytest.mark.parametrize("version", GOOD)
def test_survivors_shrink_what_lost_a_member_and_abort_every_old_communicator(
    version: Version,
) -> None:
    ranks = Ranks(version, fenced=LOST)
    ended = recovered(ranks)
    assert ranks.wrong == []
    for rank in LEFT:
        made = ended[rank]
        assert isinstance(made, dict)
        assert {kind: each and each.members for kind, each in made.items()} == {
            "world": LEFT,
            "dp": tuple(each for each in LEFT if each % 2 == rank % 2),
            "tp": None,
        }
        own = [(name.rstrip("01245"), call) for who, name, call in ranks.calls if who == rank]
        revokes = [(kind, "revoke") for kind in sorted(KINDS)] if version >= (2, 28, 7) else []
        shrinks = [("dp", "shrink"), ("world", "shrink")]
        assert own == [*revokes, *shrinks, *((kind, "abort") for kind in sorted(KINDS))]
    assert all(each.is_aborted != each.name.endswith("'") for each in ranks.made)


@pytest.mark.parametrize("version", BAD)
def test_a_version_that_cannot_or_would_crash_is_never_asked(version: Version) -> None:
    ranks = Ranks(version, fenced=LOST)
    ended = recovered(ranks)
    assert {call for _, _, call in ranks.calls} == {"abort"}
    assert ranks.wrong == []
    assert all(str(why).startswith("NCCL 2.") for why in ended.values())
    assert all(each.is_aborted for each in ranks.made)


@pytest.mark.parametrize("dies", ["before", "in the call"])
def test_where_one_gpu_does_not_answer_all_make_their_groups_anew(dies: str) -> None:
    ranks = Ranks((2, 30, 7), fenced=LOST)
    if dies == "in the call":
        ranks.dead_gpus.add(4)
    ended = recovered(ranks, ill=frozenset({4} if dies == "before" else ()), deadline_s=SHORT_S)
    assert {type(each) for each in ended.values()} == {str}
    assert all(each.is_aborted for each in ranks.made)
    assert ranks.wrong == []
    shrinks = [who for who, _, call in ranks.calls if call == "shrink"]
    assert bool(shrinks) == (dies == "in the call")


def test_an_excluded_rank_that_was_not_fenced_ends_in_groups_made_anew() -> None:
    ranks = Ranks((2, 30, 7), fenced={2})
    ended = recovered(ranks, deadline_s=SHORT_S)
    assert {type(each) for each in ended.values()} == {str}
    assert set(ranks.wrong) == {"an excluded rank still sends"}


def test_the_stand_in_fails_on_what_nccl_does_not_allow() -> None:
    ranks = Ranks((2, 28, 5), fenced=LOST)
    one = StandIn(ranks, "world", (0, 1, 2), 0)
    for wrong in (lambda: one.revoke(1.0), lambda: one.shrink([1])):
        with pytest.raises(WrongCallError):
            wrong()
    one.abort()
    with pytest.raises(WrongCallError, match="after abort"):
        one.abort()


VERSIONS = st.tuples(st.just(2), st.integers(4, 40), st.integers(0, 12))


@given(version=VERSIONS, missing=st.sets(st.sampled_from(sorted(ALL)), max_size=2))
def test_nccl_is_used_only_where_the_call_is_there_and_no_crash_is_known(
    version: Version, missing: set[str]
) -> None:
    for change in ("shrink", "grow"):
        way = way_of(version, change, ALL - missing)
        crashes = change == "shrink" and (2, 28, 3) <= version <= (2, 28, 8)
        can = version >= FIRST[change] and not missing.intersection(SYMBOLS[change])
        assert (way.by == "nccl") == (can and not crashes)
        assert bool(way.why) == (way.by == "rebuild")


def test_every_hazard_has_a_range_a_source_and_an_answer() -> None:
    for each in HAZARDS:
        assert each.first <= each.last
        assert each.source
        assert each.is_in(each.first)
        assert each.is_in(each.last)
    assert [version_of(code) for code in (23203, 22807, 2408)] == [
        (2, 32, 3),
        (2, 28, 7),
        (2, 4, 8),
    ]


def library() -> Library:
    """The real one: named in NEMESIS_NCCL, else where the system has it."""
    try:
        return Library(os.environ.get("NEMESIS_NCCL", "libnccl.so.2"))
    except OSError:
        pytest.skip("no libnccl: NEMESIS_NCCL names one, as the wheel nvidia-nccl-cu12 has it")


def test_the_real_library_has_the_calls_that_the_table_says_its_version_has() -> None:
    real = library()
    for call, names in SYMBOLS.items():
        assert (real.version >= FIRST[call]) == real.symbols.issuperset(names), call


def test_the_hook_asks_the_library_of_that_name_or_makes_all_groups_anew() -> None:
    try:
        wanted = Library()
    except OSError:
        nccl = nccl_here()
        assert way_of(nccl.version, "shrink", nccl.symbols).by == "rebuild"
    else:
        assert nccl_here() == (wanted.version, wanted.symbols)


def test_without_a_gpu_the_real_library_refuses_and_says_why() -> None:
    if any(Path("/dev").glob("nvidia[0-9]*")):
        pytest.skip("a GPU is here: scripts/gpu-check runs the real thing")
    with pytest.raises(NcclError, match=r"ncclCommInitAll: .*cuda"):
        library().all_on([0])


def test_gpu_check_says_in_one_line_that_no_gpu_is_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_check, "DEVICES", tmp_path)
    assert gpu_check.main() == gpu_check.NOTHING_HERE == 3
    assert capsys.readouterr().out == "gpu-check: no GPU here, nothing was checked\n"


def test_the_docs_tell_of_every_version_and_hazard() -> None:
    told = (Path(__file__).parents[1] / "docs" / "training.md").read_text()
    for version in [FIRST[call] for call in ("split", "shrink", "revoke", "grow")]:
        assert ".".join(map(str, version)) in told
    for each in HAZARDS:
        for version in (each.first, each.last):
            assert version in {(0, 0, 0), (9_999, 0, 0)} or ".".join(map(str, version)) in told
