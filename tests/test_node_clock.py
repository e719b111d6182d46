"""What the kernel knows of its clock: the offset, how far off it may be, whether it is kept."""

from pathlib import Path

import pytest

from nemesis.producers.node.clock import Clock
from nemesis.producers.node.probe import Probe, read_all
from nemesis.producers.node.root import Root
from nemesis.schemas.observed import SampleTaken
from nemesis.schemas.watched import CoverageReported
from tests.node_trees import Tree
from tests.test_node_watch import Watched, host_of, states_of, the

NANO, PLL, UNSYNC = 0x2000, 0x0001, 0x0040


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def kernel_says(tree: Tree, *, offset: int, maxerror_us: int, status: int) -> None:
    tree.write("clock/adjtimex", f"offset: {offset}\nmaxerror: {maxerror_us}\nstatus: {status}\n")


@pytest.mark.parametrize(
    ("status", "offset_ns"), [(NANO | PLL, -2500), (PLL, -2_500_000), (NANO, None)]
)
def test_the_offset_is_told_where_the_kernel_steers_by_it_and_the_bound_by_every_fact(
    tree: Tree, status: int, offset_ns: int | None
) -> None:
    kernel_says(tree, offset=-2500, maxerror_us=700, status=status)
    facts = Watched(tree).poll()
    assert host_of(facts)["clock_offset_ns"] == offset_ns
    assert the(SampleTaken, facts).clock_error_ns == 700_000
    assert states_of(facts)["clock", "node/n1"] == "read"


def test_a_clock_that_nobody_keeps_is_said_and_its_facts_state_no_bound(tree: Tree) -> None:
    kernel_says(tree, offset=0, maxerror_us=16_000_000, status=UNSYNC)
    facts = Watched(tree).poll()
    assert host_of(facts)["clock_offset_ns"] is None
    assert the(SampleTaken, facts).clock_error_ns == 0
    (clock,) = [e for e in the(CoverageReported, facts).probes if e.source == "clock"]
    assert (clock.state, "chronyd" in clock.says) == ("absent", True)


def test_the_kernel_of_this_machine_answers() -> None:
    probe = Probe("node/n1", "clock", Clock(Root()).read)
    read_all([probe])
    assert probe.state in ("read", "absent", "denied")
    assert probe.value is None or 0 <= probe.value.error_ns < 10**12
