"""Which flight-recorder dumps belong together, and whose is missing.

Dumps of one moment lie in one folder, or in one folder a node; a second copy of the same moment
(JSON beside pickle) tells nothing new. Groups say who should have dumped: a rank that is a member
and has no dump beside those of the others is evidence about that rank.
"""

from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import Final

import msgspec

from nemesis.producers.readers.bundle import DumpFile, Unread

SAME_MOMENT_NS: Final = 3_600_000_000_000  # a watchdog dumps within its timeout, 10 or 30 min
DEFAULT_JOB: Final = "job"
MISSING_SHARE: Final = 4  # at most a quarter of a job dies so fast that it writes nothing
NODE_RANKS_MIN: Final = 4  # the smallest training node that is common


class Run(msgspec.Struct):
    """The dumps of one job at one moment."""

    job: str
    dumps: dict[int, DumpFile]
    """By rank."""
    missing: tuple[int, ...]
    """Members that wrote no dump where the others did: one process, or all of one node."""
    absent: tuple[int, ...]
    """Other members without a dump: nobody may have collected it."""
    at_ns: int
    """Newest enqueue time in any of them."""


def sort_runs(files: Sequence[DumpFile], unread: list[Unread], notes: list[str]) -> list[Run]:
    """The runs of a bundle; dumps whose rank nothing tells become unread."""
    series: dict[str, dict[int, DumpFile]] = {}
    # newest first: of two dumps of a rank in one place the older is of another moment
    for file in sorted(files, key=lambda file: -file.dump.last_ns):
        rank = _rank_of(file)
        ranks = series.setdefault(file.series, {})
        if rank is None:
            unread.append(Unread(file.file, "neither its name nor its groups tell its rank"))
        elif rank in ranks:
            unread.append(Unread(file.file, f"{ranks[rank].file} is a newer dump of rank {rank}"))
        else:
            ranks[rank] = file
    groups: list[dict[int, DumpFile]] = []
    for _, ranks in sorted(series.items(), key=lambda item: (item[0].count("/"), item[0])):
        _drop_stale(ranks, unread)
        if ranks and not _joined(ranks, groups, notes):
            groups.append(ranks)
    return [_run(ranks, groups) for ranks in groups]


def _drop_stale(ranks: dict[int, DumpFile], unread: list[Unread]) -> None:
    """Take out what an earlier job left in the same place, under ranks that this one has not."""
    newest_ns = max((file.dump.last_ns for file in ranks.values()), default=0)
    for rank, file in sorted(ranks.items()):
        # a dump without entries has no time; it is of now as far as anybody can tell
        if 0 < file.dump.last_ns < newest_ns - SAME_MOMENT_NS:
            unread.append(Unread(file.file, "more than an hour older than the dumps beside it"))
            del ranks[rank]


def _rank_of(file: DumpFile) -> int | None:
    own = file.dump.own_ranks
    if file.number is not None and (not own or file.number in own):
        return file.number
    return next(iter(own)) if len(own) == 1 else None


def _joined(
    ranks: dict[int, DumpFile], groups: Iterable[dict[int, DumpFile]], notes: list[str]
) -> bool:
    """Whether these dumps are more of, or the same as, those of a group; adds them if so."""
    for group in groups:
        common = ranks.keys() & group.keys()
        if common and all(_same_moment(ranks[rank], group[rank]) for rank in common):
            folder = PurePosixPath(next(iter(ranks.values())).file).parent
            notes.append(f"{folder}: the same moment as the dumps beside it, read once")
            group.update({rank: file for rank, file in ranks.items() if rank not in group})
            return True
        if not common and _one_world(ranks, group):
            group.update(ranks)
            return True
    return False


def _same_moment(one: DumpFile, other: DumpFile) -> bool:
    return one.dump.last_ns == other.dump.last_ns and one.dump.world == other.dump.world


def _one_world(ranks: dict[int, DumpFile], group: dict[int, DumpFile]) -> bool:
    """Whether two folders side by side hold different ranks of one job at one moment."""
    places = {_grandparent(file.file) for each in (ranks, group) for file in each.values()}
    worlds = [_world(ranks), _world(group)]
    members = ranks.keys() | group.keys()
    apart_ns = abs(_newest_ns(ranks) - _newest_ns(group))
    return (
        len(places) == 1
        and bool(worlds[0] & worlds[1])
        and members <= worlds[0] | worlds[1]
        and apart_ns < SAME_MOMENT_NS
    )


def _grandparent(file: str) -> str:
    return PurePosixPath(file).parent.parent.as_posix()


def _world(ranks: dict[int, DumpFile]) -> frozenset[int]:
    return frozenset().union(*(file.dump.world for file in ranks.values()))


def _newest_ns(ranks: dict[int, DumpFile]) -> int:
    return max(file.dump.last_ns for file in ranks.values())


def _run(ranks: dict[int, DumpFile], groups: Sequence[object]) -> Run:
    folders = [PurePosixPath(file.file).parent for file in ranks.values()]
    folder = min(folders, key=lambda folder: (len(folder.parts), folder))
    place = ".".join(folder.parts)
    # a job's name never is a bare number: `rank/4/2` reads like rank 4
    job = DEFAULT_JOB if len(groups) == 1 or not place else f"{DEFAULT_JOB}-{place}"
    world = _world(ranks)
    without = tuple(sorted(world - ranks.keys()))
    told = _fell_together(without, len(world))
    return Run(
        job=job[:80],
        dumps=dict(sorted(ranks.items())),
        missing=without if told else (),
        absent=() if told else without,
        at_ns=_newest_ns(ranks),
    )


def _fell_together(without: Sequence[int], world: int) -> bool:
    """Whether ranks without a dump look like one process or one node that died.

    Ranks are numbered node by node, so those of a node are a block that starts at a multiple of
    its length. Scattered ranks, or most of a job, look like files that nobody copied.
    """
    count = len(without)
    if count == 1:
        return world > 2
    block = count >= NODE_RANKS_MIN and without[-1] - without[0] + 1 == count
    return block and without[0] % count == 0 and count * MISSING_SHARE <= world
