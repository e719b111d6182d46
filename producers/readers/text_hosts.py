"""Which host each file of text is of, where its lines do not say.

A file that holds a known host's name in its path is of that host, and one before whose lines NCCL
names one host of that; of several files of one format whose paths differ in one word, numbers of
ranks aside, that word is the host, and so is one that is a known host's name but for its number; in
a bundle that speaks of one host only, everything is of that one.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final

from nemesis.producers.readers.text_file import TextFile
from nemesis.schemas.components import UNKNOWN_HOST
from nemesis.schemas.observed import CountersRead, Observation, SettingRead

_WORDS: Final = re.compile(r"[/._]")
_NUMBER: Final = re.compile(r"\d+")
MOMENT: Final = re.compile(
    r"(?:(?P<early>before|first|start|old|prev\w*)|(?P<late>after|second|end|new|later|current)"
    r"|t|run|sample|poll|snap\w*|reading|attempt|step|epoch|trial|phase|day|\d+)[-_]?\d*(?:s|min|h)?\Z",
    re.IGNORECASE,
)
"""What tells two readings of one host apart, and not two hosts."""
_HOST: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}\Z")


def hosts_of_texts(texts: Sequence[TextFile], from_kernel: set[str]) -> dict[str, str]:
    """The host of each file, `localhost` where nothing tells it."""
    known = from_kernel | {n.observation.node for text in texts for n in text.notes} - {""}
    known |= {host for text in texts for host in text.hosts}
    hosts: dict[str, str] = _told_apart([text for text in texts if _is_of_one_host(text)])
    for text in texts:
        parts = PurePosixPath(text.file).parts
        named = sorted(known & {*_WORDS.split(text.file), *parts})
        if len(named) == 1:
            hosts[text.file] = named[0]
        elif len(text.hosts) == 1:
            hosts[text.file] = next(iter(text.hosts))
        elif not named and len(alike := _numbered_alike(text.file, known)) == 1:
            hosts.setdefault(text.file, alike[0])
    known |= set(hosts.values())
    rest = next(iter(known)) if len(known) == 1 else UNKNOWN_HOST
    return {text.file: hosts.get(text.file, rest) for text in texts}


def _numbered_alike(file: str, known: set[str]) -> list[str]:
    """Words of a path that are names of hosts if the known ones are, by all but their numbers."""
    shapes = {_NUMBER.sub("0", host) for host in known if not MOMENT.match(host)}
    shapes = {shape for shape in shapes if "0" in shape and not shape.isdecimal()}
    return sorted({word for word in _WORDS.split(file) if _NUMBER.sub("0", word) in shapes})


def _is_of_one_host(text: TextFile) -> bool:
    return not any(note.observation.node for note in text.notes)


def _told_apart(texts: Sequence[TextFile]) -> dict[str, str]:
    """The one word by which the paths of files of one format differ."""
    groups: dict[tuple[object, ...], list[str]] = {}
    for text in texts:
        words = _WORDS.split(text.file)
        if len(words) > 1:
            kinds = sorted({_kind(note.observation) for note in text.notes})
            groups.setdefault((len(words), *kinds), []).append(text.file)
    hosts: dict[str, str] = {}
    for files in groups.values():
        hosts |= _differing(files)
    return hosts


def _kind(observation: Observation) -> str:
    """What an observation is about, apart from where."""
    match observation:
        case SettingRead(component=component) if component.startswith(("config//", "service//")):
            return component
        case SettingRead(component=component) | CountersRead(component=component):
            return component.partition("/")[0]
        case _:
            return type(observation).__name__


def _differing(files: Sequence[str]) -> Mapping[str, str]:
    rows = [_WORDS.split(file) for file in files]
    columns = list(zip(*rows, strict=True))
    places = [at for at, column in enumerate(columns) if len(set(column)) > 1]
    if len(places) > 1:  # `before/n1.txt`, `after/n1.txt`: two readings of each
        places = [at for at in places if not all(MOMENT.match(word) for word in columns[at])]
    if len(places) > 1:  # ranks and pids differ, too: `n1/rank_0.err`, `n2/rank_8.err`
        places = [at for at in places if not all(word.isdecimal() for word in columns[at])]
    if len(files) < 2 or len(places) != 1:
        return {}
    names = {file: row[places[0]] for file, row in zip(files, rows, strict=True)}
    hosts = all(_HOST.match(name) and not MOMENT.match(name) for name in names.values())
    return names if hosts else {}
