"""Whatever befalls real ranks, those that are left train on as if the others had just left.

Ten runs here, two hundred by `make campaign` (`--only training`): killed, stopped, both, and again
while the first is being answered; each line that a rank wrote is that of a run without faults, to
the last bit, and no process is left.

A reduction ends at one rank before it ends at another. So of a step that broke, one rank may have
its sum, apply it, and be lost before it can give its state to anybody: for those who are left the
step never was.
"""

import asyncio
from pathlib import Path

import pytest

from nemesis.schemas.decided import RecoveryDecided
from tests.training.cell import has_torch, torch_python, training_cell
from tests.training.runs import DivergedError, compared, runs, taken

pytestmark = pytest.mark.torch
STEPS = 40
FATAL_STEP = 20
OVER_S = 90.0
LOST = f"applied+SIGKILL:3@{FATAL_STEP} applied+SIGSTOP:1@{FATAL_STEP} cut:0@{FATAL_STEP}"
LOST_GIVING = (
    f"giving+SIGKILL:1@{FATAL_STEP} applied+SIGKILL:3@{FATAL_STEP}"
    f" cut:0@{FATAL_STEP} cut:2@{FATAL_STEP}"
)


@pytest.mark.timeout(900)
def test_ten_runs_with_faults_drawn_at_random(tmp_path: Path) -> None:
    if not has_torch():
        pytest.skip("no torch: pip install 'nemesis-gpu[train]'")
    assert asyncio.run(runs(tmp_path, range(10))) == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("fate", "with_all", "lines_count"),
    [
        (f"{LOST} cut:2@{FATAL_STEP}", FATAL_STEP, [STEPS, STEPS]),
        (LOST_GIVING, FATAL_STEP, [STEPS, STEPS]),
        (LOST, FATAL_STEP + 1, [STEPS - 1, STEPS]),
    ],
    ids=["only the lost", "one who is lost as it gives it", "one who is left"],
)
def test_a_step_that_only_some_applied_is_had_by_all_who_are_left_or_done_again_by_all(
    fate: str, with_all: int, lines_count: list[int], tmp_path: Path
) -> None:
    async def run() -> tuple[dict[int, list[str]], list[RecoveryDecided]]:
        environment = {"STEPS": str(STEPS), "FATE": fate}
        async with training_cell(tmp_path, torch_python(), environment=environment) as cell:
            await cell.until_over(OVER_S)
            events = [fact.data for fact in await cell.events()]
            recoveries = [each for each in events if isinstance(each, RecoveryDecided)]
            return {rank: cell.told(rank) for rank in range(4)}, recoveries

    if not has_torch():
        pytest.skip("no torch: pip install 'nemesis-gpu[train]'")
    told, recoveries = asyncio.run(run())
    names, gone = taken(told, lost=(1, 3))
    assert names == ["0,1,2,3"] * with_all + ["0,2"] * (STEPS - with_all)
    assert sorted(gone) == ([1, 3] if with_all == FATAL_STEP else [])
    assert [len(told[rank]) for rank in (0, 2)] == lines_count
    assert {each.action for each in recoveries} == {"shrink"}
    compared(told, lost=(1, 3))


def lines(*written: str) -> list[str]:
    """Of one rank: number, members and checksum of each step."""
    return [
        f"{number} {names} 0 0 {checksum}" for number, names, checksum in map(str.split, written)
    ]


ONE, TWO = "1 0,1,2 a", "2 0,1,2 b"
TWO_AGAIN, THREE = "2 0,1 c", "3 0,1 d"


def test_a_step_that_went_with_a_lost_rank_is_told_apart_from_what_all_have() -> None:
    rest = lines(ONE, TWO_AGAIN, THREE)
    names, gone = taken({0: rest, 1: rest, 2: lines(ONE, TWO)}, lost=[2])
    assert (names, gone) == (["0,1,2", "0,1", "0,1"], {2: lines(TWO)[0]})
    without = lines(ONE, THREE)
    assert taken({0: without, 1: without, 2: lines(ONE, TWO)}, lost=[2])[1] == {}


@pytest.mark.parametrize(
    ("own", "of_peer", "of_lost", "said"),
    [
        ((ONE, TWO), (ONE, TWO_AGAIN), (ONE,), "step 2 was taken by 0,1,2 and 0,1"),
        ((ONE, TWO, TWO_AGAIN), (ONE, TWO), (ONE,), "rank 0 took step 2 after step 2"),
        ((ONE, TWO_AGAIN), (ONE, TWO_AGAIN), (ONE, TWO, "3 0,1,2 d"), "step 2 was taken by"),
        ((ONE, TWO_AGAIN), (ONE, TWO_AGAIN), (ONE, "2 2 e"), "step 2 was taken by 0,1 and 2"),
        ((ONE, TWO_AGAIN), (ONE, "2 0,1 x"), (ONE,), "rank 1 has other parameters after step 2"),
        ((ONE, THREE), (ONE, THREE), (ONE,), "a step is missing"),
    ],
)
def test_two_groups_at_one_step_are_found(
    own: tuple[str, ...], of_peer: tuple[str, ...], of_lost: tuple[str, ...], said: str
) -> None:
    with pytest.raises(DivergedError, match=said):
        taken({0: lines(*own), 1: lines(*of_peer), 2: lines(*of_lost)}, lost=[2])
