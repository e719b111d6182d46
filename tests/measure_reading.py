"""What reading costs `nemesis triage`: a long kernel log, and a folder of everything.

`python -m tests.measure_reading [GB]` writes a kernel log: two million and more lines of a node's
ordinary chatter, with one Xid 79 in the middle. `python -m tests.measure_reading mixed [MB]` writes
the folder of a dead job (mixed_folder.py). Printed are the seconds of one core and the most memory
that the command took; the time of the wall is the machine's business.
"""

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from nemesis.producers.readers.line_gate import LineGate
from nemesis.producers.readers.notes import Reader, TextLine, text_line
from nemesis.producers.readers.text_file import READERS
from tests.mixed_folder import CULPRIT, write_mixed_folder

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
SAMPLE_LINES: Final = 500  # of each file, for what each reader costs


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


def triaged(path: Path) -> tuple[str, float, int]:
    """(its answer in JSON, seconds of one core, MiB at most) of `nemesis triage`."""
    command = [sys.executable, "-m", "nemesis.cli", "triage", "--json", str(path)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return answer, used.ru_utime + used.ru_stime, used.ru_maxrss // 1024


def kernel_log(folder: Path, size_bytes: int) -> int:
    """One long kernel log."""
    log = folder / "dmesg.txt"
    write_log(log, size_bytes)
    answer, used_s, used_mib = triaged(log)
    named = '"gpu/localhost/0000:4c:00.0"' in answer
    told = "named" if named else "MISSED"
    print(f"{size_bytes / 1e9:.1f} GB: {used_s:.1f} s of one core, {used_mib} MiB, {told}")
    return 0 if named else 1


def mixed_folder(folder: Path, size_bytes: int) -> int:
    """Logs of ranks, schedulers and kernels: in sum, and what a line costs each reader alone."""
    write_mixed_folder(folder, size_bytes)
    files = sorted(each for each in folder.rglob("*") if each.is_file())
    count = sum(each.read_bytes().count(b"\n") for each in files)
    answer, used_s, used_mib = triaged(folder)
    named = f'"{CULPRIT}"' in answer
    print(f"{size_bytes / 1e6:.0f} MB, {count} lines: {used_s:.1f} s of one core, {used_mib} MiB,")
    print(f"{used_s / count * 1e6:.1f} us a line, {'named' if named else 'MISSED'}")
    lines = [line for each in files for line in each.read_text().splitlines()[:SAMPLE_LINES]]
    began_s = time.process_time()
    parsed = [text_line(number, line) for number, line in enumerate(lines, 1)]
    costs = {"prefixes": time.process_time() - began_s}
    costs |= {reader.__name__: seconds_of(reader, parsed) for reader in READERS}
    for name, cost_s in sorted(costs.items(), key=lambda item: -item[1]):
        print(f"{cost_s / len(lines) * 1e6:8.2f} us a line  {name}")
    return 0 if named else 1


def seconds_of(make: type[Reader], lines: Sequence[TextLine]) -> float:
    """Of one core, for one reader behind a gate of its own."""
    gate, reader = LineGate([(make.starts, make.holds)]), make()
    began_s = time.process_time()
    for line in lines:
        if reader.busy or gate.readers_of(line.text):
            list(reader.take(line))
    return time.process_time() - began_s


def main() -> int:
    """Write, read, tell."""
    words = sys.argv[1:]
    mixed = words[:1] == ["mixed"]
    size = float((words[mixed:] or ["500" if mixed else "1"])[0])
    with tempfile.TemporaryDirectory() as folder:
        if mixed:
            return mixed_folder(Path(folder), int(size * 1_000_000))
        return kernel_log(Path(folder), int(size * 1_000_000_000))


if __name__ == "__main__":
    sys.exit(main())
