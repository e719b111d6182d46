"""What producers saw: the payloads of `nemesis.telemetry.>`, msgpack maps.

Each carries who saw it, when, and a number of its own, so that a reader can tell a repetition
from news: `n` counts up from 1 for each kind within one life of the producer process.
"""

from typing import Annotated, Literal

import msgspec

from nemesis.schemas.codes import LogSource, TrialOutcome

Ns = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1, description="nanoseconds")]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Index = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
IndexOrNone = Annotated[int, msgspec.Meta(ge=-1, le=2**31 - 1, description="-1: not known")]
Sha256 = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}$")]
PciAddress = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")]
"""As `components.pci_address` writes it: components are named by it."""


class Observation(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True, gc=False):
    """What every telemetry payload starts with."""

    node: str
    """Who writes; must be the node of the subject."""
    start_ns: Ns
    """When the producer process started; with kind and n it makes the fact's id."""
    n: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
    """The producer's own number, one more for each fact of this kind."""
    at_ns: Ns
    """When it was seen, wall clock of the node."""
    clock_error_ns: Ns = 0
    """How far that clock may be off, either way."""
    boot_id: str = ""


class SampleTaken(Observation, kw_only=True, frozen=True):
    """One poll of one node. A section that was not polled is absent."""

    period_ns: Ns = 0
    gpu_count: Index = 0
    gpu: bytes = b""
    """int64 matrix, gpu_count rows, columns as channels.GPU_CHANNELS."""
    nic_count: Index = 0
    nic: bytes = b""
    """int64 matrix, nic_count rows, columns as channels.NIC_CHANNELS."""
    host: bytes = b""
    """int64 row, columns as channels.HOST_CHANNELS."""
    job: str = ""
    step_count: Index = 0
    steps: bytes = b""
    """int64 matrix, one row a rank of the job on this node, columns as channels.STEP_CHANNELS."""


class DeviceStateRead(Observation, kw_only=True, frozen=True):
    """What samples leave out of a node's devices: at the start, once in a while, and at news."""

    gpu_count: Index = 0
    gpu: bytes = b""
    """int64 matrix, gpu_count rows, columns as channels.GPU_STATE_CHANNELS."""
    nic_count: Index = 0
    nic: bytes = b""
    """int64 matrix, nic_count rows, columns as channels.NIC_STATE_CHANNELS."""


class KernelLineLogged(Observation, kw_only=True, frozen=True):
    """One line of a kernel log, whole; what it means is the reader's business."""

    text: str
    """The message without its time stamp prefix."""
    priority: Index = 6
    repeat_count: Count = 1
    """How many equal lines this stands for."""
    withheld_count: Count = 0
    """Lines held back by the producer's rate limit since its last kernel fact."""


class ProcessExited(Observation, kw_only=True, frozen=True):
    """A rank's process ended on this node."""

    job: str
    rank: Index
    pid: Index = 0
    exit_code: int = 0
    signal: Index = 0
    """The signal that ended it, 0 for none."""
    fenced: bool = False
    """The agent made sure that nothing of the rank can run on."""
    epoch: Annotated[int, msgspec.Meta(ge=-1, le=2**63 - 1)] = -1
    """Membership epoch of its job that the process was in; -1: not known."""


ProcessState = Literal["running", "stopped", "traced", "uninterruptible", "zombie"]
"""stopped: by a signal. traced: a debugger or profiler holds it. uninterruptible: it waits in the
kernel, for a disk, a file server or a driver. zombie: its main thread has ended, and others of it
run on. running: anything else, said of one that was not."""


class ProcessStateSeen(Observation, kw_only=True, frozen=True):
    """The kernel has had a rank's process in one state for a while; said again when that is over.

    From /proc/PID/stat (proc_pid_stat(5)): T is stopped, t traced, D uninterruptible, Z zombie.
    """

    job: str
    rank: Index
    state: ProcessState
    since_ns: Ns = 0
    """When it was first seen so."""
    pid: Index = 0
    tracer_pid: Index = 0
    """Of one that is traced: by which process."""
    others: str = ""
    """Ranks of its job on this node that were not so at that moment, in rank_ranges form."""
    epoch: Annotated[int, msgspec.Meta(ge=-1, le=2**63 - 1)] = -1
    """Membership epoch of its job that the process was in; -1: not known."""


class GroupBroken(Observation, kw_only=True, frozen=True):
    """Ranks of this node gave up their group by themselves: a peer is gone, or does not answer.

    Said where no end of a rank and no plan told why within a moment: who is gone may be a whole
    node with its agent.
    """

    job: str
    epoch: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    """Of the membership whose group it was."""
    ranks: str = ""
    """Those that gave it up, in rank_ranges form."""
    why: str = ""
    """What the first of them saw, as its library says it."""


