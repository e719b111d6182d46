"""Digest of a PyTorch flight-recorder dump: what one rank had enqueued, started and completed.

A dump of 2,000 entries is a quarter of a megabyte; the digest that goes into the log is at most
2 KiB. Formats 2.9 and 2.10 as torch writes them (pytorch/pytorch, torch/csrc/distributed/c10d/
FlightRecorderDetail.hpp); both spell the same fields, JSON with strings where pickle has numbers.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final

import msgspec

from nemesis.schemas.errors import NemesisError
from nemesis.schemas.observed import Count, GroupDigest, OperationSeen
from nemesis.schemas.rank_ranges import format_ranks

DIGEST_BYTES_MAX: Final = 2048
ARRIVALS_MAX: Final = 20
ENTRIES_MAX: Final = 200_000  # TORCH_FR_BUFFER_SIZE is 2,000 by default
SIZES_MAX: Final = 5_000_000  # numbers in all shapes together: bounds what a shared list can cost
RANKS_CHARS_MAX: Final = 50_000_000  # 100,000 ranks in 60 groups are 40 million
SHAPES_MAX: Final = 4  # shapes of one operation kept in a digest, and dimensions of each
DIMENSIONS_MAX: Final = 6
NAME_CHARS_MAX: Final = 48
GLOO: Final = "gloo"

_Number = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class BadDumpError(NemesisError):
    """Not a flight-recorder dump, or one that is broken."""


class _Group(msgspec.Struct):
    desc: str = ""
    ranks: str | list[Count] = ""


class _Status(msgspec.Struct):
    last_enqueued_collective: _Number = -1
    last_started_collective: _Number = -1
    last_completed_collective: _Number = -1


class _Entry(msgspec.Struct):
    pg_id: _Number
    process_group: tuple[str, str]
    collective_seq_id: Count
    profiling_name: str
    record_id: Count = 0
    p2p_seq_id: Count = 0
    input_sizes: list[list[_Number]] = []
    output_sizes: list[list[_Number]] = []
    input_dtypes: list[str] = []
    time_created_ns: Count = 0
    time_discovered_started_ns: Count | None = None
    state: str = ""
    retired: bool = False
    is_p2p: bool = False

    @property
    def seq(self) -> int:
        return self.p2p_seq_id if self.is_p2p else self.collective_seq_id

    @property
    def started(self) -> bool:
        return self.state == "started" or bool(self.time_discovered_started_ns)

    @property
    def finished(self) -> bool:
        # gloo never leaves "scheduled"; it only retires. On NCCL retired and not completed
        # means timed out.
        if self.profiling_name.startswith(f"{GLOO}:"):
            return self.retired
        return self.state == "completed"


class Dump(msgspec.Struct, frozen=True):
    """What a dump says about its rank, before it is known which rank that is."""

    version: str
    comm_lib_version: str
    entry_count: int
    groups: tuple[GroupDigest, ...]
    world: frozenset[int]
    """Every rank that is a member of one of its groups."""
    own_ranks: frozenset[int]
    """Ranks that are in all of its groups; exactly one where the dump tells whose it is."""
    last_ns: int
    """Newest enqueue time, 0 where it has no entries."""


def read_dump(content: object) -> Dump:
    """The digest of a decoded dump.

    Raises:
        BadDumpError: it is none; names what is missing or wrong.
    """
    if not isinstance(content, dict) or not {"version", "pg_config"} <= content.keys():
        raise BadDumpError("no flight-recorder dump: expected a map with version and pg_config")
    try:
        return _dump(content)
    except ValueError as error:  # msgspec's ValidationError is one, so is text that is no Unicode
        raise BadDumpError(f"broken flight-recorder dump: {error}") from error


def _dump(content: dict[str, Any]) -> Dump:
    version = msgspec.convert(content["version"], str)
    if version.split(".")[0] != "2":
        raise BadDumpError(f"flight-recorder version {version[:20]!r}, expected 2.x")
    config = msgspec.convert(content["pg_config"], dict[str, _Group], strict=False)
    status = msgspec.convert(content.get("pg_status") or {}, dict[int, _Status], strict=False)
    entries = _entries(content.get("entries") or [])
    members = _members(config)
    comm = content.get("comm_lib_version") or content.get("nccl_version") or ""
    comm_lib_version = msgspec.convert(comm, str)[:NAME_CHARS_MAX]
    f"{version}{comm_lib_version}".encode()  # raises where it could not be written to the log
    known = [frozenset(ranks) for ranks in members.values() if ranks]
    names = _names_by_id(config, status, entries)
    return Dump(
        version=version[:NAME_CHARS_MAX],
        comm_lib_version=comm_lib_version,
        entry_count=len(entries),
        groups=_fitted(_groups(config, members, status, entries, names)),
        world=frozenset().union(*known),
        own_ranks=frozenset.intersection(*known) if known else frozenset(),
        last_ns=max((entry.time_created_ns for entry in entries), default=0),
    )


def _entries(raw: object) -> list[_Entry]:
    if not isinstance(raw, list | tuple) or len(raw) > ENTRIES_MAX:
        raise BadDumpError(f"entries: expected a list of at most {ENTRIES_MAX}")
    entries: list[_Entry] = []
    sizes_count = 0
    for each in raw:
        sizes_count += _size_count(each)
        if sizes_count > SIZES_MAX:
            raise BadDumpError(f"more than {SIZES_MAX} numbers in the sizes of its entries")
        entries.append(msgspec.convert(each, _Entry, strict=False))
    return entries


def _size_count(entry: object) -> int:
    if not isinstance(entry, Mapping):
        return 0
    shapes = (entry.get("input_sizes"), entry.get("output_sizes"), entry.get("input_dtypes"))
    return sum(
        len(shape) if isinstance(shape, list) else 1
        for each in shapes
        if isinstance(each, list)
        for shape in each[: SIZES_MAX + 1]
    )


def _members(config: Mapping[str, _Group]) -> dict[str, list[int]]:
    if sum(len(group.ranks) for group in config.values()) > RANKS_CHARS_MAX:
        raise BadDumpError(f"more than {RANKS_CHARS_MAX} characters in the ranks of its groups")
    return {
        name: msgspec.json.decode(group.ranks or "[]", type=list[Count])
        if isinstance(group.ranks, str)
        else group.ranks
        for name, group in config.items()
    }


def _names_by_id(
    config: Mapping[str, Any], status: Mapping[int, Any], entries: Iterable[_Entry]
) -> dict[int, str]:
    """Which group a pg_id of this process is.

    Entries say it. A rank that was stuck outside of any collective has none; but ids and numeric
    names both count up as groups are made, so where there are equally many, they pair in order,
    unless an entry says otherwise.
    """
    said = {entry.pg_id: entry.process_group[0] for entry in entries}
    if len(config) != len(status) or not all(name.isdecimal() for name in config):
        return said
    paired = dict(zip(sorted(status), sorted(config, key=int), strict=True))
    return said if said.items() - paired.items() else paired


def _groups(
    config: Mapping[str, _Group],
    members: Mapping[str, list[int]],
    status: Mapping[int, _Status],
    entries: list[_Entry],
    names: Mapping[int, str],
) -> list[GroupDigest]:
    by_name: dict[str, list[_Entry]] = {}
    for entry in sorted(entries, key=lambda each: each.record_id):
        by_name.setdefault(entry.process_group[0], []).append(entry)
    ids = {name: number for number, name in names.items()}
    newest = max((e for e in entries if not e.is_p2p), key=lambda e: e.record_id, default=None)
    groups: list[GroupDigest] = []
    for name in sorted(config.keys() | by_name.keys() | ids.keys()):
        seen = by_name.get(name, [])
        counts = status.get(ids.get(name, -1)) or _counted(seen)
        if not name and not seen:
            continue  # torch writes one nameless group where groups have no options
        groups.append(
            GroupDigest(
                name=name[:NAME_CHARS_MAX],
                desc=_described(config.get(name), seen)[:NAME_CHARS_MAX],
                ranks=format_ranks(members.get(name, ())),
                last_enqueued=counts.last_enqueued_collective,
                last_started=counts.last_started_collective,
                last_completed=counts.last_completed_collective,
                first_unfinished=_first_unfinished(seen),
                arrivals=_arrivals(seen),
                newest=_newest(seen, newest),
            )
        )
    return groups


def _counted(seen: list[_Entry]) -> _Status:
    """Counters as far as the entries tell them, for dumps older than `pg_status`."""
    collectives = [entry for entry in seen if not entry.is_p2p]
    finished = [entry.seq for entry in collectives if entry.finished]
    return _Status(
        last_enqueued_collective=max((entry.seq for entry in collectives), default=-1),
        last_completed_collective=max(finished, default=-1),
    )


def _described(group: _Group | None, seen: list[_Entry]) -> str:
    if group is not None and group.desc:
        return group.desc
    return seen[-1].process_group[1] if seen else ""


def _first_unfinished(seen: list[_Entry]) -> OperationSeen | None:
    unfinished = [entry for entry in seen if not entry.finished]
    if not unfinished:
        return None
    # counters of sends and receives differ between stages when all is well: prefer a collective
    return _seen(min(unfinished, key=lambda entry: (entry.is_p2p, entry.record_id)))


def _newest(seen: list[_Entry], newest: _Entry | None) -> OperationSeen | None:
    """The rank's last call, where it belongs to this group and nothing else there is unfinished."""
    is_own = any(entry is newest for entry in seen)
    if newest is None or not is_own or any(not entry.finished for entry in seen):
        return None
    return _seen(newest)


