"""A node that is really watched, in a job with others: its faults end in the right verdict."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nemesis.producers.node.kernel_tail import KernelTail
from nemesis.producers.origin import Origin
from nemesis.schemas.observed import Observation
from nemesis.schemas.registry import BY_STRUCT
from tests.attribution_log import SECOND_NS, START_NS, Log, cluster
from tests.node_trees import Tree
from tests.test_node_watch import Watched
from tests.test_slowness import NODES, Job

OFF = "NVRM: Xid (PCI:0000:19:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


class Node:
    """The node n1: a tree, its watch and its kernel's log."""

    def __init__(self, tree: Tree, log: Log) -> None:
        self.tree, self.log = tree, log
        self.watched = Watched(tree)
        tree.write("dev/kmsg", "")
        self.kernel = KernelTail(
            Origin("n1", start_ns=START_NS, boot_id="b-1"), tree.path / "dev/kmsg", None, lambda: 0
        )

    def poll(self) -> None:
        self.take(self.watched.poll())

    def print(self, text: str) -> None:
        with (self.tree.path / "dev/kmsg").open("a") as file:
            file.write(f"4,{file.tell()},1,-;{text}\n")
        self.take(self.kernel.read(self.log.now_ns))

    def take(self, facts: Sequence[Observation]) -> None:
        for fact in facts:
            said = msgspec.structs.asdict(fact) | {"at_ns": self.log.now_ns}
            for own in ("node", "start_ns", "n"):
                del said[own]
            self.log.told(BY_STRUCT[type(fact)].token, type(fact), "n1", **said)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    tree = Tree(tmp_path)
    tree.device(
        "pci0000:15/0000:19:00.0",
        "bus/pci/devices/0000:19:00.0",
        vendor="0x10de",
        **{"class": "0x030200"},
    )
    for at in range(3):
        tree.rdma(f"mlx5_{at}", f"pci0000:00/0000:4{at}:00.0")
    return tree


def test_a_gpu_that_falls_off_the_bus_is_named_by_its_kernels_line(tree: Tree) -> None:
    log = cluster("n2")
    node = Node(tree, log)
    node.poll()
    log.submitted("n1", "n2", ranks_per_node=1)
    node.print(OFF)
    log.tick(2)
    assert (log.last.fault_class, [c.id for c in log.last.culprits]) == (
        "gpu.off_bus",
        ["gpu/n1/0000:19:00.0"],
    )


def test_a_port_that_goes_down_is_named_by_its_counters(tree: Tree) -> None:
    log = cluster("n2")
    node = Node(tree, log)
    node.poll()
    log.submitted("n1", "n2", ranks_per_node=1)
    for _ in range(3):
        node.poll()
        log.tick(5)
    port = "sys/class/infiniband/mlx5_1/ports/1"
    tree.write(f"{port}/state", "1: DOWN\n")
    tree.write(f"{port}/counters/link_downed", 1)
    for _ in range(3):
        node.poll()
        log.tick(5)
    assert log.last.fault_class == "network.link"
    assert [c.id for c in log.last.culprits] == ["link/n1/mlx5_1"]


class SharedJob(Job):
    """On n1 an agent tells of steps, and a producer of the host."""

    def __init__(self, tree: Tree) -> None:
        super().__init__()
        self.tree, self.node, self.waited_ns = tree, Node(tree, self.log), 0

    def sample(self, at: int, node: str) -> dict[str, Any]:
        said = super().sample(at, node)
        if node != NODES[0]:
            return said
        for rank in (0, 1):
            self.waited_ns += SECOND_NS // 2 if self.slow else 0
            tells = {"RANK": str(rank), "NEMESIS_JOB": "llama"}
            ran_ns = self.step * SECOND_NS
            self.tree.process(70 + rank, tells, ran_ns=ran_ns, waited_ns=self.waited_ns)
        self.node.poll()
        return {name: said[name] for name in said.keys() - {"gpu", "gpu_count", "host"}}


def test_a_host_on_which_a_hog_runs_beside_the_ranks_is_why_they_are_slow(tree: Tree) -> None:
    job = SharedJob(tree)
    job.run(20)
    job.slow = {0: 400, 1: 420}
    job.run(60)
    assert job.log.last.fault_class == "straggler.host"
    assert job.named == ["node/n1"]
