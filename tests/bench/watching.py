"""What the producer of a node costs: 8 GPUs and 8 NICs, polled each 5 s, to a real server.

The command itself runs, as a service would start it. GPUs are a stand-in's and NICs are files of a
made tree, so the time that drivers take is not in it.
"""

import asyncio
import os
import sys
import tempfile
from pathlib import Path

from nemesis.streams.server import Server
from tests.bench.row import AtMost, Row
from tests.node_trees import Tree
from tests.nvml_stand_in import built_in

DEVICES = 8
DRIVERS_COUNTERS = 1000
"""Of one NIC: an mlx5 of 32 queues has about as many."""
SECONDS = 600
SETTLE_S = 20
CPU_GOAL_PERCENT = 1
MEMORY_GOAL_MIB = 100


async def measure(seconds: int = SECONDS) -> list[Row]:
    """Share of a core and peak memory over ten minutes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tree = _tree(folder / "root")
        built_in(folder)
        async with Server("bench", folder=folder / "cell", roles=["producer/n1"]) as server:
            command = [sys.executable, "-m", "nemesis.cli", "producer", "--node", "n1"]
            command += ["--root", str(tree.path), "--state", str(folder / "state")]
            command += ["--server", server.url, "--credentials", str(server.credentials_folder)]
            said = {"LD_LIBRARY_PATH": str(folder), "STAND_IN_GPUS": str(DEVICES)}
            child = await asyncio.create_subprocess_exec(*command, env=os.environ | said)
            try:
                await asyncio.sleep(SETTLE_S)
                before_s = _cpu_s(child.pid)
                await asyncio.sleep(seconds)
                spent_s, peak_mib = _cpu_s(child.pid) - before_s, _peak_mib(child.pid)
            finally:
                child.terminate()
                await child.wait()
    share = 100 * spent_s / seconds
    how = f"{DEVICES} GPUs (stand-in) and {DEVICES} NICs (made tree) each 5 s, over {seconds} s"
    return [
        Row("P6", "producer, of a core", share, "%", how, AtMost(CPU_GOAL_PERCENT)),
        Row("", "producer, peak memory", peak_mib, "MiB", how, AtMost(MEMORY_GOAL_MIB)),
    ]


def _tree(path: Path) -> Tree:
    tree = Tree(path)
    for at in range(DEVICES):
        pci = f"0000:0{at}:00.0"
        kind = {"vendor": "0x10de", "class": "0x030200"}
        tree.device(f"pci0000:00/{pci}", f"bus/pci/devices/{pci}", **kind)
        port = f"pci0000:40/0000:4{at}:00.0"
        tree.rdma(f"mlx5_{at}", port)
        (path / "sys/devices" / port / "net" / f"eth{at}").mkdir(parents=True)
        counters = "".join(f"rx{queue}_packets: {queue}\n" for queue in range(DRIVERS_COUNTERS))
        tree.write(f"ethtool/eth{at}", f"{counters}rx_prio3_pause_duration: 7\n")
    tree.write("dev/kmsg", "4,1,1,-;a line\n")
    for pid in range(100, 600):  # a busy node has so many processes
        tree.process(pid, {"RANK": str(pid - 100)} if pid < 100 + DEVICES else {"HOME": "/"})
    return tree


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _peak_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024
