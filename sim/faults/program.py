"""What faults of the program and its software look like: words, exits, a recorder that differs.

Lines: tracebacks of PyTorch (torch.OutOfMemoryError), the driver's MMU fault of Xid 31
(docs.nvidia.com/deploy/xid-errors), NCCL's version banner and its mismatch warning
(NVIDIA/nccl, src/init.cc, src/bootstrap.cc).
"""

from random import Random
from typing import Final

from nemesis.schemas.components import node as node_name
from nemesis.schemas.components import rank as rank_name
from nemesis.sim.faults.course import Course
from nemesis.sim.faults.gpu import SIGABRT, dies, stops
from nemesis.sim.faults.planned_program import (
    ContextError,
    Desync,
    IllegalAccess,
    NanLoss,
    NcclVersion,
    RankExit,
    RankOom,
)
from nemesis.sim.faults.symptoms import ContextLost, RankDies, RankPrints, RankReads, RankStrays
from nemesis.sim.faults.target import MS, Target
from nemesis.sim.jobs.layout import Kind, Layout

SIGKILL: Final = 9
_SHOWN: Final[dict[str, tuple[str, ...]]] = {
    "operation": ("op",),
    "order": ("op",),
    "size": ("input_sizes",),
    "absent": ("last_enqueued",),
}
_SHOWN_INVERTED: Final = ("last_enqueued", "started")
"""Who waits in the second group has not called the first, or has called and not begun it."""
PEERS_MAX: Final = 8


def rank_exit(planned: RankExit, target: Target, random: Random) -> Course:
    """A process is killed, aborts or returns 1; no log says why."""
    course = Course(node=target.node, component=target.rank_name, stalls=True)
    dies(course, target, after_ns=0, returncode=random.choice((-SIGKILL, -SIGABRT, 1)))
    course.because(f"job/{target.job}", "all its ranks wait")
    return course


def desync(planned: Desync, target: Target, random: Random) -> Course:
    """A branch that one rank alone took: its next collective is another one, or never comes."""
    course = Course(node=target.node, component=target.rank_name, stalls=True)
    does = {
        "operation": "calls another operation than its peers",
        "size": "calls its collective with another size",
        "order": "calls the collectives in another order",
        "absent": "never calls the next collective",
    }[planned.differs_in]
    shown = _SHOWN[planned.differs_in]
    peers = _model_peers(target) if planned.differs_in == "order" else []
    course.because(f"program/{target.job}", "takes a branch on one rank alone")
    course.because(target.rank_name, does)
    if peers:
        course.because(target.rank_name, "waits in one group for those who wait for it in another")
        shown = _SHOWN_INVERTED
    course.because(f"job/{target.job}", "all its ranks wait")
    course.at(0, RankStrays(target.rank, planned.differs_in))
    for sign in shown:
        course.shows("collective", sign, shows="differs", row=target.rank)
    course.blames_not([target.gpu_name, node_name(target.node)])
    course.blames_not(peers, "waits in one group while it is waited for in another")
    return course


def _model_peers(target: Target) -> list[str]:
    """The first few ranks that share several groups with it; none where there is one group."""
    job = target.cluster.job_on(target.node)
    if job is None:
        return []
    world = target.cluster.world_of(job)
    layout = Layout(world, tp=job.tp, cp=job.cp, pp=job.pp, ep=job.ep)
    kinds: tuple[Kind, ...] = ("tp", "ep", "mp", "dp_cp")
    kind: Kind | None = next((each for each in kinds if layout.size(each) > 1), None)
    if layout.is_plain or kind is None:
        return []
    ranks = layout.group_of(target.rank, kind).ranks
    return [rank_name(job.name, rank) for rank in ranks if rank != target.rank][:PEERS_MAX]


def illegal_access(planned: IllegalAccess, target: Target, random: Random) -> Course:
    """The same kernel faults on several GPUs of several nodes at once: nobody's hardware."""
    program = f"program/{target.job}"
    course = Course(node=target.node, component=program, stalls=True)
    course.because(program, "a kernel reads beyond its memory")
    struck = [target, *target.others(random, planned.gpus_count - 1)]
    course.named({"ranks": [each.rank_name for each in struck]})
    for at, each in enumerate(struck):
        at_ns = at * random.randrange(20, 120) * MS
        process = each.process.replace("python3", "pt_main_thread")
        address = random.randrange(1 << 40, 1 << 46)
        course.line(
            at_ns,
            f"NVRM: Xid (PCI:{each.slot}): 31, {process}, Ch {random.randrange(64):08x}, intr "
            f"00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_{random.randrange(8)} faulted @ "
            f"0x{address >> 32:x}_{address & 0xFFFFFFFF:08x}. Fault is of type FAULT_PDE "
            "ACCESS_TYPE_VIRT_READ",
            node=each.node,
            component=each.gpu_name,
        )
        course.line(
            at_ns + 2 * MS,
            f"NVRM: Xid (PCI:{each.slot}): 43, {process}, Ch {random.randrange(64):08x}",
            node=each.node,
            component=each.gpu_name,
            decisive=False,
        )
        if each.rank >= 0:
            text = "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"
            line = RankPrints(each.rank, "program", text)
            course.prints(at_ns + 100 * MS, line, node=each.node, decisive=True)
            course.at(at_ns + 200 * MS, RankDies(each.rank, -SIGABRT), node=each.node)
        course.blames_not([each.gpu_name, node_name(each.node)])
    course.lost_ranks = tuple(sorted(each.rank for each in struck if each.rank >= 0))
    course.because(f"job/{target.job}", "all its ranks wait")
    return course


