"""Incidents of public threads as somebody would hand them in, and whether triage judges them right.

The files of `tests/threads` hold many each: `=== name (thread)`, then what may be answered, one
`verdict class culprits` a line (classes by `|`, culprits as patterns of their names), `cites`
with the pieces of which a cited line holds one, and `--- file` before the lines of each file.
The answers were written before the first run.
"""

import re
from pathlib import Path
from typing import NamedTuple

from nemesis.views.triage_answer import Triage
from tests.told import told


class Thread(NamedTuple):
    """One incident."""

    name: str
    answers: list[tuple[str, set[str], list[str]]]
    """(verdict, classes, patterns of the culprits) of each answer that is right."""
    cites: list[str]
    files: dict[str, str]


def threads(path: Path) -> list[Thread]:
    """All incidents of a file."""
    found = []
    for block in path.read_text().split("=== ")[1:]:
        head, *files = re.split(r"^--- ", block, flags=re.MULTILINE)
        name, *lines = head.splitlines()
        answers: list[tuple[str, set[str], list[str]]] = []
        cites: list[str] = []
        for line in lines:
            verdict, rest = line.split(" ", 1)
            if verdict == "cites":
                cites = rest.split("|")
            else:
                classes, *culprits = rest.split(" ")
                answers.append((verdict, set(classes.split("|")), culprits))
        named = dict(each.split("\n", 1) for each in files)
        found.append(Thread(name, answers, cites, named))
    return found


def told_of(thread: Thread, folder: Path) -> Triage:
    """What triage says of the incident."""
    return told(folder, thread.files)


def what_is_wrong(thread: Thread, answer: Triage) -> str:
    """What is wrong with an answer, "" if nothing is."""
    named = [each.id for each in answer.culprits]
    expected = [pattern for _, _, patterns in thread.answers for pattern in patterns]
    if any(not any(re.match(pattern, each) for pattern in expected) for each in named):
        return f"WRONG BLAME of {named}"
    if not any(
        answer.verdict == verdict
        and answer.fault_class in classes
        and len(named) == len(culprits)
        and all(any(re.match(pattern, each) for each in named) for pattern in culprits)
        for verdict, classes, culprits in thread.answers
    ):
        return f"said {answer.verdict} {answer.fault_class} {named}"
    cited = [each.text for each in answer.evidence]
    if thread.cites and not any(piece in line for piece in thread.cites for line in cited):
        return f"cited {cited}"
    return ""
