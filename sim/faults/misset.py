"""What it looks like when a host is set otherwise than its peers: a setting, ranks that wait.

Lines: NVIDIA/open-gpu-kernel-modules (API mismatch of library and module), NVIDIA Fabric Manager
User Guide (CUDA_ERROR_SYSTEM_NOT_READY, "system not yet initialized", without it), NCCL's own words
for a memlock limit (ibv_reg_mr, "Cannot allocate memory"), its guide to troubleshooting for shared
memory (containers start with 64 MiB of it) and for ACS.
"""

from random import Random
from typing import Final, NamedTuple

from nemesis.schemas.codes import LogSource
from nemesis.schemas.components import node as node_name
from nemesis.sim.faults.course import Course
from nemesis.sim.faults.gpu import stops
from nemesis.sim.faults.planned_host import HostMisset
from nemesis.sim.faults.symptoms import RankPrints
from nemesis.sim.faults.target import MS, Target


class _Setting(NamedTuple):
    value: str
    component: str
    """What it is a setting of, on a node `{node}`."""
    source: LogSource
    says: str
    """A rank that starts there."""


SETTINGS: Final = {
    "nvidia_driver": _Setting(
        "550.90.07",
        "software/{node}/nvidia-driver",
        "program",
        "RuntimeError: CUDA initialization: CUDA driver initialization failed, driver and library "
        "version mismatch",
    ),
    "fabric_manager": _Setting(
        "inactive",
        "service/{node}/nvidia-fabricmanager",
        "program",
        "RuntimeError: CUDA initialization: Unexpected error from cudaGetDeviceCount(). Error 802: "
        "system not yet initialized",
    ),
    "memlock_kib": _Setting(
        "64",
        "config/{node}/memlock",
        "nccl",
        "NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory",
    ),
    "shm_mib": _Setting(
        "64",
        "config/{node}/shm",
        "nccl",
        "NCCL WARN Error while creating shared memory segment /dev/shm/nccl-x8wI3T (size 9637888)",
    ),
    "pcie_acs": _Setting(
        "on",
        "config/{node}/acs",
        "nccl",
        "NCCL WARN P2P is disabled between connected GPUs: ACS redirects it",
    ),
}


def host_misset(planned: HostMisset, target: Target, random: Random) -> Course:
    """The node differs in one setting; its ranks hang or fail at their start, all others wait."""
    wrong = SETTINGS[planned.setting]
    component = wrong.component.format(node=target.node)
    course = Course(node=target.node, component=node_name(target.node))
    course.named({"misset": [component]})
    course.because(component, f"is {wrong.value}, unlike on all other nodes")
    course.sets(0, node_name(target.node), planned.setting, wrong.value)
    if planned.setting == "nvidia_driver":
        course.line(
            0,
            "NVRM: API mismatch: the client has the version 570.172.08, but this kernel module has "
            f"the version {wrong.value}.",
        )
    for index in range(target.cluster.ranks_per_node):
        each = Target(target.cluster, target.node, index)
        if each.rank >= 0:
            line = RankPrints(each.rank, wrong.source, wrong.says)
            course.prints(20 * MS, line, decisive=index == 0)
            stops(course, each, after_ns=0)
    course.lost_ranks = target.cluster.ranks_of(target.node)
    course.blames_not(target.gpu_names())
    return course
