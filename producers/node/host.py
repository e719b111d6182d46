"""How the kernel of a host is doing: pressure, memory, disks, stolen time.

Why: a rank that is slow because its host is busy prints nothing, and its GPU is innocent. How: the
kernel counts the time that tasks waited; two readings give the share of the time between them.
Sources: Linux Documentation/accounting/psi.rst, filesystems/proc.rst, admin-guide/iostats.rst,
admin-guide/mm/transhuge.rst, driver-api/edac.rst.
"""

from collections.abc import Mapping
from typing import Final

from nemesis.producers.node.rates import Rates, share_ppm
from nemesis.producers.node.root import Root
from nemesis.schemas.channels import ABSENT

ORIGINS: Final[Mapping[str, str]] = {
    "cpu_pressure_ppm": "/proc/pressure/cpu, `some total`",
    "memory_pressure_ppm": "/proc/pressure/memory, `some total`",
    "io_pressure_ppm": "/proc/pressure/io, `some total`",
    "memory_available_mib": "/proc/meminfo, `MemAvailable`",
    "dimm_ce_count": "/sys/devices/system/edac/mc/mc*/ce_count, summed",
    "dimm_ue_count": "/sys/devices/system/edac/mc/mc*/ue_count, summed",
    "cpu_steal_ppm": "/proc/stat, `cpu`, column steal",
    "numa_remote_ppm": "/proc/vmstat, numa_hint_faults that are not numa_hint_faults_local",
    "thp_fault_fallback_count": "/proc/vmstat, `thp_fault_fallback`",
    "compact_stall_count": "/proc/vmstat, `compact_stall`",
    "oom_kill_count": "/proc/vmstat, `oom_kill`",
    "disk_wait_ppm": "/proc/diskstats, field 10 of the busiest disk",
    "major_fault_count": "/proc/vmstat, `pgmajfault`",
    "disk_latency_us": "/proc/diskstats, fields 4 and 8 by fields 1 and 5 of the busiest disk",
}
"""Channel to where it comes from."""
_COUNTED: Final = {
    "thp_fault_fallback_count": "thp_fault_fallback",
    "compact_stall_count": "compact_stall",
    "oom_kill_count": "oom_kill",
    "major_fault_count": "pgmajfault",
}
_STEAL: Final = 7  # of the columns of /proc/stat
_CPU_COLUMNS: Final = 8  # what follows, guest time, is part of user time
_HINT_FAULTS_MIN: Final = 100  # fewer show where the scanner was, not where memory is
_SECTION: Final = "sys/devices/system"
# fields after the name: reads, merged, sectors, ms, writes, merged, sectors, ms, in flight, ms busy
_DISK_FIELDS: Final = 10


class Host:
    """Reads the row of a host; shares begin with the second reading."""

    def __init__(self, root: Root) -> None:
        self._root: Final = root
        self._rates: Final = Rates()

    def read(self, monotonic_ns: int) -> dict[str, int]:
        """Readings by channel; what cannot be read is ABSENT."""
        elapsed_ns = self._rates.rise("time", monotonic_ns)
        vmstat = self._root.rows("proc/vmstat")
        row = {
            f"{what}_pressure_ppm": self._pressure(what, elapsed_ns)
            for what in ("cpu", "memory", "io")
        }
        row |= {channel: vmstat.get(name, ABSENT) for channel, name in _COUNTED.items()}
        kib = self._root.rows("proc/meminfo").get("MemAvailable", ABSENT)
        row["memory_available_mib"] = kib // 1024 if kib >= 0 else ABSENT
        row["dimm_ce_count"] = self._memory_errors("ce_count")
        row["dimm_ue_count"] = self._memory_errors("ue_count")
        row["cpu_steal_ppm"] = self._steal()
        row["numa_remote_ppm"] = self._numa_remote(vmstat)
        return row | self._disk(elapsed_ns)

    def _pressure(self, what: str, elapsed_ns: int) -> int:
        total_us = ABSENT
        for word in self._root.words(f"proc/pressure/{what}")[:5]:
            if word.startswith("total=") and word[6:].isdecimal():
                total_us = int(word[6:])
        waited_us = self._rates.rise(f"pressure {what}", total_us)
        return waited_us if waited_us == ABSENT else share_ppm(waited_us * 1000, elapsed_ns)

    def _memory_errors(self, name: str) -> int:
        folder = f"{_SECTION}/edac/mc"
        controllers = [each for each in self._root.names(folder) if each.startswith("mc")]
        counts = [self._root.number(f"{folder}/{each}/{name}") for each in controllers]
        read = [each for each in counts if each != ABSENT]
        return sum(read) if read else ABSENT

    def _steal(self) -> int:
        words = self._root.words("proc/stat")[1 : 1 + _CPU_COLUMNS]
        if len(words) <= _STEAL or not all(word.isdecimal() for word in words):
            return ABSENT
        stolen = self._rates.rise("steal", int(words[_STEAL]))
        return share_ppm(stolen, self._rates.rise("all time", sum(map(int, words))))

    def _numa_remote(self, vmstat: Mapping[str, int]) -> int:
        if len([n for n in self._root.names(f"{_SECTION}/node") if n[4:].isdecimal()]) == 1:
            return 0
        every = self._rates.rise("hints", vmstat.get("numa_hint_faults", ABSENT))
        local = self._rates.rise("local hints", vmstat.get("numa_hint_faults_local", ABSENT))
        if ABSENT in (every, local) or every < _HINT_FAULTS_MIN:
            return ABSENT
        return share_ppm(max(0, every - local), every)

    def _disk(self, elapsed_ns: int) -> dict[str, int]:
        whole = set(self._root.names("sys/block"))
        busiest = (ABSENT, ABSENT)
        try:
            lines = self._root.text("proc/diskstats").splitlines()
        except OSError:
            lines = []
        for words in (line.split() for line in lines):
            name, fields = words[2:3], words[3 : 3 + _DISK_FIELDS]
            if len(fields) < _DISK_FIELDS or not all(word.isdecimal() for word in fields):
                continue
            # partitions are counted with their disk, and a loop device with the disk below it
            if name[0] not in whole or name[0].startswith(("loop", "ram", "zram")):
                continue
            busiest = max(busiest, self._one_disk(name[0], list(map(int, fields)), elapsed_ns))
        return {"disk_wait_ppm": busiest[0], "disk_latency_us": busiest[1]}

    def _one_disk(self, name: str, fields: list[int], elapsed_ns: int) -> tuple[int, int]:
        """(share of the time in which it was busy, mean latency of what it finished)."""
        busy_ms = self._rates.rise(f"{name} busy", fields[9])
        done = self._rates.rise(f"{name} done", fields[0] + fields[4])
        took_ms = self._rates.rise(f"{name} took", fields[3] + fields[7])
        if ABSENT in (busy_ms, done, took_ms):
            return ABSENT, ABSENT
        return share_ppm(busy_ms * 1_000_000, elapsed_ns), took_ms * 1000 // done if done else 0
