"""What each copy says of itself once a second, for `nemesis status`: one small file a copy.

A perfect log can hide a dead copy, so every copy shows how far it has read.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

import msgspec

from nemesis.schemas.tokens import token_of
from nemesis.streams.replacing import replace_file

if TYPE_CHECKING:
    from nemesis.streams.lane import Lane
    from nemesis.streams.watch import Watch


class CopyStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Where one copy of one processor stands."""

    name: str
    version: int
    slot: int
    pid: int
    stage: str
    active: bool
    """Its version is activated."""
    standby: bool
    """Another copy writes."""
    in_seq: int
    """Every input up to here is answered."""
    read_seq: int
    """Every input up to here is stepped by this copy."""
    last_seq: int
    """The end of the log."""
    lag_seq: int
    """Records that this copy has not seen yet."""
    log_time_ns: int
    """Time of the last tick this copy read; how far it lies behind now is the lag in seconds."""
    clock_silent: bool
    log_full: bool
    problem: str = ""
    """Why it does not answer although it should."""
    commits_count: int
    refused_count: int

    @classmethod
    def of(cls, lane: "Lane", watch: "Watch") -> Self:
        """The status of a lane."""
        # positions are no input of anyone: who has read up to one is not behind
        seen_seq = watch.read_seq if lane.stage == "reading" else 0
        return cls(
            name=lane.name,
            version=lane.processor.version,
            slot=lane.deaths.slot,
            pid=os.getpid(),
            stage=lane.stage,
            active=lane.fold.active,
            standby=lane.committer.standby,
            in_seq=lane.position.in_seq,
            read_seq=lane.read_seq,
            last_seq=watch.last_seq,
            lag_seq=max(0, watch.last_seq - max(lane.read_seq, seen_seq)),
            log_time_ns=lane.fold.log_time_ns,
            clock_silent=watch.clock_silent,
            log_full=lane.committer.full,
            problem=lane.problem,
            commits_count=lane.committer.commits_count,
            refused_count=lane.committer.refused_count,
        )


def copies_folder(cell_folder: Path) -> Path:
    """Where the copies of a cell on this machine keep what outlives them, and say how they are."""
    return cell_folder / "copies"


def write_status(folder: Path, copies: Iterable[CopyStatus]) -> None:
    """Replace the files of these copies; a disk that does not take them stops no copy."""
    for each in copies:
        with suppress(OSError):
            replace_file(_path(folder, each), msgspec.json.encode(each))


def remove_status(folder: Path, copies: Iterable[CopyStatus]) -> None:
    """These copies end in order: they are not dead, they are no more."""
    for each in copies:
        _path(folder, each).unlink(missing_ok=True)


def read_status(folder: Path) -> list[CopyStatus]:
    """What every copy on this machine last said; dead ones too, see `pid`."""
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            found.append(msgspec.json.decode(path.read_bytes(), type=CopyStatus))
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue  # a copy that ends at this moment, or a file of another release
    return found


def _path(folder: Path, copy: CopyStatus) -> Path:
    return folder / f"{token_of(f'{copy.name}@{copy.version}')}.{copy.slot}.json"
