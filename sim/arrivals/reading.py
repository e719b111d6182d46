"""An arrival trace as Helios and Acme publish theirs: a CSV file, plain or packed.

Columns that must be there: job_id, gpu_num, submit_time, and end_time with start_time, or duration.
`vc`, else `user`, is the team. A job runs from start_time to end_time; `duration`, which in Kalos'
file also counts the time in the queue, is taken only where one of them is missing.

Schemas: README.md of S-Lab-System-Group/HeliosData (SC '21) and of InternLM/AcmeTrace (NSDI '24).
"""

import csv
import io
import zlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from nemesis.producers.readers.text_lines import opened
from nemesis.schemas.errors import BadNameError
from nemesis.schemas.tokens import token_of
from nemesis.sim.arrivals.arrival import Arrival, BadTraceError, Trace

NEEDED: Final = ("job_id", "gpu_num", "submit_time")
JOBS_MAX: Final = 5_000_000
"""Helios has 3.4 million."""
ABSENT: Final = frozenset({"", "none", "nan", "nat", "null"})
"""What stands where a job never began."""
GPUS_MAX: Final = 1_000_000
RUN_S_MAX: Final = 10 * 365 * 86_400
MOMENTS_S: Final = range(365 * 86_400, 230 * 365 * 86_400)
"""From 1971 to 2199."""
TEAM_CHARS_MAX: Final = 100


class _Counts(msgspec.Struct):
    no_gpus: int = 0
    never_ran: int = 0


def read_trace(path: Path) -> Trace:
    """The jobs of a file, by time of submission.

    Raises:
        BadTraceError: not to be read, empty, a column is missing, or a value cannot be; says where.
    """
    counts = _Counts()
    try:
        with opened(path) as raw:
            text = io.TextIOWrapper(raw, encoding="utf-8-sig", newline="")
            found = [*_arrivals(path, text, counts)]
    except UnicodeDecodeError as error:
        raise BadTraceError(f"{path}: not UTF-8, expected a CSV file") from error
    except csv.Error as error:
        raise BadTraceError(f"{path}: {error}, expected a CSV file") from error
    except (EOFError, zlib.error) as error:
        raise BadTraceError(f"{path}: the packed file is broken: {error}") from error
    except OSError as error:
        raise BadTraceError(f"cannot read {path}: {error.strerror or error}") from error
    if not found:
        told = f"{counts.no_gpus} asked for no GPU, {counts.never_ran} never ran"
        raise BadTraceError(f"{path}: no job that ran on GPUs: {told}")
    found.sort(key=lambda each: (each.submitted_s, each.job))
    return Trace(
        source=f"of {path.name}",
        arrivals=tuple(found),
        no_gpu_count=counts.no_gpus,
        never_ran_count=counts.never_ran,
    )


def _arrivals(path: Path, text: io.TextIOWrapper, counts: _Counts) -> Iterator[Arrival]:
    rows = csv.DictReader(text)
    columns = rows.fieldnames or ()
    if not columns:
        raise BadTraceError(f"{path}: empty, expected a CSV file that begins with its columns")
    missing = [name for name in NEEDED if name not in columns]
    if "duration" not in columns:
        missing += [name for name in ("start_time", "end_time") if name not in columns]
    if missing:
        raise BadTraceError(
            f"{path}: no column {missing[0]}, the file has {', '.join(columns)[:200]}",
            hint="the columns are those of HeliosData and AcmeTrace",
        )
    names: set[str] = set()
    for row in rows:
        where = f"{path}:{rows.line_num}"
        arrival = _arrival(where, row, counts)
        if arrival is None:
            continue
        if arrival.job in names:
            raise BadTraceError(f"{where}: job_id {arrival.job[:60]!r} is there twice")
        if len(names) == JOBS_MAX:
            raise BadTraceError(f"{path}: more than {JOBS_MAX} jobs")
        names.add(arrival.job)
        yield arrival


def _arrival(where: str, row: Mapping[str, str | None], counts: _Counts) -> Arrival | None:
    """The job of a row; None where it is none that ran on GPUs."""
    gpus = _number(where, "gpu_num", row)
    if not gpus:
        counts.no_gpus += 1
        return None
    submitted_s = _time(where, "submit_time", row)
    if submitted_s is None:
        raise BadTraceError(f"{where}: submit_time is empty, expected 2020-06-09 18:41:01")
    began_s, ended_s = _time(where, "start_time", row), _time(where, "end_time", row)
    if began_s is not None and ended_s is not None:
        run_s = ended_s - began_s
        if run_s < 0:
            raise BadTraceError(f"{where}: end_time is before start_time")
        run_s = max(1, run_s)
    else:
        run_s = _number(where, "duration", row)
    if not run_s:
        counts.never_ran += 1
        return None
    if gpus > GPUS_MAX or run_s > RUN_S_MAX:
        raise BadTraceError(f"{where}: {gpus} GPUs for {run_s} s, expected at most a million and"
                            " ten years")  # fmt: skip
    job = row.get("job_id") or ""
    try:
        token_of(job)
    except BadNameError as error:
        raise BadTraceError(f"{where}: job_id: {error.message}") from error
    team = (row.get("vc") or row.get("user") or "")[:TEAM_CHARS_MAX]
    return Arrival(job, team, gpus, submitted_s, run_s)


def _number(where: str, name: str, row: Mapping[str, str | None]) -> int:
    """A count that may be written as 8 or as 8.0; 0 where there is none."""
    text = (row.get(name) or "").strip()
    if text.lower() in ABSENT:
        return 0
    try:
        number = round(float(text))
    except (ValueError, OverflowError):
        number = -1
    if number < 0:
        raise BadTraceError(f"{where}: {name} {text[:40]!r}, expected a number from 0 up")
    return number


def _time(where: str, name: str, row: Mapping[str, str | None]) -> int | None:
    """Seconds since 1970, in the file's own time where it says no other; None: there is none."""
    text = (row.get(name) or "").strip()
    if text.lower() in ABSENT:
        return None
    try:
        read = datetime.fromisoformat(text)
        moment = read if read.tzinfo is not None else read.replace(tzinfo=UTC)
        second = int(moment.timestamp())
        if second not in MOMENTS_S:
            raise ValueError(second)
    except (ValueError, OverflowError) as error:
        expected = "expected 2020-06-09 18:41:01, with or without +08:00"
        raise BadTraceError(f"{where}: {name} {text[:40]!r}, {expected}") from error
    return second
