"""What a real node's producer sees of a machine becomes the facts that all readers know."""

import errno
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemesis.producers.node.coverage import Seen
from nemesis.producers.node.probe import Answer, Probe, read_all
from nemesis.producers.node.root import Root, number_of
from nemesis.producers.node.watch import NodeWatch
from nemesis.producers.origin import Origin
from nemesis.schemas.channels import ABSENT
from nemesis.schemas.observed import (
    DeviceStateRead,
    InventoryReported,
    Observation,
    SampleTaken,
    SettingRead,
)
from nemesis.schemas.watched import CoverageReported
from nemesis.views.shown import blocks_of
from tests.node_trees import Tree

NOW_NS = 1_796_000_000_000_000_000
SECOND_NS = 1_000_000_000
F = TypeVar("F", bound=Observation)


class Watched:
    """A watch over a tree whose clocks the test turns."""

    def __init__(self, tree: Tree, **options: Any) -> None:
        self.now_ns = 5 * SECOND_NS
        origin = Origin("n1", start_ns=NOW_NS, boot_id="b-1")
        self.watch = NodeWatch(tree.root, origin, monotonic_ns=lambda: self.now_ns, **options)

    def poll(self, others: Sequence[Seen] = ()) -> list[Observation]:
        self.now_ns += 5 * SECOND_NS
        return self.watch.poll(NOW_NS + self.now_ns, others)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def the(kind: type[F], facts: Sequence[Observation]) -> F:
    (found,) = [fact for fact in facts if isinstance(fact, kind)]
    return found


def test_less_than_no_memory_is_no_reading(tree: Tree) -> None:
    tree.write("proc/meminfo", "MemAvailable: -20977000 kB\n")
    assert host_of(Watched(tree).poll())["memory_available_mib"] is None


def test_a_probe_that_does_not_answer_says_for_how_long() -> None:
    goes_on = threading.Event()

    def read() -> Answer:
        goes_on.wait()
        return Answer(None)

    probe = Probe("gpu/n1/0", "nvml", read)
    read_all([probe], deadline_s=1.0)
    goes_on.set()
    assert (probe.state, probe.says) == ("stalled", "no answer for more than 1 s")


def host_of(facts: Sequence[Observation]) -> dict[str, int | None]:
    return blocks_of(the(SampleTaken, facts))["host"][0]


def states_of(facts: Sequence[Observation]) -> dict[tuple[str, str], str]:
    return {
        (each.source, each.component): each.state for each in the(CoverageReported, facts).probes
    }


def test_the_first_poll_tells_what_the_node_is_made_of_and_how_it_is_set(tree: Tree) -> None:
    switch = "pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0"
    tree.rdma("mlx5_10", f"{switch}/0000:18:00.0")
    tree.rdma("mlx5_2", "pci0000:a0/0000:a0:01.0/0000:a1:00.0")
    gpu: dict[str, str | int] = {"vendor": "0x10de", "class": "0x030200", "numa_node": 1}
    tree.device(f"{switch}/0000:19:00.0", "bus/pci/devices/0000:19:00.0", **gpu)
    tree.write("sys/module/nvidia/version", "570.172.08\n")
    facts = Watched(tree).poll()
    inventory = the(InventoryReported, facts)
    assert [(nic.name, nic.pci, nic.pcie_switch) for nic in inventory.nics] == [
        ("mlx5_2", "0000:a1:00.0", ""),
        ("mlx5_10", "0000:18:00.0", "0000:16:00.0"),
    ]
    assert [(each.pci, each.numa, each.pcie_switch) for each in inventory.gpus] == [
        ("0000:19:00.0", 1, "0000:16:00.0")
    ]
    setting = the(SettingRead, facts)
    assert (setting.component, setting.name, setting.value) == (
        "node/n1",
        "nvidia_driver",
        "570.172.08",
    )


def test_pressure_is_the_share_of_the_time_between_two_polls(tree: Tree) -> None:
    watched = Watched(tree)
    assert host_of(watched.poll())["cpu_pressure_ppm"] is None
    tree.pressure(cpu_us=2_500_000, memory_us=0, io_us=9_000_000)
    host = host_of(watched.poll())
    assert (host["cpu_pressure_ppm"], host["memory_pressure_ppm"]) == (500_000, 0)
    assert host["io_pressure_ppm"] == 1_000_000  # counted by another clock: never more than all
    assert (host["memory_available_mib"], host["major_fault_count"]) == (2, 5)


def test_a_counter_that_goes_back_gives_no_share_and_counts_from_there(tree: Tree) -> None:
    tree.pressure(cpu_us=9_000_000)
    watched = Watched(tree)
    watched.poll()
    tree.pressure(cpu_us=1_000_000)
    assert host_of(watched.poll())["cpu_pressure_ppm"] is None
    tree.pressure(cpu_us=2_000_000)
    assert host_of(watched.poll())["cpu_pressure_ppm"] == 200_000


def test_raw_counters_are_handed_on_as_the_hardware_keeps_them(tree: Tree) -> None:
    tree.rdma("mlx5_0", "pci0000:00/0000:18:00.0", link_downed=3, port_xmit_data=250, np_cnp_sent=7)
    facts = Watched(tree).poll()
    nic = blocks_of(the(SampleTaken, facts))["nic"][0]
    assert (nic["port_up"], nic["rate_mbps"], nic["link_downed_count"]) == (1, 400_000, 3)
    assert nic["xmit_bytes"] == 1000  # the port counts words of four bytes
    assert nic["rx_pause_duration_us"] is None
    assert blocks_of(the(DeviceStateRead, facts))["nic"][0]["cnp_sent_count"] == 7


