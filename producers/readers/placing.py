"""Puts what readers noted in its place: on a node, at a time, under a number of its own.

Lines with a clock of the wall keep it; one without is as late as the line before it, and where no
line of a bundle tells the time, everything lies at its end in the order of the files.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from nemesis.producers.readers.notes import Note
from nemesis.producers.readers.text_file import TextFile
from nemesis.producers.readers.text_hosts import MOMENT
from nemesis.schemas.observed import (
    CountersRead,
    LogLineWritten,
    Observation,
    SettingRead,
    StackSeen,
    StepsTimed,
    TrialFinished,
)
from nemesis.schemas.registry import BY_STRUCT

STEP_NS: Final = 1_000  # between lines whose order alone is known


class Placed(msgspec.Struct):
    """One observation with its file and line."""

    file: str
    number: int
    token: str
    observation: Observation


def newest_wall_ns(texts: Sequence[TextFile]) -> int:
    """The newest time that a line tells, 0 where none does."""
    noted = (n.time_ns for text in texts for n in text.notes if n.clock == "wall")
    return max([0, *noted, *(text.newest_ns for text in texts)])


def placed(
    texts: Sequence[TextFile],
    hosts: Mapping[str, str],
    job: str,
    end_ns: int,
    numbers: Counter[tuple[str, str]],
) -> Iterator[Placed]:
    """Everything noted, ascending in time; `end_ns` is where the bundle ends."""
    ordered = sorted(texts, key=lambda text: _phase(text.file))
    timed: list[tuple[int, str, Note]] = []
    for text in ordered:
        timed += [(at_ns, text.file, note) for at_ns, note in _times(text, end_ns)]
        if not any(note.clock == "wall" for note in text.notes):
            end_ns += STEP_NS * len(text.notes)  # the next file without a clock comes after it
    for at_ns, file, note in sorted(timed, key=lambda each: each[0]):
        token = BY_STRUCT[type(note.observation)].token
        node = note.observation.node or hosts[file]
        numbers[node, token] += 1
        observation = _on_node(note.observation, node, job)
        observation = replace(observation, node=node, at_ns=at_ns, n=numbers[node, token])
        yield Placed(file, note.number, token, observation)


def _phase(file: str) -> int:
    """Of readings before and after something, which one was first."""
    words = [match for word in re.split(r"[/._-]", file) if (match := MOMENT.match(word))]
    if any(match["early"] for match in words):
        return 0
    return 2 if any(match["late"] for match in words) else 1


def _times(text: TextFile, end_ns: int) -> Iterator[tuple[int, Note]]:
    notes = sorted(text.notes, key=lambda note: note.number)
    first = next((each.time_ns for each in notes if each.clock == "wall"), None)
    at_ns = end_ns if first is None else max(first, 0)
    for at, each in enumerate(notes):
        at_ns = max(at_ns + STEP_NS * (at > 0), each.time_ns if each.clock == "wall" else 0)
        yield at_ns, each


def _on_node(observation: Observation, node: str, job: str) -> Observation:
    match observation:
        case CountersRead() | SettingRead():
            # a reader leaves the node's part of a name empty
            return replace(observation, component=observation.component.replace("//", f"/{node}/"))
        case TrialFinished():
            own = tuple(each.replace("//", f"/{node}/") for each in observation.components)
            return replace(observation, components=own)
        case LogLineWritten() | StepsTimed() | StackSeen():
            return replace(observation, job=observation.job or job)
        case _:
            return observation
