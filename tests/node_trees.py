"""A folder that looks like a machine: the files of /proc and /sys that a producer reads."""

import os
from collections.abc import Mapping
from pathlib import Path

from nemesis.producers.node.root import Root

PORT_COUNTERS = [
    "link_downed",
    "link_error_recovery",
    "symbol_error",
    "port_rcv_errors",
    "port_xmit_data",
    "port_rcv_data",
    "port_xmit_discards",
    "port_xmit_wait",
    "port_rcv_remote_physical_errors",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
]
HW_COUNTERS = ["local_ack_timeout_err", "packet_seq_err", "out_of_sequence", "np_cnp_sent"]


class Tree:
    """A machine that can be changed between two polls."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.root = Root(path)
        self.write("proc/sys/kernel/random/boot_id", "b-1\n")
        self.pressure(cpu_us=0, memory_us=0, io_us=0)
        self.write("proc/vmstat", "oom_kill 0\npgmajfault 5\nthp_fault_fallback 2\n")
        self.write("proc/meminfo", "MemTotal: 4096 kB\nMemAvailable:    2048 kB\n")
        self.write("proc/stat", "cpu  10 0 10 80 0 0 0 0 0 0\n")

    def write(self, name: str, text: str | int) -> None:
        """Put a file there."""
        place = self.path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(str(text))

    def pressure(self, **total_us: int) -> None:
        """How long tasks waited since the boot: cpu_us, memory_us, io_us."""
        for what, total in total_us.items():
            text = f"some avg10=0.00 avg60=0.00 avg300=0.00 total={total}\nfull total=0\n"
            self.write(f"proc/pressure/{what.removesuffix('_us')}", text)

    def device(self, pci_path: str, link: str, **files: str | int) -> None:
        """A PCI device below /sys/devices/<pci_path> that /sys/<link> names."""
        place = self.path / "sys/devices" / pci_path
        place.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            self.write(f"sys/devices/{pci_path}/{name}", text)
        named = self.path / "sys" / link
        named.parent.mkdir(parents=True, exist_ok=True)
        named.symlink_to(os.path.relpath(place, named.parent))

    def rdma(self, name: str, pci_path: str, **counters: int) -> None:
        """An active RDMA device; counters that are not given are 0."""
        port = f"sys/class/infiniband/{name}/ports/1"
        self.device(pci_path, f"class/infiniband/{name}/device", numa_node=0)
        self.write(f"{port}/state", "4: ACTIVE\n")
        self.write(f"{port}/rate", "400 Gb/sec (4X NDR)\n")
        for folder, known in (("counters", PORT_COUNTERS), ("hw_counters", HW_COUNTERS)):
            for counter in known:
                self.write(f"{port}/{folder}/{counter}", f"{counters.get(counter, 0)}\n")

    def process(
        self, pid: int, said: Mapping[str, str], *, ran_ns: int = 0, waited_ns: int = 0
    ) -> None:
        """A process of one thread and what its environment says."""
        environment = "".join(f"{name}={value}\0" for name, value in said.items())
        self.write(f"proc/{pid}/environ", environment)
        self.write(f"proc/{pid}/task/{pid}/schedstat", f"{ran_ns} {waited_ns} 7\n")
