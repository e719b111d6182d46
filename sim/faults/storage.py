"""What disks, file servers and input pipelines look like when they stall or run out of memory.

Lines: Linux block/blk-core.c, drivers/nvme/host/pci.c, net/sunrpc (nfs), kernel/hung_task.c,
mm/oom_kill.c; PyTorch torch/utils/data/dataloader.py for the worker that is gone.
"""

from random import Random
from typing import Final

from nemesis.schemas.components import node as node_name
from nemesis.sim.faults.course import ERR, Course
from nemesis.sim.faults.gpu import dies
from nemesis.sim.faults.planned_host import (
    CheckpointStall,
    DimmUncorrectable,
    DiskStall,
    LoaderKilled,
    LoaderStall,
    OomKill,
)
from nemesis.sim.faults.symptoms import (
    HostCounted,
    HostReads,
    RankDelayed,
    RankPrints,
    Slowed,
)
from nemesis.sim.faults.target import MS, Target
from nemesis.sim.jobs.ranks import pid_of

SIGKILL: Final = 9
SIGBUS: Final = 7
RAMP_STEPS: Final = 4
AVAILABLE_MIB: Final = 1_100_000  # of a training node with 2 TiB, as sim/telemetry reads it
LOADER_PID: Final = 52_000
"""Workers of a data loader: far from the ranks' own."""


def disk_stall(planned: DiskStall, target: Target, random: Random) -> Course:
    """Requests time out and are tried again: the loader's local cache is slow on one node."""
    course = Course(node=target.node, component=node_name(target.node))
    disk = f"storage/{target.node}/nvme1n1"
    course.because(disk, "fails requests")
    course.line(
        0,
        f"nvme nvme1: I/O {random.randrange(1024)} QID {random.randrange(1, 33)} timeout, aborting",
        4,
    )
    course.line(
        400 * MS,
        f"blk_update_request: I/O error, dev nvme1n1, sector {random.randrange(1 << 32)} op "
        "0x0:(READ) flags 0x80700 phys_seg 1 prio class 0",
    )
    course.at(0, HostReads((("io_pressure_ppm", 480_000), ("disk_wait_ppm", 970_000))))
    for channel, value in (("io_pressure_ppm", 300_000), ("disk_wait_ppm", 600_000)):
        course.reads(f"host.{channel}", shows="at_least", value=value, row=0)
    course.at(0, Slowed(planned.slowdown_per_mille))
    course.because(f"job/{target.job}", "waits for the node's ranks in each step")
    if planned.lasts_s:
        course.ends_ns = round(planned.lasts_s * 1e9)
        course.at(course.ends_ns, Slowed(0))
        course.at(course.ends_ns, HostReads(()))
    return course


def checkpoint_stall(planned: CheckpointStall, target: Target, random: Random) -> Course:
    """Rank 0 sits in write(2); all others reach the next collective, and wait there for it."""
    cluster, server = target.cluster, planned.server
    home = Target(cluster, cluster.job_nodes[0], 0)
    storage = f"storage/{server}"
    course = Course(node=home.node, component=storage)
    course.named({"storage": [storage]})
    course.because(storage, "answers no more")
    lasts_ns = round(planned.lasts_s * 1e9)
    course.at(0, RankDelayed(home.rank, lasts_ns, "save"))
    course.at(0, HostReads((("io_pressure_ppm", 800_000),)))
    course.reads("host.io_pressure_ppm", shows="at_least", value=500_000, row=0,
        component=node_name(home.node), decisive=False,
    )  # fmt: skip
    course.because(home.rank_name, "waits in its save of a checkpoint")
    # every node that has it mounted tells: what names the server and not the node
    for at, node in enumerate([home.node, *[each.node for each in target.others(random, 2)]]):
        if at and node == home.node:
            continue
        course.line(
            (2_000 + 300 * at) * MS,
            f"nfs: server {server} not responding, still trying",
            5,
            node=node,
        )
        course.line(
            lasts_ns + 40 * at * MS, f"nfs: server {server} OK", 5, node=node, decisive=False
        )
    course.at(lasts_ns, HostReads(()))
    course.ends_ns = lasts_ns
    course.stalls = True
    course.because(f"job/{target.job}", "all other ranks wait in their next collective")
    for other in target.others(random, 3):
        course.blames_not([other.rank_name])
    return course


def dimm_uncorrectable(planned: DimmUncorrectable, target: Target, random: Random) -> Course:
    """EDAC counts, then cannot correct; mm/memory-failure.c kills whoever had the page mapped."""
    node, slot = target.node, random.randrange(8)
    label = f"CPU_SrcID#0_Ha#0_Chan#{slot}_DIMM#0"
    name = f"dimm/{node}/{label}"
    course = Course(node=node, component=name)
    course.named({"dimm": [name]})
    course.because(name, "its cells fail")
    if planned.corrected_count:
        course.at(0, HostCounted((("dimm_ce_count", planned.corrected_count),)))
        course.reads(
            "host.dimm_ce_count",
            shows="rises",
            value=planned.corrected_count,
            row=0,
            decisive=False,
        )
    at_ns = 3_000 * MS
    course.onset_ns = at_ns
    course.at(at_ns, HostCounted((("dimm_ue_count", 1),)))
    course.reads("host.dimm_ue_count", shows="rises", value=1, row=0, after_ns=at_ns)
    page = random.randrange(1 << 20, 1 << 28)
    course.line(
        at_ns,
        f"EDAC MC0: 1 UE memory read error on {label} (channel:{slot} slot:0 page:{page:#x} "
        "offset:0x0 grain:32)",
    )
    course.line(
        at_ns + 5 * MS,
        f"Memory failure: {page:#x}: recovery action for dirty LRU page: Recovered",
        decisive=False,
    )
    dies(course, target, after_ns=at_ns + 10 * MS, returncode=-SIGBUS)
    course.stalls = target.rank >= 0
    course.blames_not([target.gpu_name])
    return course


