"""`scontrol show node`, `sinfo -R` and slurmctld: the state of nodes, and why they were taken out.

slurmctld says itself what a node has too little of (SchedMD/slurm src/slurmctld/node_mgr.c), slurmd
that it found other hardware than its configuration tells of (src/slurmd/slurmd/slurmd.c); a list
of reasons cuts them at its column's width, and names several nodes as `n[01-03]`.
"""

import re
from collections.abc import Iterable
from typing import Final

from nemesis.producers.readers.notes import Note, Reader, TextLine, note
from nemesis.producers.readers.unplaced import unplaced
from nemesis.schemas.node_ranges import count_nodes, parse_nodes
from nemesis.schemas.observed import SettingRead

_NODE: Final = re.compile(r"\s*NodeName=([\w.-]+)\b")
_STATE: Final = re.compile(r"\bState=([A-Z_+*~#!%$@^-]+)")
_REASON: Final = re.compile(r"\bReason=(.+?)(?: \[\w+@[^\]]*\])?\s*\Z")
_SINFO_HEAD: Final = re.compile(r"REASON\s.*\bNODELIST\s*\Z")
_SINFO_ROW: Final = re.compile(
    r"(\S.*?)(?:\s+\S+\s+(?:\d{4}-\d\d-\d\dT\S+|Unknown)\s+|\s{2,})([A-Za-z][\w.,[\]-]*)\s*\Z"
)
_CONTROLLER: Final = re.compile(
    r"\bnode ([A-Za-z][\w.-]{0,62}) (?:has (?=low )|.{0,40}\breason(?: set to)?[:=] ?)(\S.*)",
    re.IGNORECASE,
)
_DIFFERS: Final = re.compile(r"\bNode configuration differs from hardware: .*")
_OUTER_COMMA: Final = re.compile(r",(?![^\[]*\])")
NODES_MAX: Final = 256


class SchedulerNodes(Reader):
    """Reads states of nodes."""

    starts = (_SINFO_HEAD, _NODE)
    holds = (_CONTROLLER, _STATE, _REASON, _DIFFERS)

    def __init__(self) -> None:
        self._node = ""
        self._table = False

    @property
    def busy(self) -> bool:
        """In a list of reasons."""
        return self._table

    def take(self, line: TextLine) -> Iterable[Note]:
        """A state or a reason."""
        text = line.text
        if _SINFO_HEAD.match(text):
            self.known = self._table = True
            return ()
        if self._table and (match := _SINFO_ROW.match(text)):
            return [_note(line, each, "slurm.reason", match[1]) for each in _nodes(match[2])]
        if "ode " in text and (match := _CONTROLLER.search(text)):
            self.known = True
            return [_note(line, match[1], "slurm.reason", match[2].strip())]
        if match := _DIFFERS.search(text):
            self.known = True
            return [_note(line, line.host, "slurm.reason", match[0])]
        if match := _NODE.match(text):
            self.known, self._node = True, match[1]
        if not self._node:
            return ()
        found = [
            _note(line, self._node, name, match[1])
            for name, pattern in (("slurm.state", _STATE), ("slurm.reason", _REASON))
            if (match := pattern.search(text))
        ]
        return found


def _nodes(names: str) -> list[str]:
    """The nodes of a list, `n[01-03]` written out."""
    ranges: list[str] = []
    for each in _OUTER_COMMA.split(names):
        stem, bracket, inner = each.rstrip("]").partition("[")
        parts = inner.split(",") if bracket else [""]
        ranges += [f"{stem}[{part}]" if "-" in part else stem + part for part in parts]
    return list(parse_nodes(ranges)) if count_nodes(ranges) <= NODES_MAX else []


def _note(line: TextLine, node: str, name: str, value: str) -> Note:
    component = f"node/{node}" if node else "node//"
    return note(
        line, SettingRead(**unplaced(node), component=component, name=name, value=value[:500])
    )
