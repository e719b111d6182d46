"""A folder as people hand one in after a job died: logs of its ranks, of schedulers, of kernels.

Nearly all of it is harmless: steps, NCCL_DEBUG lines, data that were fetched, chatter of nodes. On
`node-2` a GPU fell off its bus; its rank ends with a traceback, all others with the watchdog's
words. Each kind of file has the prefixes that its source puts before a line.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

HOSTS: Final = 4
GPUS: Final = 8
LOST_HOST: Final = 2
LOST_RANK: Final = 21
CULPRIT: Final = "gpu/node-2/0000:4c:00.0"
BLOCK_LINES: Final = 2000
BEGAN: Final = datetime(2026, 11, 3, 12, 0, 0, tzinfo=UTC)
NCCL: Final = (
    "NCCL INFO Channel {n:02}/0 : {rank}[{gpu}] -> {n}[{gpu}] via P2P/CUMEM/read",
    "NCCL INFO Channel {n:02}/0 : {rank}[{gpu}] -> {n}[{gpu}] [send] via NET/IB/{gpu}/GDRDMA",
    "NCCL INFO Trees [0] {n}/-1/-1->{rank}->{gpu} [1] {gpu}/-1/-1->{rank}->{n}",
    "NCCL INFO comm 0x{hex} rank {rank} nRanks 32 nNodes 4 localRanks 8 localRank {gpu} MNNVL 0",
    "NCCL INFO AllReduce: opCount {n:x} sendbuff 0x{hex} recvbuff 0x{hex} count {n} op 0",
    "NCCL INFO threadThresholds 8/8/64 | 256/8/64 | 512 | 512",
)
TRAINER: Final = (
    "INFO trainer: step {n}/500000 loss {loss} lr 3.0e-04 grad_norm {loss} tokens/s {n}",
    "INFO dataloader: shard s3://corpus/v{gpu}/part-{n:05}.tar has 131072 samples, queue 12",
    "DEBUG fetcher: GET {uuid} 200 in the cache, etag {hex}",
    "INFO memory: allocated {loss} GiB reserved 61.{gpu} GiB of 79.1 GiB, {n} segments",
    "/opt/conda/lib/python3.11/site-packages/torch/utils/checkpoint.py:{n}: UserWarning: None of"
    " the inputs have requires_grad=True. Gradients will be None",
    "INFO scheduler: bucket {n} of 4096 in flight on stream {gpu}",
)
KERNEL: Final = (
    "audit: type=1400 apparmor=ALLOWED operation=open profile=snap.node-exporter pid={n}",
    "docker0: port {n}(veth{hex}) entered forwarding state",
    "usb 1-14: new high-speed USB device number {n} using xhci_hcd",
    "nvidia-uvm: Loaded the UVM driver, major device number {n}.",
    "IPv6: ADDRCONF(NETDEV_CHANGE): veth{hex}: link becomes ready",
    "perf: interrupt took too long ({n} > 2500), lowering kernel.perf_event_max_sample_rate",
)
SERVICES: Final = (
    "systemd[1]: Started Session {n} of User root.",
    "kubelet[2211]: I1103 12:01:02.{n:06} 2211 kubelet.go:2451] SyncLoop DELETE source api pods"
    " trainer-{hex}",
    "containerd[1807]: level=info msg=StopContainer container={hex}{hex}",
    "sshd[{n}]: Accepted publickey for ops from 10.0.0.{gpu} port {n} ssh2: ED25519 SHA256:{hex}",
    "kernel: docker0: port {n}(veth{hex}) entered forwarding state",
)
XID: Final = (
    "NVRM: Xid (PCI:0000:4c:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
)
TRACEBACK: Final = (
    "Traceback (most recent call last):",
    '  File "/opt/job/train.py", line 411, in <module>',
    "    loss.backward()",
    "RuntimeError: CUDA error: unspecified launch failure",
)
WATCHDOG: Final = (
    "[rank{rank}]:[E1103 18:00:00.000000000 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught"
    " collective operation timeout: WorkNCCL(SeqNum=4711, OpType=ALLREDUCE, NumelIn=1048576,"
    " NumelOut=1048576, Timeout(ms)=600000) ran for 600014 milliseconds before timing out.",
)
Prefix = Callable[[datetime, str], str]
"""What stands before a line of this time and these words."""


def write_mixed_folder(folder: Path, size_bytes: int) -> None:
    """About so many bytes: a log of each rank, five of kernels or of nodes, a folder a host."""
    ranks = HOSTS * GPUS
    each_bytes = size_bytes // (ranks + 2 * HOSTS)
    for rank in range(ranks):
        place = folder / f"node-{rank // GPUS}"
        place.mkdir(parents=True, exist_ok=True)
        words = (*NCCL, *TRAINER, *NCCL) if rank % 4 == 0 else TRAINER
        end = TRACEBACK if rank == LOST_RANK else WATCHDOG
        kind = _Kind(rank, words, end, _of_rank(rank))
        _write(place / f"rank_{rank}.log", each_bytes, kind)
    for host in range(HOSTS):
        place = folder / f"node-{host}"
        said = [XID] if host == LOST_HOST else []
        told = [f"kernel: {each}" for each in said]
        _write(place / "dmesg.txt", each_bytes, _Kind(host, KERNEL, said, _uptime))
        _write(place / "journal.txt", each_bytes, _Kind(host, SERVICES, told, _journal(host)))


def _of_rank(rank: int) -> Prefix:
    """What stands before each line of a rank, by how its log was collected."""
    host = rank // GPUS
    nccl = f"node-{host}:{41000 + rank}:{42000 + rank} [{rank % GPUS}] "

    def prefix(at: datetime, says: str) -> str:
        match rank % 4:
            case 0:
                return nccl if says.startswith("NCCL") else ""
            case 1:
                return f"{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03} "
            case 2:
                return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond * 1000:09}Z stdout F "
            case _:
                return f"[pod/trainer-{host}-x7k2p/trainer] [rank{rank}]: "

    return prefix


def _uptime(at: datetime, _says: str) -> str:
    return f"[{(at - BEGAN).total_seconds() + 4000:12.6f}] "


def _journal(host: int) -> Prefix:
    return lambda at, says: f"{at:%Y-%m-%dT%H:%M:%S}+0000 node-{host} "


class _Kind(NamedTuple):
    """What a file holds: lines of these kinds in turn, at last the end of it."""

    number: int
    lines: Sequence[str]
    end: Sequence[str]
    prefix: Prefix


def _write(path: Path, size_bytes: int, kind: _Kind) -> None:
    """A line a few hundredths of a second after the other."""
    random = Random(f"{path.name} {kind.number}")
    at, written = BEGAN, 0
    with path.open("w") as stream:
        while written < size_bytes:
            block: list[str] = []
            for line in range(BLOCK_LINES):
                at += timedelta(microseconds=random.randrange(40_000))
                says = _filled(kind.lines[line % len(kind.lines)], kind.number, random)
                block.append(kind.prefix(at, says) + says + "\n")
            written += stream.write("".join(block))
        at += timedelta(minutes=10)
        for each in kind.end:
            says = each.format(rank=kind.number) if each in WATCHDOG else each
            stream.write(kind.prefix(at, says) + says + "\n")


def _filled(kind: str, number: int, random: Random) -> str:
    wide = random.getrandbits(128)
    name = f"{wide:032x}"
    return kind.format(
        n=wide % 9973,
        rank=number,
        gpu=number % GPUS,
        loss=f"{wide % 90_000 / 10_000:.4f}",
        hex=name[:12],
        uuid=f"{name[:8]}-{name[8:12]}-{name[12:16]}-{name[16:20]}-{name[20:]}",
    )