def oom_kill(planned: OomKill, target: Target, random: Random) -> Course:
    """Memory shrinks to nothing; the kernel kills the process that has most of it: the rank."""
    course = Course(node=target.node, component=node_name(target.node))
    course.because(node_name(target.node), "runs out of memory")
    ramp_ns = _fills_up(course, planned.ramp_s)
    course.onset_ns = ramp_ns
    pid = pid_of(target.rank)
    name = f"process/{target.node}/{pid}"
    course.named({"process": [name]})
    _killed(course, ramp_ns, pid, "python3", random, component=name)
    course.because(name, "is killed by the kernel", ramp_ns)
    course.stalls = target.rank >= 0
    dies(course, target, after_ns=ramp_ns, returncode=-SIGKILL)
    course.at(ramp_ns, HostReads(()))
    return course


def loader_killed(planned: LoaderKilled, target: Target, random: Random) -> Course:
    """The kernel kills a worker; its rank raises seconds later; elsewhere nobody knows why."""
    course = Course(node=target.node, component=node_name(target.node))
    course.because(node_name(target.node), "runs out of memory")
    ramp_ns = _fills_up(course, planned.ramp_s)
    course.onset_ns = ramp_ns
    pid = LOADER_PID + max(0, target.rank) * 8 + random.randrange(8)
    name = f"process/{target.node}/{pid}"
    course.named({"loader": [name]})
    _killed(course, ramp_ns, pid, "pt_data_worker", random, component=name)
    course.because(name, "a worker of the data loader is killed by the kernel", ramp_ns)
    at_ns = ramp_ns + round(planned.dies_after_s * 1e9)
    if target.rank >= 0:
        # torch/csrc/DataLoader.cpp: advice about shared memory follows a bus error alone
        text = f"RuntimeError: DataLoader worker (pid {pid}) is killed by signal: Killed. "
        course.prints(at_ns, RankPrints(target.rank, "program", text))
        course.stalls = True
    dies(course, target, after_ns=at_ns, returncode=1)
    course.at(ramp_ns, HostReads(()))
    course.blames_not([target.gpu_name])
    return course


def loader_stall(planned: LoaderStall, target: Target, random: Random) -> Course:
    """Its shard lies on a slow store: each batch comes late, and the rank's own timer says so."""
    course = Course(node=target.node, component=target.rank_name)
    course.because(target.rank_name, "waits for its next batch, step after step")
    model = target.cluster.job
    step_ns = (model.step_ms + model.allreduce_ms + planned.wait_ms) * MS
    wait_ns = planned.wait_ms * MS
    for step in range(planned.steps_count):
        delay_ns = wait_ns * random.randrange(700, 1_301) // 1_000
        course.at(step * step_ns, RankDelayed(target.rank, delay_ns, "data"))
    course.ends_ns = planned.steps_count * step_ns
    for channel, decisive in (("data_wait_ns", True), ("own_ns", False)):
        course.reads(
            f"steps.{channel}",
            shows="at_least",
            value=wait_ns // 2,
            row=target.rank,
            decisive=decisive,
        )
    course.because(f"job/{target.job}", "every step takes as long as its slowest rank")
    course.blames_not([target.gpu_name])
    return course


def _fills_up(course: Course, ramp_s: float) -> int:
    """Memory of the host that is still free, less and less; how long it takes."""
    ramp_ns = round(ramp_s * 1e9)
    for step in range(1, RAMP_STEPS + 1):
        left = AVAILABLE_MIB * (RAMP_STEPS - step) // RAMP_STEPS + 2_000
        pressure = 600_000 * step // RAMP_STEPS
        readings = (("memory_available_mib", left), ("memory_pressure_ppm", pressure))
        course.at(ramp_ns * (step - 1) // RAMP_STEPS, HostReads(readings))
    course.reads("host.memory_available_mib", shows="at_most", value=AVAILABLE_MIB // 3, row=0,
        decisive=False,
    )  # fmt: skip
    return ramp_ns


def _killed(
    course: Course, at_ns: int, pid: int, process: str, random: Random, *, component: str
) -> None:
    """mm/oom_kill.c, __oom_kill_process."""
    kib = random.randrange(200_000_000, 900_000_000)
    course.at(at_ns, HostCounted((("oom_kill_count", 1),)))
    course.reads("host.oom_kill_count", shows="rises", value=1, row=0, after_ns=at_ns)
    course.line(
        at_ns,
        f"Out of memory: Killed process {pid} ({process}) total-vm:{kib * 2}kB, anon-rss:{kib}kB, "
        f"file-rss:4kB, shmem-rss:{kib // 50}kB, UID:1000 pgtables:{kib // 400}kB oom_score_adj:0",
        ERR,
        component=component,
    )