def context_error(planned: ContextError, target: Target, random: Random) -> Course:
    """An assertion in a kernel: the context is lost, and whoever cleans up waits for it for ever.

    What its watchdog sees stands still, and its host enqueues nothing more (NVIDIA/
    nvidia-resiliency-ext, tests/attribution/unit/fr_traces, the runs with a GPU error). Xid 43 is
    the driver's word for a fault that software induced; the GPU stays healthy
    (docs.nvidia.com/deploy/xid-errors).
    """
    course = Course(node=target.node, component=target.rank_name, stalls=True)
    course.because(f"program/{target.job}", "an assertion in one of its kernels fails on one rank")
    course.because(target.rank_name, "its CUDA context is in error, and its program hangs in it")
    process = target.process.replace("python3", "pt_main_thread")
    course.line(
        0,
        f"NVRM: Xid (PCI:{target.slot}): 43, {process}, Ch {random.randrange(64):08x}",
        component=target.gpu_name,
        decisive=False,
    )
    course.at(0, ContextLost(target.rank))
    course.shows("collective", "last_enqueued", shows="differs", row=target.rank)
    if planned.prints:
        text = "torch.AcceleratorError: CUDA error: device-side assert triggered"
        course.prints(100 * MS, RankPrints(target.rank, "program", text), decisive=True)
    course.lost_ranks = (target.rank,)
    course.because(f"job/{target.job}", "all its ranks wait")
    course.blames_not([target.gpu_name, node_name(target.node)])
    return course


def rank_oom(planned: RankOom, target: Target, random: Random) -> Course:
    """An uneven batch: one rank's allocation fails, its traceback says so, exit status 1."""
    course = Course(node=target.node, component=target.rank_name, stalls=True)
    course.because(f"program/{target.job}", "gives one rank more than its memory holds")
    wanted = random.randrange(200, 9_000) / 100
    free = random.randrange(5, 190) / 100
    text = (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {wanted:.2f} GiB. GPU "
        f"{target.index} has a total capacity of 79.11 GiB of which {free:.2f} GiB is free."
    )
    course.prints(0, RankPrints(target.rank, "program", text), decisive=True)
    dies(course, target, after_ns=300 * MS, returncode=1)
    course.because(f"job/{target.job}", "all its ranks wait")
    course.blames_not([target.gpu_name, node_name(target.node)])
    return course


def nan_loss(planned: NanLoss, target: Target, random: Random) -> Course:
    """Its own gradients are not finite before the all-reduce; after it the loss is NaN everywhere.

    What looks at gradients before the reduction names the rank (Megatron-LM,
    --check-for-nan-in-loss-and-grad).
    """
    course = Course(node=target.node, component=target.rank_name)
    course.because(target.rank_name, "its gradients are no longer finite")
    count = random.randrange(1, 5_000)
    course.at(0, RankReads(target.rank, (("nonfinite_count", count),)))
    course.reads("steps.nonfinite_count", shows="at_least", value=1, row=target.rank)
    loud = target.others(random, 3)
    for each in loud:
        text = "loss is nan, skipping the update"
        course.prints(1_500 * MS, RankPrints(each.rank, "program", text), node=each.node)
        course.blames_not([each.rank_name])
    course.because(
        f"job/{target.job}", "the loss of all ranks is NaN after the reduction", 1_500 * MS
    )
    return course


def nccl_version(planned: NcclVersion, target: Target, random: Random) -> Course:
    """An old image on one node: its ranks speak another protocol, the first collective hangs."""
    software = f"software/{target.node}/nccl"
    course = Course(node=target.node, component=software)
    course.because(software, f"is release {planned.version}, unlike on all other nodes")
    course.sets(0, node_name(target.node), "nccl", planned.version)
    places = [
        Target(target.cluster, target.node, at) for at in range(target.cluster.ranks_per_node)
    ]
    for at, each in enumerate(places if target.rank >= 0 else []):
        text = f"NCCL version {planned.version}+cuda12.4"
        course.prints(10 * MS, RankPrints(each.rank, "nccl", text), decisive=at == 0)
        stops(course, each, after_ns=0)
    course.lost_ranks = target.cluster.ranks_of(target.node)
    for other in target.others(random, 2):
        text = (
            f"Mismatched NCCL version detected : rank {target.rank} is {planned.version}, expected "
            "2.27.3"
        )
        course.prints(
            900 * MS, RankPrints(other.rank, "nccl", text), node=other.node, decisive=True
        )
        course.blames_not([other.rank_name])
    return course
