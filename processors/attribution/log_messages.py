"""What one line of a program's log says, as far as it bears on faults of a training job.

Why: a line is evidence only once it is known who prints it and when. How: one pattern a message,
tried in order; what none knows says nothing. Not here: whose line it is and whether it is worth a
fact (the producers), what lines prove together (watchdog_findings.py and its neighbours).
"""

from typing import Final

from nemesis.processors.attribution import (
    collective_lines,
    host_lines,
    network_lines,
    program_lines,
)
from nemesis.processors.attribution.log_message import LogMessage
from nemesis.processors.attribution.severity import is_severe
from nemesis.schemas.codes import LogSource

_READ: Final = (
    collective_lines.timeout,
    collective_lines.group_state,
    collective_lines.call_differs,
    collective_lines.store_wait,
    collective_lines.launched,
    network_lines.network,
    network_lines.adapters,
    network_lines.plugins,
    host_lines.versions,
    host_lines.board,
    host_lines.containers,
    host_lines.scheduler,
    host_lines.host,
    network_lines.ports,
    program_lines.health,
    program_lines.errors,
)


def parse_line(source: LogSource, text: str) -> LogMessage | None:
    """The message in a line, None where it says nothing that a rule knows."""
    for read in _READ:
        message = read(text)
        if message is not None:
            return message
    activity = program_lines.activity(text) if source == "program" else None
    message = activity or program_lines.trouble(text) or program_lines.finished(text)
    if message is None and is_severe(text):
        return LogMessage("severe", what=text[:80])
    return message
