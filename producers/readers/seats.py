"""On which host each rank ran, as far as the files of a bundle tell.

Why: a flight recorder names ranks and a kernel's log names hosts; only where they meet is a rank
without a dump the one whose GPU is gone. How: a rank that writes in a host's file, or in a line
that names a host, ran there; so did one that NCCL's words or the environment of a process place.
Launchers number ranks host by host: where all that is known fits hosts of one size, ranks between
and beside the known ones ran on the same host.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from nemesis.producers.readers.jobs.environment import HOST_OF_RANK
from nemesis.producers.readers.text_file import TextFile
from nemesis.schemas.components import UNKNOWN_HOST
from nemesis.schemas.observed import LogLineWritten, SettingRead

_COMM: Final = re.compile(r"\bcomm 0x[0-9a-f]+ rank (\d{1,7}) n[rR]anks (\d{1,7})\b")
_RANK_IN_NAME: Final = re.compile(r"rank[._-]?(\d{1,7})(?!\d)", re.IGNORECASE)
HOSTS_MIN: Final = 2  # of one host everything is of that one anyway


def seats_of(texts: Sequence[TextFile], hosts: Mapping[str, str]) -> dict[int, str]:
    """Rank to host; a rank that two hosts claim is left out."""
    claims: dict[int, set[str]] = {}
    for rank, host in _claims(texts, hosts):
        claims.setdefault(rank, set()).add(host)
    known = {rank: next(iter(own)) for rank, own in claims.items() if len(own) == 1}
    return known | _beside(known)


def _claims(texts: Sequence[TextFile], hosts: Mapping[str, str]) -> Iterator[tuple[int, str]]:
    worlds: list[tuple[int, int, str]] = []
    for text in texts:
        for note in text.notes:
            seen = note.observation
            host = seen.node or hosts.get(text.file, UNKNOWN_HOST)
            if host == UNKNOWN_HOST:
                continue
            if isinstance(seen, SettingRead) and seen.name == HOST_OF_RANK:
                yield int(seen.component.rpartition("/")[2]), host
            if isinstance(seen, LogLineWritten):
                if seen.rank >= 0:
                    yield seen.rank, host
                elif match := _COMM.search(seen.text):
                    worlds.append((int(match[2]), int(match[1]), host))
        named = _RANK_IN_NAME.findall(text.file.rpartition("/")[2])
        host = hosts.get(text.file, UNKNOWN_HOST)
        if len(named) == 1 and host != UNKNOWN_HOST:
            yield int(named[0]), host
    largest = max((world for world, _, _ in worlds), default=0)
    # smaller communicators number their own members
    yield from ((rank, host) for world, rank, host in worlds if world == largest)


def _beside(known: Mapping[int, str]) -> dict[int, str]:
    """Ranks that nobody placed, where all that is known fits hosts of one size."""
    count = Counter(known.values())
    if len(count) < HOSTS_MIN:
        return {}
    size = max(count.values())
    slots: dict[int, str] = {}
    for rank, host in known.items():
        if slots.setdefault(rank // size, host) != host:
            return {}
    if len(set(slots.values())) != len(slots):
        return {}
    return {
        rank: host
        for slot, host in slots.items()
        for rank in range(slot * size, (slot + 1) * size)
        if rank not in known
    }
