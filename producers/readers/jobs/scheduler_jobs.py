"""`scontrol show job` and `kubectl describe node`: how a job ended, what a node says of itself.

SchedMD/slurm src/api/job_info.c; kubectl's table of conditions, those of node-problem-detector
among them: type, status, two times, a reason in one word, a message.
"""

import re
from collections.abc import Iterable
from typing import Final

from nemesis.producers.readers.jobs.scheduler_states import job_state, node_condition
from nemesis.producers.readers.notes import Note, Reader, TextLine, note

_JOB: Final = re.compile(r"\s*JobId=(\d+(?:_\d+)?)\b")
_STATE: Final = re.compile(r"\bJobState=(\w+)(?: Reason=(\S+))?")
_EXIT: Final = re.compile(r"\bExitCode=(\d+:\d+)")
_NODES: Final = re.compile(r"(?:\s|^)NodeList=(\S+)")
_NAME: Final = re.compile(r"Name:\s+([A-Za-z0-9][\w.-]{0,62})\s*\Z")
_CONDITIONS: Final = re.compile(r"\s*Type\s+Status\s+LastHeartbeatTime\b")
_CONDITION: Final = re.compile(
    r"\s+(\w+)\s+(True|False|Unknown)\s+(?:\w{3}, \S+ \w+ \d+ [\d:]+ [+-]\d+|<\w+>|\S+)\s+"
    r"(?:\w{3}, \S+ \w+ \d+ [\d:]+ [+-]\d+|<\w+>|\S+)\s+(\w+)\s*(.*)\Z"
)


class SchedulerJobs(Reader):
    """Reads a job over several lines, a node's conditions row by row."""

    starts = (_JOB, _NAME, _CONDITIONS, _CONDITION)
    holds = (_STATE, _EXIT, _NODES)

    def __init__(self) -> None:
        self._job = self._state = self._reason = self._exit = ""
        self._line: TextLine | None = None
        self._node = ""
        self._table = False

    def take(self, line: TextLine) -> Iterable[Note]:
        """The job before, where this line begins another one; a condition."""
        text = line.text
        if match := _CONDITION.match(text) if self._table else None:
            says = f"{match[3]} {match[4]}".strip()
            return [note(line, node_condition(self._node, match[1], match[2], says))]
        done: list[Note] = []
        if match := _JOB.match(text):
            done = self._done("")
            self.known, self._job = True, match[1]
        elif match := _NAME.match(text):
            self._node = match[1]
        if _CONDITIONS.match(text):
            self.known = self._table = True
        if self._job:
            done += self._of_job(line)
        return done

    def end(self) -> Iterable[Note]:
        """The last job."""
        return self._done("")

    def _of_job(self, line: TextLine) -> list[Note]:
        if match := _STATE.search(line.text):
            self._state, self._reason, self._line = match[1], match[2] or "", line
        if match := _EXIT.search(line.text):
            self._exit = match[1]
        match = _NODES.search(line.text)
        return self._done(match[1]) if match else []

    def _done(self, nodes: str) -> list[Note]:
        head, job = self._line, self._job
        self._line, self._job = None, ""
        if head is None or not job:
            return []
        state = job_state(job, self._state, self._reason, self._exit or "0:0", nodes)
        self._exit = ""
        return [note(head, state)]
