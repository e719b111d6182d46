"""Promises of `nemesis-check`: silent and 0 when all is well, one line when not, and cheap."""

import subprocess
import sys
from pathlib import Path

import pytest

from nemesis.producers.health import faults
from tests.conftest import ROOT
from tests.node_trees import Tree

GPU = {"vendor": "0x10de\n", "class": "0x030200\n"}
ALIVE = "\xde\x10\x30\x23"
LOST = "\xff\xff\xff\xff"
SHELLCHECK = str(Path(sys.executable).parent / "shellcheck")
SCRIPTS = sorted((ROOT / "deploy").rglob("*.sh"))


def node(folder: Path, *configs: str, driven: bool = True, ports: int = 2) -> Tree:
    """A machine whose GPUs answer so."""
    tree = Tree(folder)
    for at, config in enumerate(configs):
        pci = f"0000:0{at}:00.0"
        tree.device(f"pci0000:00/{pci}", f"bus/pci/devices/{pci}", **GPU)
        (folder / f"sys/devices/pci0000:00/{pci}/config").write_bytes(config.encode("latin-1"))
        if driven:
            tree.write(f"sys/devices/pci0000:00/{pci}/driver/module", "nvidia")
    for port in range(ports):
        tree.rdma(f"mlx5_{port}", f"pci0000:00/0000:4{port}:00.0")
    return tree


def test_a_whole_node_has_no_fault_with_or_without_expectations(tmp_path: Path) -> None:
    tree = node(tmp_path, ALIVE, ALIVE)
    assert faults(str(tree.path)) == []
    assert faults(str(tree.path), gpus=2, ports=2) == []


def test_a_gpu_that_fell_off_its_bus_is_named_without_being_expected(tmp_path: Path) -> None:
    tree = node(tmp_path, ALIVE, LOST)
    assert faults(str(tree.path)) == ["GPU 0000:01:00.0 does not answer on its bus"]


@pytest.mark.parametrize(
    ("driven", "gpus", "told"),
    [
        (True, 3, ["2 GPUs with a driver, 3 expected"]),
        (False, 2, ["0 GPUs with a driver, 2 expected"]),
        (False, None, []),
    ],
)
def test_what_is_missing_is_a_fault_only_where_it_was_expected(
    tmp_path: Path, driven: bool, gpus: int | None, told: list[str]
) -> None:
    tree = node(tmp_path, ALIVE, ALIVE, driven=driven)
    assert faults(str(tree.path), gpus=gpus) == told


def test_a_port_that_is_down_is_named(tmp_path: Path) -> None:
    tree = node(tmp_path)
    tree.write("sys/class/infiniband/mlx5_1/ports/1/state", "1: DOWN\n")
    assert faults(str(tree.path)) == []
    (told,) = faults(str(tree.path), ports=2)
    assert told == "1 RDMA ports active, 2 expected: not mlx5_1/1"


def test_a_producer_that_hangs_or_ended_is_a_fault_where_it_must_live(tmp_path: Path) -> None:
    pulse = tmp_path / "producer-n1.json"
    assert faults(str(tmp_path), alive=[str(pulse)]) == ["producer-n1 does not run"]
    pulse.write_text("{}")
    now_s = pulse.stat().st_mtime
    assert faults(str(tmp_path), alive=[str(pulse)], now_s=now_s + 9) == []
    for place in (pulse, tmp_path):
        told = faults(str(tmp_path), alive=[str(place)], now_s=now_s + 60)
        assert told == ["producer-n1 not heard of for 60 s"]
    pulse.unlink()
    nothing = faults(str(tmp_path), alive=[str(tmp_path)])
    assert nothing == [f"nothing that keeps its pulse in {tmp_path} runs"]


def checked(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "nemesis.producers.health", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_it_is_silent_when_all_is_well_and_says_one_line_when_not(tmp_path: Path) -> None:
    tree = node(tmp_path, LOST)
    broken = checked("--root", str(tree.path), "--gpus", "1")
    assert (broken.returncode, broken.stderr) == (1, "")
    assert broken.stdout == "NEMESIS: GPU 0000:00:00.0 does not answer on its bus\n"
    whole = checked("--root", str(tmp_path / "other"))
    assert (whole.returncode, whole.stdout, whole.stderr) == (0, "", "")
    assert checked("--gpus", "many").returncode == 2


def test_it_imports_nothing_but_the_standard_library() -> None:
    told = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "nemesis.producers.health"],
        capture_output=True,
        text=True,
        check=True,
    )
    imported = {line.rpartition("|")[2].strip() for line in told.stderr.splitlines()[1:]}
    ours = {name for name in imported if name.startswith("nemesis")}
    assert ours <= {"nemesis", "nemesis.producers"}
    assert imported.isdisjoint({"msgspec", "asyncio", "socket", "subprocess", "pathlib", "nats"})


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_script_that_we_hand_out_is_plain_sh_without_a_finding(script: Path) -> None:
    for command in (["sh", "-n"], [SHELLCHECK, "-x", "-P", str(ROOT)]):
        ran = subprocess.run([*command, str(script)], capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr


def test_slurms_script_gives_the_answer_of_the_check(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    check = tmp_path / "nemesis-check"
    check.write_text(f'#!/bin/sh\necho "$@" >{asked}\nexit 1\n')
    check.chmod(0o755)
    environment = {"NEMESIS_CHECK": str(check)}  # no PATH, as Slurm has it
    script = ROOT / "deploy" / "slurm" / "check.sh"
    ran = subprocess.run(["/bin/sh", str(script)], env=environment, check=False)
    assert ran.returncode == 1
    assert asked.exists()
