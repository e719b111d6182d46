"""Promises of what makes one block of a step's samples."""

import numpy as np

from nemesis.processors.ecc_model.channels import WIDTH
from nemesis.processors.ecc_model.polls import Columns
from nemesis.schemas.channels import ABSENT, GPU_CHANNELS
from nemesis.schemas.facts import Fact
from nemesis.schemas.observed import SampleTaken


def sample(node: str, *first: int, width: int = len(GPU_CHANNELS), late: bool = False) -> Fact:
    """A GPU for each of these counts of corrected errors."""
    block = np.zeros((len(first), width), "<i8")
    block[:, 0] = first
    data = SampleTaken(
        node=node, start_ns=1, n=1, at_ns=0, gpu_count=len(first), gpu=block.tobytes()
    )
    return Fact(seq=1, kind="sample", key=node, id="", at_ns=0, log_time_ns=0, late=late, data=data)


def two_nodes() -> Columns:
    columns = Columns()
    columns.place("n1", 2)
    columns.place("n2", 1)
    return columns


def test_each_gpu_has_its_column_and_who_was_not_polled_is_absent() -> None:
    columns = two_nodes()
    assert (columns.of("n1").tolist(), columns.of("n2").tolist()) == ([0, 1], [2])
    block, polled = columns.gathered([sample("n1", 5, 6)])
    assert block[:, 0].tolist() == [5, 6, ABSENT]
    assert polled.tolist() == [True, True, False]
    assert block.shape == (3, WIDTH)


def test_of_several_samples_of_a_node_the_latest_counts() -> None:
    block, _ = two_nodes().gathered([sample("n2", 1), sample("n1", 2, 3), sample("n2", 9)])
    assert block[:, 0].tolist() == [2, 3, 9]


def test_what_is_late_narrow_unknown_or_of_another_width_is_no_poll() -> None:
    for each in (
        sample("n2", 1, late=True),
        sample("n2", 1, width=WIDTH - 1),
        sample("n3", 1),
        sample("n2", 1, 2),
    ):
        _, polled = two_nodes().gathered([each])
        assert not polled.any()


def test_a_node_with_another_number_of_gpus_gets_another_place() -> None:
    columns = two_nodes()
    columns.place("n1", 2)
    assert columns.count == 3
    columns.place("n1", 4)
    assert columns.of("n1").tolist() == [3, 4, 5, 6]
    block, polled = columns.gathered([sample("n1", 1, 2, 3, 4)])
    assert polled.tolist() == [False] * 3 + [True] * 4
    assert block[3:, 0].tolist() == [1, 2, 3, 4]
    assert columns.of("n9").tolist() == []
