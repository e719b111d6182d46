"""Promises on real flight-recorder dumps: the rank that was broken is named, and no other."""

import json
import random
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from nemesis.cli.triage import triage_paths

DATA = Path(__file__).parent.parent / "data"
TRUTH: dict[str, list[int]] = json.loads((DATA / "nvrx_fr_traces" / "truth.json").read_text())
LABELS: dict[str, Any] = json.loads((DATA / "fr_samples" / "labels.json").read_text())
HARDWARE = {"gpu", "nic", "port", "link", "switch", "nvlink", "nvswitch", "node", "dimm", "fabric"}


def blamed_ranks(folder: Path) -> set[int]:
    answer = triage_paths([folder])
    blamed = [culprit for each in (answer, *answer.others) for culprit in each.culprits]
    assert not [culprit.id for culprit in blamed if culprit.kind in HARDWARE]
    return {int(re.fullmatch(r"rank/job/(\d+)", culprit.id)[1]) for culprit in blamed}  # type: ignore[index]


@pytest.mark.parametrize("run", sorted(TRUTH))
def test_both_broken_ranks_of_a_megatron_job_are_named(run: str) -> None:
    assert blamed_ranks(DATA / "nvrx_fr_traces" / run) == set(TRUTH[run])


@pytest.mark.parametrize("run", sorted(TRUTH))
def test_dumps_that_nobody_copied_put_no_blame_on_a_healthy_rank(run: str, tmp_path: Path) -> None:
    dice = random.Random(run)
    for number, absent_count in enumerate((15, 14, 12, 8, 5, 4, 3, 3, 2, 2, 2, 2)):
        # every second rank at most: neighbours without a dump look like a node that died
        absent = dice.sample(range(0, 16, 2), min(absent_count, 8))
        absent += dice.sample(sorted(set(range(16)) - set(absent)), absent_count - len(absent))
        folder = tmp_path / str(number)
        folder.mkdir()
        for rank in set(range(16)) - set(absent):
            shutil.copy(DATA / "nvrx_fr_traces" / run / f"_dump_{rank}", folder)
        blamed = blamed_ranks(folder)
        assert blamed <= set(TRUTH[run])
        assert triage_paths([folder]).verdict != "no-fault"


@pytest.mark.parametrize("scenario", sorted(LABELS.keys() - {"straggler"}))
def test_the_broken_rank_of_a_gloo_job_is_named(scenario: str) -> None:
    assert blamed_ranks(DATA / "fr_samples" / scenario) == set(LABELS[scenario]["culprits"])


def test_a_straggler_does_not_put_blame_on_anybody_else() -> None:
    assert blamed_ranks(DATA / "fr_samples" / "straggler") <= {2}


def test_a_job_that_runs_is_no_fault() -> None:
    answer = triage_paths([DATA / "fr_samples" / "ok"])
    assert (answer.verdict, answer.fault_class) == ("no-fault", "none")


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
