"""Where ranks ran, from what a bundle holds; and what is one incident because of it."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from nemesis.cli.triage import triage_paths
from nemesis.producers.readers.bundle import read_bundle
from nemesis.producers.readers.seats import seats_of
from nemesis.producers.readers.text_hosts import hosts_of_texts
from tests.simulated_jobs import SECOND
from tests.test_sim_bundle import START, incident

CAUGHT = "[rank{rank}]: RuntimeError: something\n"


def seats(folder: Path) -> dict[int, str]:
    texts = read_bundle([folder]).texts
    return seats_of(texts, hosts_of_texts(texts, {"n1", "n2"}))


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def test_ranks_between_known_ones_of_hosts_of_one_size_ran_there(tmp_path: Path) -> None:
    for rank in (0, 1, 3, 4, 5, 6, 7):
        write(tmp_path, **{f"n{rank // 4 + 1}__rank_{rank}": CAUGHT.format(rank=rank)})
    assert seats(tmp_path) == {rank: f"n{rank // 4 + 1}" for rank in range(8)}


def test_ranks_that_go_round_the_hosts_are_not_guessed(tmp_path: Path) -> None:
    for rank in (0, 1, 3, 4, 5):
        write(tmp_path, **{f"n{rank % 2 + 1}__rank_{rank}": CAUGHT.format(rank=rank)})
    assert 2 not in seats(tmp_path)


@pytest.mark.parametrize(
    "lines",
    [
        "n1:9:9 [0] NCCL INFO comm 0x1 rank 3 nranks 8 cudaDev 3 busId 1a000 - Init COMPLETE\n"
        "n1:9:9 [0] NCCL INFO comm 0x2 rank 1 nranks 4 cudaDev 3 busId 1a000 - Init COMPLETE\n",
        "RANK=3\nLOCAL_RANK=3\nHOSTNAME=n1\n",
        "SLURMD_NODENAME=n1\nSLURM_PROCID=3\n",
    ],
)
def test_words_of_nccl_and_the_environment_place_a_rank(tmp_path: Path, lines: str) -> None:
    write(tmp_path, log=lines)
    assert seats(tmp_path) == {3: "n1"}


def test_a_rank_without_a_dump_and_the_gpu_that_fell_off_its_host_are_one_incident(
    tmp_path: Path,
) -> None:
    bundle = incident(tmp_path, lambda job: job.kill(5, -9))
    alone = triage_paths([bundle])
    assert [each.id for each in alone.culprits] == ["rank/job/5"]
    lost = "NVRM: Xid (PCI:0000:43:00): 79, GPU has fallen off the bus."
    at = f"{datetime.fromtimestamp(START // SECOND + 7, UTC):%Y-%m-%dT%H:%M:%S}+00:00"
    (bundle / "n001" / "kern.log").write_text(f"{at} n001 kernel: {lost}\n")
    answer = triage_paths([bundle])
    assert [each.id for each in answer.culprits] == ["gpu/n001/0000:43:00.0"]
    assert answer.others == []
    assert answer.victims[0] == "rank/job/0"
