"""Promises of `nemesis topology`, of the published shapes, and of the page that describes them."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nemesis.sim.topology.cluster_file import (
    BadClusterError,
    cluster_of,
    load_cluster,
    published,
    shapes,
)
from tests.clusters import JOB
from tests.commands import Ran, nemesis

PAGE = (Path(__file__).parent.parent / "docs" / "clusters.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def answer(*arguments: str) -> dict[str, Any]:
    ran = nemesis("topology", *arguments, "--json")
    assert ran.returncode == 0, ran.stderr
    document: dict[str, Any] = msgspec.json.decode(ran.stdout)
    return document


@pytest.fixture
def pod(tmp_path: Path) -> str:
    path = tmp_path / "pod.toml"
    path.write_text(blocks("toml")[0])
    return str(path)


def test_the_file_of_the_page_is_the_cluster_that_the_page_describes(pod: str) -> None:
    said = answer("show", "--cluster", pod)
    assert (said["gpus"], said["links"], said["spares"]) == (512, 768, 4)
    assert said["switches"] == {"leaf": 16, "spine": 8, "core": 0}
    assert said["jobs"] == ["llama", "mixtral"]
    text = nemesis("topology", "show", "--cluster", pod).stdout
    assert "pod: 64 nodes x 8 GPUs = 512 GPUs" in text
    assert "leaf    16 of 48 ports" in text


def test_the_example_of_the_page_runs_as_it_is_printed() -> None:
    (block,) = blocks("python")
    exec(compile(block, "docs/clusters.md", "exec"), {})  # noqa: S102
    assert block.count("assert ") == 5


def test_a_way_goes_around_what_is_said_to_have_failed(pod: str) -> None:
    ends = ("nic/n001/mlx5_0", "nic/n033/mlx5_0")
    way = answer("path", *ends, "--cluster", pod)["path"]
    spine = next(part for part in way if part.startswith("switch/spine"))
    around = answer("path", *ends, "--cluster", pod, "--failed", spine)["path"]
    assert spine not in around
    assert (around[0], around[-1]) == ends
    text = nemesis("topology", "path", *ends, "--cluster", pod).stdout
    assert text.strip() == " > ".join(way)
    cut_off = nemesis("topology", "path", *ends, "--cluster", pod, "--failed", "port/leaf01/1")
    assert (cut_off.returncode, cut_off.stdout.strip()) == (3, "no way is left")


def test_a_cut_is_told_in_full_to_programs_and_in_short_to_people() -> None:
    found = answer("cut", "switch/leaf03")
    assert len(found["nics"]) == len(found["links"]) == 32
    assert found["nics"] == sorted(found["nics"])
    assert not found["nodes"]
    lines = nemesis("topology", "cut", "switch/leaf03").stdout.splitlines()
    assert len(lines) == 4
    assert lines[2].startswith("nics       32  nic/n009/mlx5_0")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("cut", "switch/leaf99"), "the cluster has no 'switch/leaf99'"),
        (("path", "nic/n001/mlx5_0", "nic/n001/x"), "the cluster has no NIC 'nic/n001/x'"),
        (("show", "--cluster", "no-such"), "`nemesis topology list` names the shapes"),
    ],
)
def test_what_is_not_there_is_said_in_one_line(arguments: tuple[str, ...], says: str) -> None:
    ran: Ran = nemesis("topology", *arguments)
    assert ran.returncode == 2
    assert says in ran.stderr
    assert len(ran.stderr.splitlines()) == 1


def test_shapes_are_as_large_as_they_were_published() -> None:
    ran = nemesis("topology", "list", "--json")
    told = {row["name"]: row for row in msgspec.json.decode(ran.stdout)}
    assert set(told) == set(shapes())
    assert {name: row["gpus"] for name, row in told.items()} == {
        "arnold-ii": 3_504,
        "arnold-iii": 8_152,
        "coreweave-rno2a": 512,
        "gb200-33-racks": 2_376,
        "kueue-tas": 5_120,
        "lingjun-2023": 6_776,
        "llama3-24k": 24_576,
        "megascale-12k": 12_288,
        "superpod-h100": 1_016,
        "topograph-irregular": 1_028,
        "topograph-nvl72": 288,
    }
    assert len(nemesis("topology", "list").stdout.splitlines()) == len(told)


def test_irregular_shapes_are_irregular_as_they_were_published() -> None:
    lingjun = published("lingjun-2023").shape
    assert (len(lingjun.group_sizes), min(lingjun.group_sizes), max(lingjun.group_sizes)) == (
        119, 2, 8,
    )  # fmt: skip
    first, second, third = lingjun.pod_sizes
    assert [
        sum(lingjun.group_sizes[:first]),
        sum(lingjun.group_sizes[first : first + second]),
        sum(lingjun.group_sizes[-third:]),
    ] == [362, 306, 179]
    coreweave = published("coreweave-rno2a").shape.group_sizes
    assert sorted(coreweave) == [1, 1, 2, 2, 2, 3, 3, 3, 5, 5, 6, 6, 6, 8, 11]
    assert (sum(coreweave[:6]), sum(coreweave[6:])) == (41, 23)
    llama = published("llama3-24k")
    spine = llama.wiring.counts[0]
    up = len(llama.wiring.uplinks(spine))
    assert (len(llama.wiring.ports(spine)) - up, up) == (192, 28)  # 1:7 above the pod
    racks = published("topograph-irregular")
    assert len(racks.racks) == 29
    assert len(racks.nodes_of_nvlink("rack14")) == 5


def test_a_regular_shape_grows_and_a_file_changes_what_it_names() -> None:
    assert len(published("llama3-24k", nodes=12_500).leaves) == 6_250
    document = {
        "cluster": {"shape": "superpod-h100", "name": "own", "sample_period_ms": 1000},
        "node": {"nodes_per_rack": 8},
        "fabric": {"transport": "roce"},
        "job": JOB,
    }
    own = cluster_of(document)
    assert (own.cluster.name, own.cluster.nodes, own.fabric.transport) == ("own", 127, "roce")
    assert (len(own.racks), own.fabric.spines) == (16, 16)
    with pytest.raises(BadClusterError, match=r"cluster.shape: 'x': expected arnold-ii, "):
        cluster_of({**document, "cluster": {"shape": "x"}})


def test_a_file_of_the_name_of_a_shape_is_read_as_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pod: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("kueue-tas").write_text(Path(pod).read_text())
    assert load_cluster(Path("kueue-tas")).cluster.name == "pod"
