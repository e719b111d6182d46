"""`nemesis-check`: whether this node may be given work, from what lies on it.

Why: Slurm runs it before and after each job and once in a while on every node, so it must be
cheap, silent when all is well, and must never ask Slurm, a driver or a network, each of which may
hang just when it is needed. How: a GPU that fell off its bus reads as all ones in its PCI
configuration space; ports tell their state in /sys; a producer that hangs writes its pulse no more.
What is only wrong against an expectation (how many GPUs and ports there should be) is judged only
where one is given. Only the standard library is imported: the interpreter's start is most of the
time that it takes.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence

PCI = "sys/bus/pci/devices"
RDMA = "sys/class/infiniband"
NVIDIA = "0x10de"
GPU_CLASSES = ("0x0300", "0x0302")  # VGA and 3D controllers (PCI code and ID assignment)
OFF_THE_BUS = b"\xff\xff\xff\xff"  # what a read answers that no device takes (PCI 3.0, 3.2.2.3.4)
ACTIVE = "4:"  # IB_PORT_ACTIVE, of drivers/infiniband/core/sysfs.c
STALE_S = 10.0  # as streams/pulse.py, which this does not import
NAMED_MAX = 4


def main() -> int:
    """Say nothing and end with 0, or say in one line why not, and end with 1; 2: wrong usage."""
    options = _options()
    told = faults(
        options.root, gpus=options.gpus, ports=options.ports, alive=options.alive, now_s=time.time()
    )
    if not told:
        return 0
    line = "; ".join(told)
    sys.stdout.write(f"NEMESIS: {''.join(c if c.isprintable() else '?' for c in line)}\n")
    return 1


def faults(
    root: str,
    *,
    gpus: int | None = None,
    ports: int | None = None,
    alive: Sequence[str] = (),
    now_s: float = 0.0,
) -> list[str]:
    """Why this node should get no work; nothing where all is well.

    `gpus`, `ports`: how many there must be. `alive`: pulses that must be fresh at `now_s`.
    """
    return [*_gpus(root, gpus), *_ports(root, ports), *_pulses(alive, now_s)]


def _gpus(root: str, expected: int | None) -> list[str]:
    lost: list[str] = []
    driven = 0
    for pci in _names(f"{root}/{PCI}"):
        device = f"{root}/{PCI}/{pci}"
        if _text(f"{device}/vendor") != NVIDIA or _text(f"{device}/class")[:6] not in GPU_CLASSES:
            continue
        if _head(f"{device}/config") == OFF_THE_BUS:
            lost.append(pci)
        elif os.path.exists(f"{device}/driver"):
            driven += 1
    told = [f"GPU {_some(lost)} does not answer on its bus"] if lost else []
    if expected is not None and driven + len(lost) != expected:
        told.append(f"{driven + len(lost)} GPUs with a driver, {expected} expected")
    return told


def _ports(root: str, expected: int | None) -> list[str]:
    if expected is None:
        return []
    down: list[str] = []
    active = 0
    for device in _names(f"{root}/{RDMA}"):
        for port in _names(f"{root}/{RDMA}/{device}/ports"):
            if _text(f"{root}/{RDMA}/{device}/ports/{port}/state").startswith(ACTIVE):
                active += 1
            else:
                down.append(f"{device}/{port}")
    if active >= expected:
        return []
    named = f": not {_some(down)}" if down else ""
    return [f"{active} RDMA ports active, {expected} expected{named}"]


def _pulses(paths: Sequence[str], now_s: float) -> list[str]:
    told: list[str] = []
    for place in paths:
        files = _files(place)
        told += [] if files else [f"nothing that keeps its pulse in {place} runs"]
        for path in files:
            name = os.path.basename(path).removesuffix(".json")
            try:
                age_s = now_s - os.stat(path).st_mtime
            except OSError:
                told.append(f"{name} does not run")
                continue
            if age_s > STALE_S:
                told.append(f"{name} not heard of for {age_s:.0f} s")
    return told


def _files(place: str) -> list[str]:
    """A pulse, or all of a folder."""
    if not os.path.isdir(place):
        return [place]
    return [f"{place}/{name}" for name in _names(place) if name.endswith(".json")]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="nemesis-check", description="Silent and 0 where this node may be given work."
    )
    parser.add_argument("--gpus", type=int, metavar="N", help="how many GPUs there must be")
    parser.add_argument("--ports", type=int, metavar="N", help="active RDMA ports, at least")
    parser.add_argument(
        "--alive", action="append", default=[], metavar="PULSE",
        help="file that a part writes anew each second, or a folder of them; repeatable",
    )  # fmt: skip
    parser.add_argument("--root", default="", help="a copy of a machine's /sys to look at instead")
    return parser.parse_args()


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _text(path: str) -> str:
    return _head(path, 64).decode(errors="replace").strip()


def _head(path: str, count: int = 4) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(count)
    except OSError:
        return b""


def _some(names: list[str]) -> str:
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


if __name__ == "__main__":
    sys.exit(main())
