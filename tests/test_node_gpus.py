"""GPUs through the real binding of NVML, over a library of our own that behaves as drivers do."""

import ctypes
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nemesis.processors.attribution.log_messages import parse_line
from nemesis.producers.node.coverage import Seen
from nemesis.schemas.observed import DeviceStateRead, InventoryReported, LogLineWritten, SampleTaken
from nemesis.schemas.watched import CoverageReported
from nemesis.views.shown import blocks_of
from tests.node_trees import Tree
from tests.nvml_stand_in import built_in
from tests.test_node_watch import Watched

pytestmark = pytest.mark.skipif(
    not shutil.which("cc"), reason="no C compiler for the stand-in of NVML"
)


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The stand-in, under the name by which the binding will ask the loader for the library."""
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    return ctypes.CDLL(str(built_in(tmp_path_factory.mktemp("nvml"))))


Say = Callable[[int, str, int], None]


@pytest.fixture
def say(library: ctypes.CDLL) -> Iterator[Say]:
    """Sets what a GPU of two answers."""
    library.stand_in_reset(2)

    def set_to(gpu: int, what: str, value: int) -> None:
        library.stand_in_set(gpu, what.encode(), ctypes.c_ulonglong(value))

    yield set_to
    library.stand_in_reset(0)  # the binding keeps the library: other tests are to see no driver


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    tree = Tree(tmp_path)
    for bus in range(2):
        pci = f"0000:0{bus}:00.0"
        tree.device(
            f"pci0000:00/{pci}", f"bus/pci/devices/{pci}", vendor="0x10de", **{"class": "0x030200"}
        )
    return tree


def rows_of(facts: list[Any], block: str = "gpu") -> list[dict[str, int | None]]:
    (sample,) = [fact for fact in facts if isinstance(fact, SampleTaken)]
    return blocks_of(sample)[block]


def told_of(facts: list[Any], gpu: int) -> tuple[str, str]:
    """(state, words) of a GPU in the coverage."""
    (coverage,) = [fact for fact in facts if isinstance(fact, CoverageReported)]
    (seen,) = [each for each in coverage.probes if each.component == f"gpu/n1/0000:0{gpu}:00.0"]
    return seen.state, seen.says


def test_a_gpus_answers_fill_its_row(say: Say, tree: Tree) -> None:
    say(1, "dram_ce", 40)
    say(1, "sram_ue", 2)
    say(1, "temp", 71)
    facts = Watched(tree).poll()
    first, second = rows_of(facts)
    assert (first["dram_ce_count"], second["dram_ce_count"]) == (0, 40)
    assert (second["sram_ue_count"], second["temp_c"], second["memory_temp_c"]) == (2, 71, 61)
    assert (second["remapped_rows_count"], second["banks_spare_low_count"]) == (3, 4)
    assert (second["clock_event_reasons"], second["utilization_ppm"]) == (4, 970_000)
    (inventory,) = [fact for fact in facts if isinstance(fact, InventoryReported)]
    assert [(each.pci, each.uuid, each.serial) for each in inventory.gpus] == [
        ("0000:00:00.0", "GPU-0", ""),
        ("0000:01:00.0", "GPU-1", ""),
    ]
    assert told_of(facts, 1) == ("read", "")
    state = blocks_of(next(fact for fact in facts if isinstance(fact, DeviceStateRead)))
    row = state["gpu"][1]
    assert (row["sw_thermal_us"], row["nvlink_up_count"], row["memory_used_mib"]) == (5, 18, 5120)
    assert (row["recovery_action"], row["nvlink_ecc_count"]) == (None, None)  # unsupported; NaN


def test_a_lost_gpu_keeps_its_row_and_its_neighbour_is_read(say: Say, tree: Tree) -> None:
    watched = Watched(tree)
    watched.poll()
    say(0, "lost", 1)
    facts = watched.poll()
    first, second = rows_of(facts)
    assert set(first.values()) == {None}
    assert second["power_mw"] == 700_000
    state, says = told_of(facts, 0)
    assert (state, says.split(":")[0]) == ("lost", "GPU is lost")
    say(0, "lost", 0)
    assert rows_of(watched.poll())[0]["power_mw"] == 700_000


def test_a_gpu_that_was_lost_before_the_producer_began_is_missed(say: Say, tree: Tree) -> None:
    say(0, "lost", 1)
    facts = Watched(tree).poll()
    assert [row["power_mw"] for row in rows_of(facts)] == [None, 700_000]
    assert told_of(facts, 0) == ("lost", "the driver does not have it")


def test_a_gpu_that_wants_a_reset_is_broken_and_not_read(say: Say, tree: Tree) -> None:
    say(1, "reset", 1)
    facts = Watched(tree).poll()
    assert told_of(facts, 1)[0] == "broken"
    assert set(rows_of(facts)[1].values()) == {None}


def test_a_call_that_hangs_stalls_one_gpu_and_is_not_repeated(
    say: Say, tree: Tree, library: ctypes.CDLL
) -> None:
    watched = Watched(tree, deadline_s=0.2)
    watched.poll()
    say(0, "hang_ms", 600)
    threads = threading.active_count()
    facts = watched.poll()
    assert told_of(facts, 0)[0] == "stalled"
    calls = library.stand_in_calls()
    facts = watched.poll()
    assert [row["power_mw"] for row in rows_of(facts)] == [None, 700_000]
    assert threading.active_count() == threads
    assert library.stand_in_calls() > calls
    say(0, "hang_ms", 0)
    while rows_of(watched.poll())[0]["power_mw"] is None:
        time.sleep(0.05)


def test_what_a_card_or_driver_does_not_know_is_absent_and_no_fault(say: Say, tree: Tree) -> None:
    say(0, "no_ecc", 1)
    say(1, "other_structs", 1)
    say(1, "sram_ue", 6)
    watched = Watched(tree)
    facts = watched.poll()
    first, second = rows_of(facts)
    assert (first["dram_ce_count"], first["sram_ue_count"], first["power_mw"]) == (
        None,
        None,
        700_000,
    )
    assert second["sram_ue_count"] == 6  # by the older function
    assert told_of(facts, 0)[0] == told_of(facts, 1)[0] == "read"


def test_what_may_not_be_asked_is_said(say: Say, tree: Tree) -> None:
    say(0, "forbidden", 1)
    facts = Watched(tree).poll()
    words = "nvmlDeviceGetEnforcedPowerLimit: Insufficient Permissions"
    assert told_of(facts, 0) == ("denied", words)
    assert rows_of(facts)[0]["power_mw"] == 700_000


def test_an_xid_is_told_by_event_where_the_kernels_log_is_shut(say: Say, tree: Tree) -> None:
    shut = Seen("node/n1", "kmsg", "denied", "no CAP_SYSLOG")
    watched = Watched(tree)
    assert not lines_of(watched.poll(others=[shut]))
    say(1, "xid", 79)
    while not (lines := lines_of(watched.poll(others=[shut]))):
        time.sleep(0.01)
    (line,) = lines
    message = parse_line(line.source, line.text)
    assert message is not None
    assert (message.kind, message.number, message.device) == ("xid_told", 79, "0000:01:00.0")


def lines_of(facts: list[Any]) -> list[LogLineWritten]:
    return [fact for fact in facts if isinstance(fact, LogLineWritten)]
