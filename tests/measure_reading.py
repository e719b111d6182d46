"""A kernel log of a gigabyte, read by `nemesis triage`: `python -m tests.measure_reading [GB]`.

Two million and more lines of a node's ordinary chatter, with one Xid 79 in the middle. Printed are
the seconds of one core and the most memory that the command took; the time of the wall is the
machine's business.
"""

import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

CHATTER: Final = (
    "audit: type=1400 apparmor=ALLOWED operation=open profile=snap.node-exporter pid={n}",
    "docker0: port {n}(veth{n:07x}) entered forwarding state",
    "systemd-journald[812]: Data hash table of /run/log/journal/system.journal has a fill level",
    "usb 1-14: new high-speed USB device number {n} using xhci_hcd",
    "nvidia-uvm: Loaded the UVM driver, major device number {n}.",
    "IPv6: ADDRCONF(NETDEV_CHANGE): veth{n:07x}: link becomes ready",
    "perf: interrupt took too long ({n} > 2500), lowering kernel.perf_event_max_sample_rate",
)
FAULT: Final = (
    "NVRM: Xid (PCI:0000:4c:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
)
BLOCK_LINES: Final = 10_000


def write_log(path: Path, size_bytes: int) -> None:
    """So many bytes of a kernel's log with uptimes."""
    line = written = 0
    told = False
    with path.open("w") as stream:
        while written < size_bytes:
            block = []
            for _ in range(BLOCK_LINES):
                line += 1
                says = CHATTER[line % len(CHATTER)].format(n=line % 9973)
                block.append(f"[{line / 100:12.6f}] {says}\n")
            if not told and written > size_bytes // 2:
                block.append(f"[{line / 100:12.6f}] {FAULT}\n")
                told = True
            written += stream.write("".join(block))


def main() -> int:
    """Write, read, tell."""
    size_bytes = int(float(sys.argv[1] if len(sys.argv) > 1 else 1) * 1_000_000_000)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "dmesg.txt")
        write_log(log, size_bytes)
        command = [sys.executable, "-m", "nemesis.cli", "triage", "--json", str(log)]
        answer = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    named = '"gpu/localhost/0000:4c:00.0"' in answer
    print(
        f"{size_bytes / 1e9:.1f} GB: {used.ru_utime + used.ru_stime:.1f} s of one core,"
        f" {used.ru_maxrss // 1024} MiB, {'named' if named else 'MISSED'}"
    )
    return 0 if named else 1


if __name__ == "__main__":
    sys.exit(main())
