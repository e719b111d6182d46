"""Promises of `nemesis doctor`: every gap with what mends it, and none where nothing lacks."""

import asyncio
import json
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest

from nemesis.producers import node
from nemesis.producers.doctor import installation
from nemesis.producers.doctor.finding import Finding
from nemesis.producers.doctor.node import look
from nemesis.streams.server import Server
from nemesis.training.nccl_library import Library
from nemesis.training.nccl_versions import SYMBOLS, Version
from nemesis.views.exporter.catalogue import SOURCES
from tests.cells import in_cell
from tests.commands import nemesis
from tests.node_trees import Tree


def looked(tree: Tree, state: Path) -> dict[str, Finding]:
    """Findings about the node, by source."""
    found = look("n1", state, tree.path)
    return {each.name.partition(" ")[0]: each for each in found}


def machine(folder: Path, *vendors: tuple[str, str]) -> Tree:
    tree = Tree(folder)
    tree.write("dev/kmsg", "")
    tree.write("clock/adjtimex", "offset: 0\nmaxerror: 900\nstatus: 1\n")
    for at, (vendor, kind) in enumerate(vendors):
        pci = f"0000:0{at}:00.0"
        tree.device(f"pci0000:00/{pci}", f"bus/pci/devices/{pci}", vendor=vendor, **{"class": kind})
    return tree


def test_a_machine_without_a_gpu_or_rdma_lacks_nothing(tmp_path: Path) -> None:
    found = looked(machine(tmp_path / "root"), tmp_path)
    assert {name: each.state for name, each in found.items()} == {
        "proc": "ok", "ranks": "ok", "nvml": "not here", "rdma": "not here", "kmsg": "ok",
        "ras": "not here", "clock": "ok", "pressure": "ok",
    }  # fmt: skip


def test_the_exporter_knows_every_source_by_its_name(tmp_path: Path) -> None:
    tree = machine(tmp_path / "root", ("0x10de", "0x030200"), ("0x15b3", "0x020700"))
    tree.rdma("mlx5_0", "pci0000:15/0000:18:00.0")
    sources = {name for name in looked(tree, tmp_path) if name != "pressure"}
    modules = [
        import_module(each.name) for each in iter_modules(node.__path__, f"{node.__name__}.")
    ]
    named = {module.SOURCE for module in modules if hasattr(module, "SOURCE")}
    assert {"nvml", "kmsg"} <= named
    assert sources | named <= set(SOURCES)


def test_hardware_that_nobody_can_read_is_a_gap_with_what_mends_it(tmp_path: Path) -> None:
    tree = machine(tmp_path / "root", ("0x10de", "0x030200"), ("0x15b3", "0x020700"))
    (tree.path / "dev/kmsg").unlink()
    (tree.path / "proc/pressure/cpu").unlink()
    tree.write("clock/adjtimex", "offset: 0\nmaxerror: 900\nstatus: 64\n")
    found = looked(tree, tmp_path)
    for source, mend in (
        ("nvml", "modprobe nvidia"),
        ("rdma", "modprobe mlx5_ib"),
        ("kmsg", "/dev/kmsg"),
        ("clock", "chrony"),
        ("pressure", "psi=1"),
    ):
        assert found[source].state == "gap", source
        assert mend in found[source].mend


class StandIn(Library):
    """What a libnccl of some version says, without one."""

    def __init__(self, version: Version) -> None:
        self.version = version  # type: ignore[misc]
        self.symbols = frozenset(  # type: ignore[misc]
            name for names in SYMBOLS.values() for name in names
        )


@pytest.mark.parametrize(
    ("version", "state", "says"),
    [
        ((2, 27, 3), "ok", "can shrink by it"),
        ((2, 28, 5), "gap", "the process crashes"),
        ((2, 21, 5), "gap", "2.27.3 is the first that can"),
    ],
)
def test_nccl_is_held_to_the_table_of_versions(version: Version, state: str, says: str) -> None:
    found = installation.nccl("some.so", lambda path: StandIn(version))
    assert found.state == state
    assert says in found.says


def test_a_named_nccl_that_cannot_be_loaded_is_a_gap() -> None:
    assert installation.nccl("/nowhere/libnccl.so").state == "gap"


def test_a_seed_that_others_may_read_is_broken_and_named(tmp_path: Path) -> None:
    (tmp_path / "reader.nk").write_bytes(b"x")
    (tmp_path / "reader.nk").chmod(0o640)
    (found,) = installation.seeds(tmp_path)
    assert found.state == "broken"
    assert found.mend.startswith(f"chmod 600 {tmp_path / 'reader.nk'}")
    (tmp_path / "reader.nk").chmod(0o600)
    assert installation.seeds(tmp_path)[0].state == "ok"


def test_the_shipped_model_is_what_its_name_says() -> None:
    assert installation.model().state == "ok"


@pytest.mark.server
def test_it_asks_the_log_with_what_this_node_holds(tmp_path: Path) -> None:
    tree = machine(tmp_path / "root")

    async def body(server: Server) -> None:
        options = (
            "--root", str(tree.path), "--node", "n001", "--json",
            "--credentials", str(server.credentials_folder),
        )  # fmt: skip
        ran = await asyncio.to_thread(nemesis, "doctor", *options, "--server", server.url)
        document = json.loads(ran.stdout)
        (log,) = [each for each in document["findings"] if each["name"] == "log"]
        assert log["state"] == "ok"
        assert "answers producer/n001" in log["says"]
        amiss = [each for each in document["findings"] if each["state"] in ("gap", "broken")]
        assert document["amiss"] == len(amiss)
        assert ran.returncode == (1 if amiss else 0)
        assert all(each["mend"] for each in amiss)

    in_cell(tmp_path, body, roles=("node/n001", "producer/n001"))
