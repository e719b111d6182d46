"""Digest of a PyTorch flight-recorder dump: what one rank had enqueued, started and completed.

A dump of 2,000 entries is a quarter of a megabyte; the digest that goes into the log is at most
2 KiB. Formats 2.9 and 2.10 as torch writes them (pytorch/pytorch, torch/csrc/distributed/c10d/
FlightRecorderDetail.hpp); both spell the same fields, JSON with strings where pickle has numbers.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from nemesis.producers.recorder_digest import (
    NAME_CHARS_MAX,
    Counters,
    Entry,
    Membership,
    digests,
)
from nemesis.schemas.errors import NemesisError
from nemesis.schemas.observed import Count, GroupDigest
from nemesis.schemas.rank_ranges import format_ranks

ENTRIES_MAX: Final = 200_000  # TORCH_FR_BUFFER_SIZE is 2,000 by default
SIZES_MAX: Final = 5_000_000  # numbers in all shapes together: bounds what a shared list can cost
RANKS_CHARS_MAX: Final = 50_000_000  # 100,000 ranks in 60 groups are 40 million


class BadDumpError(NemesisError):
    """Not a flight-recorder dump, or one that is broken."""


class _Group(msgspec.Struct):
    desc: str = ""
    ranks: str | list[Count] = ""


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
    status = msgspec.convert(content.get("pg_status") or {}, dict[int, Counters], strict=False)
    entries = _entries(content.get("entries") or [])
    members = _members(config)
    described = {
        name: Membership(group.desc, format_ranks(members[name]), members[name])
        for name, group in config.items()
    }
    comm = content.get("comm_lib_version") or content.get("nccl_version") or ""
    comm_lib_version = msgspec.convert(comm, str)[:NAME_CHARS_MAX]
    f"{version}{comm_lib_version}".encode()  # raises where it could not be written to the log
    known = [frozenset(ranks) for ranks in members.values() if ranks]
    names = _names_by_id(config, status, entries)
    counters = {name: status[number] for number, name in names.items() if number in status}
    return Dump(
        version=version[:NAME_CHARS_MAX],
        comm_lib_version=comm_lib_version,
        entry_count=len(entries),
        groups=digests(described, counters, entries),
        world=frozenset().union(*known),
        own_ranks=frozenset.intersection(*known) if known else frozenset(),
        last_ns=max((entry.time_created_ns for entry in entries), default=0),
    )


def _entries(raw: object) -> list[Entry]:
    if not isinstance(raw, list | tuple) or len(raw) > ENTRIES_MAX:
        raise BadDumpError(f"entries: expected a list of at most {ENTRIES_MAX}")
    entries: list[Entry] = []
    sizes_count = 0
    for each in raw:
        sizes_count += _size_count(each)
        if sizes_count > SIZES_MAX:
            raise BadDumpError(f"more than {SIZES_MAX} numbers in the sizes of its entries")
        entries.append(msgspec.convert(each, Entry, strict=False))
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
    config: Mapping[str, Any], status: Mapping[int, Any], entries: Iterable[Entry]
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
