"""Promises on real flight-recorder dumps: the rank that was broken is named, and no other."""

import itertools
import json
import random
import shutil
from pathlib import Path

import pytest

from nemesis.cli.triage import answer_to, triage_paths
from nemesis.producers.readers.bundle import Bundle, read_bundle
from tests.trace_scores import DATA, is_right, named_ranks, runs

TRUTH: dict[str, list[int]] = json.loads((DATA / "nvrx_fr_traces" / "truth.json").read_text())
RUNS = {truth.name: truth for truth in runs()}


def blamed_ranks(folder: Path) -> frozenset[int]:
    return named_ranks(triage_paths([folder]))


@pytest.mark.parametrize("name", sorted(RUNS))
def test_of_every_public_run_all_that_was_broken_is_named_and_nothing_else(name: str) -> None:
    truth = RUNS[name]
    answer = triage_paths([truth.folder])
    assert named_ranks(answer) == truth.ranks
    assert is_right(truth, answer)


def test_the_sets_hold_a_dead_rank_an_inversion_and_a_straggler() -> None:
    assert len(RUNS) == 13
    assert {"dead", "order_inversion", "straggler", "gpu_error_1st"} <= RUNS.keys()
    assert RUNS["order_inversion"].cycle == {2, 3}


@pytest.mark.parametrize("run", sorted(TRUTH))
def test_two_dumps_that_nobody_copied_put_no_blame_on_a_healthy_rank(run: str) -> None:
    whole = read_bundle([DATA / "nvrx_fr_traces" / run])
    for absent in itertools.combinations(range(16), 2):
        there = [each for each in whole.dumps if each.number not in absent]
        answer = answer_to(Bundle([], there, [], [], whole.paths))
        assert named_ranks(answer) <= set(TRUTH[run]), absent


@pytest.mark.parametrize("run", sorted(TRUTH))
def test_a_handful_of_dumps_is_never_no_fault(run: str, tmp_path: Path) -> None:
    dice = random.Random(run)
    for kept_count in (1, 2, 4, 8, 12):
        folder = tmp_path / str(kept_count)
        folder.mkdir()
        for rank in dice.sample(range(16), kept_count):
            shutil.copy(DATA / "nvrx_fr_traces" / run / f"_dump_{rank}", folder)
        assert blamed_ranks(folder) <= set(TRUTH[run])
        assert triage_paths([folder]).verdict != "no-fault"


def test_a_gpu_that_fell_off_the_bus_explains_the_ranks_that_stall_on_its_node(
    tmp_path: Path,
) -> None:
    for rank in range(16):
        node = tmp_path / f"n{rank // 4}"
        node.mkdir(exist_ok=True)
        shutil.copy(DATA / "nvrx_fr_traces" / "gpu_error_1st" / f"_dump_{rank}", node)
    for number in range(4):
        line = "mlx5_core 0000:63:00.1: Port module event: module 1, Cable unplugged"
        (tmp_path / f"n{number}" / "dmesg").write_text(f"[ 5000.000000] {line}\n")
    fallen = "NVRM: Xid (PCI:0000:91:00): 79, pid=1, name=x, GPU has fallen off the bus."
    with (tmp_path / "n3" / "dmesg").open("a") as log:
        log.write(f"[ 5001.000000] {fallen}\n")
    answer = triage_paths([tmp_path])
    assert [each.id for each in answer.culprits] == ["gpu/n3/0000:91:00.0"]
    assert {"rank/job/12", "rank/job/14"} <= set(answer.victims)
    assert answer.others == []


def test_runs_in_folders_side_by_side_are_judged_each_for_itself() -> None:
    answer = triage_paths([DATA / "nvrx_fr_traces"])
    blamed = {culprit.id for each in (answer, *answer.others) for culprit in each.culprits}
    assert blamed == {f"rank/job-{run}/{rank}" for run, ranks in TRUTH.items() for rank in ranks}
