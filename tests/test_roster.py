"""Promises about the processes that an agent has started, as its next life finds them."""

import subprocess
from pathlib import Path

import msgspec

from nemesis.actors.agent.leftovers import NOTE, end_leftovers, noted_folder
from nemesis.actors.agent.roster import ROSTER, Life, Roster


def test_a_process_that_runs_is_there_and_one_that_ended_is_not(tmp_path: Path) -> None:
    child = subprocess.Popen(["sleep", "60"], start_new_session=True)
    Roster(tmp_path / "ranks.json").begin(Life(rank=3, pid=child.pid, epoch=2, is_beside=True))
    [life] = Roster(tmp_path / "ranks.json").lives
    assert (life.rank, life.epoch, life.is_beside, life.is_there) == (3, 2, True, True)
    another = msgspec.structs.replace(life, started=life.started + "0")
    assert not another.is_there
    child.kill()
    child.wait()
    assert not life.is_there


def test_what_was_told_to_have_ended_is_forgotten_and_its_successor_is_not(tmp_path: Path) -> None:
    roster = Roster(tmp_path / "ranks.json")
    roster.begin(Life(rank=0, pid=1, epoch=0))
    roster.end(0, 2)
    assert [life.pid for life in Roster(tmp_path / "ranks.json").lives] == [1]
    roster.end(0, 1)
    roster.end(0, 1)
    assert Roster(tmp_path / "ranks.json").lives == ()


def test_children_of_a_process_that_ended_end_with_it(tmp_path: Path) -> None:
    command = "sleep 60 & echo $!; exit 0"
    leader = subprocess.Popen(
        ["sh", "-c", command], start_new_session=True, stdout=subprocess.PIPE, text=True
    )
    assert leader.stdout is not None
    child = int(leader.stdout.readline())
    leader.wait()
    Life(rank=0, pid=leader.pid, epoch=0).end_children()
    with leader.stdout:
        assert leader.stdout.read() == ""
    assert not Path(f"/proc/{child}/exe").exists()


def test_who_comes_after_a_run_that_was_killed_ends_its_ranks_and_nobody_else(
    tmp_path: Path,
) -> None:
    ranks = [subprocess.Popen(["sleep", "60"], start_new_session=True) for _ in range(3)]
    with noted_folder(tmp_path) as folder:
        note = (tmp_path / NOTE).read_bytes()
        roster = Roster(folder / ROSTER)
        for number, rank in enumerate(ranks):
            roster.begin(Life(rank=number, pid=rank.pid, epoch=0))
        lives = list(roster.lives)
        lives[1] = msgspec.structs.replace(lives[1], started=lives[1].started + "0")
        (folder / ROSTER).write_bytes(msgspec.json.encode(lives))
        said: list[str] = []
        end_leftovers(tmp_path, said.append)
    assert said == ["rank 0,2 of a run that was killed lived on here, and was ended"]
    assert [rank.poll() for rank in ranks[::2]] == [-9, -9]
    assert ranks[1].poll() is None  # it only has the number of one
    assert not folder.exists()
    (tmp_path / NOTE).write_bytes(note)  # the folder is gone, as after a boot
    end_leftovers(tmp_path, said.append)
    assert not (tmp_path / NOTE).exists()
    assert len(said) == 1
    ranks[1].kill()
    ranks[1].wait()
