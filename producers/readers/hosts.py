"""Which host a kernel log is of that names none."""

import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final

from nemesis.producers.readers.kernel_log import KernelLog
from nemesis.schemas.components import UNKNOWN_HOST

_KIND_WORD: Final = re.compile(
    r"(?:dmesg|kern|kernel|kmsg|journal|journalctl|syslog|messages|console|log|logs|txt|out|json"
    r"|jsonl|gz|dump|boot|xid|nvidia|bug|report|var|previous|current|old|new|before|after)?\d*\Z"
)


def hosts_of_hostless(logs: Sequence[KernelLog], notes: list[str]) -> dict[str, str]:
    """Which host a file without any host name is of.

    Of the host whose name is in its path; else, where the bundle speaks of one host only, of that
    one, `localhost` if it has no name. Several such files whose paths differ by a name are several
    hosts', or equal PCI addresses of two hosts would be taken for one GPU.
    """
    known = {line.host for log in logs for _, line in log.lines if line.host}
    hostless = [log.file for log in logs if log.lines and not any(e.host for _, e in log.lines)]
    names: dict[str, str] = {}
    for file in hostless:
        named = sorted(known & {*_words(file), *PurePosixPath(file).parts})
        if len(named) == 1:
            names[file] = named[0]
    rest = [file for file in hostless if file not in names]
    if len(rest) > 1:
        names |= _told_apart(rest)
    if len(known) == 1:
        names = dict.fromkeys(rest, next(iter(known))) | names
    nameless = [file for file in hostless if file not in names]
    notes.extend(f"no host name in {file}: its node is called {UNKNOWN_HOST}" for file in nameless)
    for file, name in sorted(names.items()):
        notes.append(f"{file}: names no host, taken to be of {name}")
    return names


def _told_apart(files: Sequence[str]) -> dict[str, str]:
    """The name by which each path differs from the others, where it does."""
    parts = {file: PurePosixPath(file).parts for file in files}
    depth = 0
    while len({tuple(each[: depth + 1]) for each in parts.values()}) == 1:
        depth += 1
    names: dict[str, str] = {}
    for file, each in parts.items():
        telling = _words(each[depth] if depth < len(each) else each[-1])
        if telling:
            names[file] = telling[0]
    return names


def _words(path: str) -> list[str]:
    """Parts of a path that may be a name: not the kind of log, nor a rotation number."""
    words = re.split(r"[/._]", path)
    return [word for word in words if not _is_kind(word)]


def _is_kind(word: str) -> bool:
    return all(_KIND_WORD.match(part) for part in word.lower().split("-"))