class RankReady(Observation, kw_only=True, frozen=True):
    """A process that was started for a rank outside the membership has loaded and waits to join."""

    job: str
    rank: Index
    pid: Index = 0


class OperationSeen(msgspec.Struct, kw_only=True, array_like=True, frozen=True, gc=False):
    """One entry of a flight recorder: a collective that a rank enqueued."""

    seq: Count
    """Number of the operation within its group: `collective_seq_id`, of a send or receive
    `p2p_seq_id`."""
    op: str
    """Its name without the backend, for example `all_reduce`."""
    input_sizes: tuple[tuple[int, ...], ...] = ()
    output_sizes: tuple[tuple[int, ...], ...] = ()
    dtypes: tuple[str, ...] = ()
    started: bool = False
    p2p: bool = False
    created_ns: Ns = 0
    peers: tuple[Index, ...] = ()
    """Of a send or receive: the ranks at the other ends, those of its whole batch."""


class GroupDigest(msgspec.Struct, kw_only=True, array_like=True, frozen=True, gc=False):
    """One process group as one rank's flight recorder shows it.

    Written as an array: a rank of a real job has 13 groups, and their field names alone would
    take half of a digest's 2 KiB.
    """

    name: str
    desc: str = ""
    ranks: str = ""
    """Members in rank_ranges form, for example `0-7,16`; empty where the dump does not say."""
    last_enqueued: int = -1
    last_started: int = -1
    last_completed: int = -1
    first_unfinished: OperationSeen | None = None
    arrivals: tuple[tuple[int, int], ...] = ()
    """(collective number, enqueue time in ns) of the last 20."""
    newest: OperationSeen | None = None
    """What the rank called last of all, in the group where it did, if nothing of that group is
    unfinished: gloo counts what failed as done, and how it was called is evidence still."""


class CollectiveRecorded(Observation, kw_only=True, frozen=True):
    """One rank's flight recorder in at most 2 KiB."""

    job: str
    rank: Index
    trace_version: str = ""
    comm_lib_version: str = ""
    entry_count: Count = 0
    groups: tuple[GroupDigest, ...] = ()
    dump_sha256: str = ""
    """The whole dump's hash, in NEMESIS_BLOBS where it was kept."""
    dump_missing: bool = False
    """The dumps of the other ranks of the same moment are there and this one is not."""


class PortSeen(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True, gc=False):
    """Counters of one switch port."""

    port: str
    up: bool = True
    peer: str = ""
    """The component on the other end, for example `nic/n012/mlx5_3`."""
    symbol_error_count: Count = 0
    crc_error_count: Count = 0
    discard_count: Count = 0
    ecn_marked_count: Count = 0
    rx_pause_us: Count = 0
    tx_pause_us: Count = 0
    link_downed_count: Count = 0
    in_discard_count: Count = 0
    rx_pause_us_by_priority: tuple[Count, ...] = ()
    """Of rx_pause_us, by priority 0 to 7; empty where the switch does not tell them apart."""
    fec_corrected_count: Count = 0
    """Code words that forward error correction put right."""
    fec_uncorrectable_count: Count = 0
    """Code words that forward error correction could not put right."""
    pfc_deadlock_count: Count = 0
    """Times that the switch's watchdog took a paused queue for a deadlock."""


class FabricSampled(Observation, kw_only=True, frozen=True):
    """One poll of one switch by its collector; `node` is the collector's own name."""

    switch: str
    ports: tuple[PortSeen, ...] = ()


Tier = Literal["", "leaf", "spine", "core"]
Transport = Literal["", "roce", "infiniband"]


class PortDescribed(msgspec.Struct, array_like=True, omit_defaults=True, frozen=True, gc=False):
    """One port of a switch and what is plugged into it."""

    port: str
    """For example `port/leaf03/17`."""
    peer: str = ""
    """The component on the other end, `nic/n012/mlx5_3` or `port/spine01/4`; "" where none is."""


class FabricInventoryReported(Observation, kw_only=True, frozen=True):
    """What a switch is made of; kept for ever, sent at each start and at each change."""

    switch: str
    tier: Tier = ""
    """leaf: NICs are plugged into it; spine: leaves are; core: spines are."""
    transport: Transport = ""
    ports: tuple[PortDescribed, ...] = ()


class GpuDescribed(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True, gc=False):
    """One GPU of a node; its place in the list is its row in samples."""

    pci: PciAddress
    index: Index = 0
    uuid: str = ""
    serial: str = ""
    model: str = ""
    numa: IndexOrNone = -1
    pcie_switch: str = ""
    """The PCIe switch above it, named as its node does; "" where it hangs at the CPU itself."""
    nvlink_domain: str = ""
    """GPUs that say the same name here reach one another over NVLink."""


