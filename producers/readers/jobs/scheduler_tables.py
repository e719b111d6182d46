"""Tables of `sinfo` and `sacct`: nodes and jobs row by row, under whatever columns were asked for.

A table is known by its heading; a row of dashes under it says how wide its columns are, bars keep
them apart, else blanks do. A row that does not fit its heading ends the table.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from nemesis.producers.readers.jobs.scheduler_states import job_state
from nemesis.producers.readers.notes import Note, Reader, TextLine, note
from nemesis.producers.readers.unplaced import unplaced
from nemesis.schemas.observed import SettingRead

_NODES_HEAD: Final = re.compile(r"\s*(?:NODELIST|HOSTNAMES|PARTITION)\b.*\bSTATE\b")
_JOBS_HEAD: Final = re.compile(r"(?=.*\bJobID(?:Raw)?\b)(?=.*\bState\b)[\w\s|]+\Z")
_RULE: Final = re.compile(r"[- ]+\Z")
_ONE_NODE: Final = re.compile(r"[A-Za-z][\w.-]{0,62}\Z")


class SchedulerTables(Reader):
    """Reads tables of a scheduler."""

    starts = (_NODES_HEAD, _JOBS_HEAD)

    def __init__(self) -> None:
        self._head: list[str] = []
        self._widths: list[int] = []
        self._bars = False

    @property
    def busy(self) -> bool:
        """In a table."""
        return bool(self._head)

    def take(self, line: TextLine) -> Iterable[Note]:
        """A row of a table."""
        text = line.text
        if _NODES_HEAD.match(text) or _JOBS_HEAD.match(text):
            self.known, self._bars, self._widths = True, "|" in text, []
            self._head = [each.upper() for each in self._cells(text)]
            return ()
        if not self._head:
            return ()
        if _RULE.match(text):
            self._widths = [len(each) for each in text.split()]
            return ()
        cells = self._cells(text)
        if len(cells) < len(self._head):
            self._head = []
            return ()
        row = dict(zip(self._head, cells, strict=False))
        return _of_job(line, row) if "JOBID" in row or "JOBIDRAW" in row else _of_node(line, row)

    def _cells(self, text: str) -> list[str]:
        if self._bars:
            return [each.strip() for each in text.split("|")]
        if not self._widths:
            # the last column may be a sentence
            return text.split(None, len(self._head) - 1 if self._head else -1)
        cells, at = [], 0
        for width in self._widths:
            cells.append(text[at : at + width].strip())
            at += width + 1
        return cells


def _of_node(line: TextLine, row: Mapping[str, str]) -> list[Note]:
    node = row.get("NODELIST") or row.get("HOSTNAMES") or ""
    if not _ONE_NODE.match(node):
        return []
    return [_note(line, node, "slurm.state", row["STATE"].upper())]


def _of_job(line: TextLine, row: Mapping[str, str]) -> list[Note]:
    job = row.get("JOBID") or row.get("JOBIDRAW") or ""
    state, exit_code = row["STATE"], row.get("EXITCODE", "")
    reason, nodes = row.get("REASON", ""), row.get("NODELIST", "")
    if not state[:1].isupper():
        return []
    return [note(line, job_state(job, state, reason, exit_code or "0:0", nodes))]


def _note(line: TextLine, node: str, name: str, value: str) -> Note:
    return note(
        line, SettingRead(**unplaced(node), component=f"node/{node}", name=name, value=value[:500])
    )
