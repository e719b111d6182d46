"""How long collectives took on the ranks of this node, as NCCL's Inspector writes it down.

Why: a rank that comes late to its collectives spends the least time in them, and nothing else shows
it while all goes on. How: the plugin writes a line a collective into a file a process, without end;
of each file the newest lines are taken at every poll, what is older is passed over, and once a
minute one fact sums up what was taken, group by group. Passing over is what keeps the cost: eight
ranks write megabytes a second. Numbers of operations are raw, so how many there were is known.

Format: NVIDIA/nccl plugins/profiler/inspector/README.md; newer releases write the header once, at
the start of a file. Not here: who is late, which takes the other nodes' facts, too.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from nemesis.producers.node.probe import Answer, NotReadError
from nemesis.producers.node.ranks import RankProcess
from nemesis.producers.origin import Origin
from nemesis.producers.tail import Tail
from nemesis.schemas.timed import CollectivesTimed, GroupTimed

SOURCE: Final = "inspector"
FILES_MAX: Final = 64
"""Of one node: eight ranks, and what earlier jobs left."""
NEWEST_BYTES: Final = 64 << 10  # some 200 collectives of a rank, each poll
HEAD_BYTES: Final = 16 << 10
GROUPS_MAX: Final = 256  # of 100 bytes each, and a fact has 64 KiB
_US_NS: Final = 1000
_TOOK_US_MAX: Final = 10**12


class _Sum(msgspec.Struct):
    size: int = 0
    sn: int = 0
    count: int = 0
    total_ns: int = 0
    longest_ns: int = 0
    bytes_sum: int = 0


class _File:
    """One process's file."""

    def __init__(self, path: Path) -> None:
        self.tail: Final = Tail(path)
        self.header: Mapping[str, Any] = {}
        self.pid = 0
        with path.open("rb") as file:
            self.take_head(_document(file.read(HEAD_BYTES).partition(b"\n")[0]))

    def take_head(self, document: Mapping[str, Any]) -> None:
        """Remember whose lines follow, where this one says so."""
        header, metadata = _mapping(document.get("header")), _mapping(document.get("metadata"))
        if "n_ranks" in header:
            self.header, self.pid = header, _whole(metadata.get("pid"))


class Inspector:
    """Follows a folder of its files."""

    def __init__(self, origin: Origin, folder: Path) -> None:
        """`folder`: NCCL_INSPECTOR_DUMP_DIR of the jobs."""
        self._origin: Final = origin
        self._folder: Final = folder
        self._files: Final[dict[Path, _File]] = {}
        self._sums: dict[tuple[int, str, int], _Sum] = {}

    def read(self) -> Answer:
        """Take up what is new.

        Raises:
            NotReadError: there is no such folder, or nothing in it.
        """
        there = self._there()
        for path in self._files.keys() - set(there):
            self._files.pop(path).tail.close()
        for path in there:
            if path not in self._files:
                self._files[path] = _File(path)
            self._take(self._files[path])
        if not there:
            raise NotReadError("absent", f"{self._folder} has no file of NCCL's Inspector")
        return Answer(None)

    def fact(self, job: str, ranks: Sequence[RankProcess], now_ns: int) -> list[CollectivesTimed]:
        """What was taken since the last one, if anything was."""
        sums, self._sums = self._sums, {}
        known = {each.pid: each.rank for each in ranks}
        groups = tuple(
            GroupTimed(
                communicator=communicator,
                member=member,
                size=own.size,
                rank=known.get(pid, -1),
                last_number=own.sn,
                timed_count=own.count,
                total_ns=own.total_ns,
                longest_ns=own.longest_ns,
                size_bytes=own.bytes_sum,
            )
            for (pid, communicator, member), own in sorted(sums.items())
        )[:GROUPS_MAX]
        if not groups:
            return []
        stamp = self._origin.stamp("collective_times", now_ns)
        return [CollectivesTimed(**stamp, job=job, groups=groups)]

    def _there(self) -> list[Path]:
        try:
            names = sorted(self._folder.iterdir())
            deeper = [each for name in names if name.is_dir() for each in sorted(name.iterdir())]
            files = [each for each in (*names, *deeper) if each.is_file()]
            newest = sorted(files, key=lambda each: each.stat().st_mtime_ns)[-FILES_MAX:]
        except OSError as error:
            raise NotReadError("absent", f"{self._folder}: {error.strerror}") from error
        return sorted(newest)

    def _take(self, file: _File) -> None:
        for line in file.tail.read(newest_bytes=NEWEST_BYTES):
            document = _document(line)
            file.take_head(document)
            performance = _mapping(document.get("coll_perf"))
            took_us, number = (
                performance.get("coll_exec_time_us"),
                _whole(performance.get("coll_sn")),
            )
            timed = isinstance(took_us, int | float) and 0 < took_us < _TOOK_US_MAX
            if not (timed and file.header):
                continue
            took_ns = int(float(took_us or 0) * _US_NS)
            key = (file.pid, str(file.header.get("id", ""))[:40], _whole(file.header.get("rank")))
            own = self._sums.setdefault(key, _Sum())
            own.size, own.sn = _whole(file.header.get("n_ranks")), max(own.sn, number)
            own.count, own.total_ns = own.count + 1, own.total_ns + took_ns
            own.longest_ns = max(own.longest_ns, took_ns)
            own.bytes_sum += _whole(performance.get("coll_msg_size_bytes"))


def _document(line: bytes) -> Mapping[str, Any]:
    try:
        return _mapping(msgspec.json.decode(line))
    except (msgspec.DecodeError, RecursionError):
        return {}


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _whole(value: object) -> int:
    """A count within what a fact takes, 0 where it is none."""
    return value if isinstance(value, int) and 0 <= value < 2**31 else 0