def test_the_rank_that_waits_most_for_a_cpu_is_what_the_host_shows(tree: Tree) -> None:
    for pid, rank in ((70, 0), (71, 1)):
        tree.process(pid, {"RANK": str(rank), "NEMESIS_JOB": "llama"})
    tree.process(72, {"RANK": "1", "NEMESIS_JOB": "llama"}, ran_ns=0)  # a data loader's worker
    tree.process(9, {"HOME": "/"})
    watched = Watched(tree)
    watched.poll()
    tree.process(70, {}, ran_ns=4_000_000_000, waited_ns=0)
    tree.process(71, {}, ran_ns=1_000_000_000, waited_ns=3_000_000_000)
    tree.process(72, {}, ran_ns=1, waited_ns=4_000_000_000)
    facts = watched.poll()
    assert host_of(facts)["run_queue_wait_ppm"] == 750_000
    assert the(SampleTaken, facts).job == "llama"


def test_a_launcher_below_srun_is_no_rank_where_its_children_are(tree: Tree) -> None:
    tree.process(50, {"SLURM_PROCID": "0", "SLURM_JOB_ID": "88"})
    tree.process(51, {"SLURM_PROCID": "0", "SLURM_JOB_ID": "88", "RANK": "4"})
    watched = Watched(tree)
    watched.poll()
    tree.process(50, {}, ran_ns=SECOND_NS, waited_ns=SECOND_NS)
    facts = watched.poll()
    assert the(SampleTaken, facts).job == "88"
    assert host_of(facts)["run_queue_wait_ppm"] is None  # rank 4 hardly ran


def test_what_is_not_there_is_said_and_not_read_as_zero(tree: Tree) -> None:
    facts = Watched(tree).poll()
    told = states_of(facts)
    assert told["nvml", "node/n1"] == "absent"
    assert told["rdma", "node/n1"] == "absent"
    assert host_of(facts)["dimm_ue_count"] is None


def test_a_nic_that_vanishes_keeps_its_row_and_is_lost(tree: Tree) -> None:
    for name in ("mlx5_0", "mlx5_1"):
        tree.rdma(name, f"pci0000:00/0000:18:0{name[-1]}.0", link_downed=1)
    watched = Watched(tree)
    watched.poll()
    (tree.path / "sys/class/infiniband/mlx5_0").rename(tree.path / "gone")
    facts = watched.poll()
    rows = blocks_of(the(SampleTaken, facts))["nic"]
    assert [row["link_downed_count"] for row in rows] == [None, 1]
    assert states_of(facts)["sysfs", "nic/n1/mlx5_0"] == "lost"


def test_a_nic_that_refuses_its_counters_is_not_asked_again(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.rdma("mlx5_0", "pci0000:00/0000:18:00.0")
    asked: list[str] = []
    whole = Root.text

    def text(root: Root, name: str) -> str:
        if "counters/" in name:
            asked.append(name)
            raise OSError(errno.EINVAL, "Invalid argument", name)
        return whole(root, name)

    monkeypatch.setattr(Root, "text", text)
    watched = Watched(tree)
    facts = [*watched.poll(), *watched.poll()]
    assert len(asked) == 1
    coverage = next(fact for fact in facts if isinstance(fact, CoverageReported))
    assert states_of([coverage])["sysfs", "nic/n1/mlx5_0"] == "denied"
    samples = [fact for fact in facts if isinstance(fact, SampleTaken)]
    assert [blocks_of(each)["nic"][0]["port_up"] for each in samples] == [1, 1]


def test_coverage_is_told_at_the_start_at_a_change_and_once_a_minute(tree: Tree) -> None:
    watched = Watched(tree)
    told = [sum(isinstance(fact, CoverageReported) for fact in watched.poll()) for _ in range(14)]
    assert told == [1, *[0] * 11, 1, 0]


@given(st.text(max_size=30))
def test_text_that_is_no_number_of_a_counter_is_absent(text: str) -> None:
    value = number_of(text)
    assert value == ABSENT or (str(value) == text.lstrip("-0") or int(text) == value)


@pytest.mark.parametrize("text", ["NaN", "", "12 34", "18446744073709551615", "0x10", "1.5", "-"])
def test_what_no_counter_says_is_absent(text: str) -> None:
    assert number_of(text) == ABSENT


@pytest.mark.parametrize(
    "cut", ["", "some avg10=0.00", "some avg10=0.00 avg60=0.00 avg300=0.00 tot"]
)
def test_a_file_that_was_cut_off_gives_no_reading(tree: Tree, cut: str) -> None:
    watched = Watched(tree)
    watched.poll()
    for name in ("proc/pressure/cpu", "proc/vmstat", "proc/meminfo", "proc/stat"):
        tree.write(name, cut)
    host = host_of(watched.poll())
    assert host["cpu_pressure_ppm"] is None
    assert host["memory_available_mib"] is None
    assert host["cpu_steal_ppm"] is None