def _seen(entry: _Entry) -> OperationSeen:
    return OperationSeen(
        seq=entry.seq,
        op=entry.profiling_name.partition(":")[2][:NAME_CHARS_MAX] or entry.profiling_name,
        input_sizes=_shapes(entry.input_sizes),
        output_sizes=_shapes(entry.output_sizes),
        dtypes=tuple(dtype[:NAME_CHARS_MAX] for dtype in entry.input_dtypes[:SHAPES_MAX]),
        started=entry.started,
        p2p=entry.is_p2p,
        created_ns=entry.time_created_ns,
    )


def _shapes(sizes: list[list[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(shape[:DIMENSIONS_MAX]) for shape in sizes[:SHAPES_MAX])


def _arrivals(seen: list[_Entry]) -> tuple[tuple[int, int], ...]:
    arrived = [(e.collective_seq_id, e.time_created_ns) for e in seen if not e.is_p2p]
    return tuple(arrived[-ARRIVALS_MAX:])


def _fitted(groups: list[GroupDigest]) -> tuple[GroupDigest, ...]:
    """The groups in at most DIGEST_BYTES_MAX: fewer arrivals, then no descriptions, then only
    groups with something unfinished, as many as fit."""
    replace = msgspec.structs.replace
    for count in (ARRIVALS_MAX, 10, 5, 3, 2, 1):
        fewer = [replace(group, arrivals=group.arrivals[-count:]) for group in groups]
        if _size_bytes(fewer) <= DIGEST_BYTES_MAX:
            return tuple(fewer)
    bare = [replace(group, arrivals=(), desc="", newest=None) for group in groups]
    bare.sort(key=lambda group: group.first_unfinished is None)
    while _size_bytes(bare) > DIGEST_BYTES_MAX:
        bare.pop()
    return tuple(sorted(bare, key=lambda group: group.name))


def _size_bytes(groups: list[GroupDigest]) -> int:
    return len(msgspec.msgpack.encode(groups)) + 200  # the fields around the groups
