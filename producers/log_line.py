"""A line of a program's log that may tell of a fault becomes a `log` fact."""

from nemesis.producers.origin import Origin
from nemesis.schemas.codes import LogSource
from nemesis.schemas.observed import LogLineWritten


def log_line_of(
    origin: Origin,
    at_ns: int,
    *,
    source: LogSource,
    text: str,
    job: str = "",
    rank: int = -1,
    pid: int = 0,
) -> LogLineWritten:
    """The fact of one line, without the prefixes of its launcher."""
    return LogLineWritten(
        **origin.stamp("log", at_ns), source=source, text=text, job=job, rank=rank, pid=pid
    )