class NicDescribed(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True, gc=False):
    """One NIC of a node; its place in the list is its row in samples."""

    name: str
    pci: str = ""
    switch_port: str = ""
    """The port it is plugged into, for example `port/leaf03/17`."""
    numa: IndexOrNone = -1
    pcie_switch: str = ""
    """As of a GPU: a GPU and a NIC below one PCIe switch talk without the CPU."""
    rail: IndexOrNone = -1
    """NICs of one rail, one of each node, are nearer to one another than to those of others."""


class InventoryReported(Observation, kw_only=True, frozen=True):
    """What a node is made of; kept for ever, sent at each start and at each change."""

    gpus: tuple[GpuDescribed, ...] = ()
    nics: tuple[NicDescribed, ...] = ()
    model: str = ""
    rack: str = ""
    """What shares a power feed; "" where it is not known."""
    nvswitches: tuple[PciAddress, ...] = ()
    """Of this node itself, in the order of their indices."""


class LogLineWritten(Observation, kw_only=True, frozen=True):
    """One line of a program's log that may tell of a fault; what it means is the reader's business.

    A producer forwards lines of what it knows to matter (libraries' warnings, tracebacks, states of
    a scheduler), not a program's whole output.
    """

    source: LogSource
    text: str
    """The line without prefixes of runtimes and launchers."""
    job: str = ""
    rank: Annotated[int, msgspec.Meta(ge=-1, le=2**31 - 1)] = -1
    """Of the process that wrote it, -1 where nothing says so."""
    pid: Index = 0
    repeat_count: Count = 1
    """How many equal lines this stands for."""


class CountersRead(Observation, kw_only=True, frozen=True):
    """Counters of one component as they stood at one moment, counted since nobody knows when.

    One reading is a lifetime count and proves little; what two differ by is evidence.
    """

    component: str
    """Its canonical name, for example `nic/n012/mlx5_3`."""
    counters: tuple[tuple[str, int], ...]
    """(name as its source prints it, in lower case; value)."""


class SettingRead(Observation, kw_only=True, frozen=True):
    """How one thing of a node, a device or a program was set, or which state it was in."""

    component: str
    """What it is a setting of, by its canonical name: `service/n012/nvidia-fabricmanager`."""
    name: str
    """For example `active`, `memlock_kib`, `fabric.state`; lower case."""
    value: str
    """As its source prints it."""


class StepsTimed(Observation, kw_only=True, frozen=True):
    """How long one step of a job took, of one rank or of several in the order of their numbers."""

    job: str
    step: Count
    step_ns: tuple[Count, ...]
    """One each for the ranks first_rank, first_rank + 1, ..., 0 where it is not known. Where the
    source has no unit, its numbers in units of a millisecond: only what they differ by counts."""
    data_ns: tuple[Count, ...] = ()
    """Of step_ns: how long each waited for its data."""
    first_rank: Annotated[int, msgspec.Meta(ge=-1, le=2**31 - 1)] = 0
    """-1: the whole job, or nobody says which rank it was."""


class TrialFinished(Observation, kw_only=True, frozen=True):
    """A test of nodes, links or releases was run and gave this result."""

    trial: str
    """Its name, for example `all_reduce_perf`."""
    outcome: TrialOutcome
    components: tuple[str, ...] = ()
    """What it ran on, by canonical names; the order says nothing."""
    settings: tuple[tuple[str, str], ...] = ()
    """(name, value) of what may differ from run to run, for example a release."""
    rate_kbps: Count = 0
    """Kilobytes a second moved, where the test measures that."""
    duration_ns: Ns = 0
    size_bytes: Count = 0
    says: str = ""
    """The test's own words on a failure."""


class StackSeen(Observation, kw_only=True, frozen=True):
    """Where one thread of a process was."""

    job: str = ""
    rank: Annotated[int, msgspec.Meta(ge=-1, le=2**31 - 1)] = -1
    pid: Index = 0
    thread: str = ""
    state: str = ""
    """Of the thread as its source says it, for example `idle`, `active`, `D`."""
    frames: tuple[str, ...] = ()
    """`function (file:line)`, innermost first, at most 64."""
    looked_ns: Ns = 0
    """Of a rank that stood still: between two looks, of which `state` says whether it was `still`
    in one place, `moved`, or `silent` and gave no stack. 0: nobody looked twice."""
    ran_ns: Ns = 0
    """Of that time, on a CPU; all of it where the kernel does not say."""
    process_ran_ns: Ns = 0
    """The same of all threads of its process together."""
    waits_in: str = ""
    """The kernel's function that it slept in (proc_pid_wchan(5)); empty: none, or not known."""


class SpoolAnnounced(Observation, kw_only=True, frozen=True):
    """The producer could not reach the log and will deliver late what it saw meanwhile."""

    since_ns: Ns = 0
    spooled_count: Count = 0
    dropped_count: Count = 0


class ClockTicked(Observation, kw_only=True, frozen=True):
    """A second has passed. Any number of tickers may run: readers take the latest."""
