"""A job's beginning and end in the log, written with the operator's credential."""

import getpass
import os
import time
from typing import Final

from nemesis.schemas.facts import encode_conclusion
from nemesis.schemas.operated import JobEnded, JobSubmitted
from nemesis.schemas.tokens import token_of
from nemesis.streams.log import Log

REASON: Final = "nemesis run"


async def submit(log: Log, job: JobSubmitted) -> None:
    """Let NEMESIS know of a job.

    Raises:
        LogUnavailableError: no answer.
    """
    await _publish(log, job)


async def end(log: Log, job: str, *, by: str, reason: str) -> None:
    """The job is over.

    Raises:
        LogUnavailableError: no answer.
    """
    await _publish(log, JobEnded(at_ns=time.time_ns(), by=by, reason=reason, job=job))


async def is_known(log: Log, job: str) -> bool:
    """Whether the log was told of this job; a node may ask.

    Raises:
        LogUnavailableError: no answer.
        UndeliverableError: a server whose nodes may not ask.
    """
    return await log.last(f"nemesis.events.job_submitted.{token_of(job)}") is not None


async def ended(log: Log, job: str) -> None:
    """Wait until somebody says that the job is over."""
    subject = f"nemesis.events.job_ended.{token_of(job)}"
    async for _ in log.follow((await log.bounds()).last_seq + 1, subject=subject):
        return


def who() -> str:
    """The login name of who started this, or the number where there is none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"


async def _publish(log: Log, data: JobSubmitted | JobEnded) -> None:
    subject, payload = encode_conclusion(
        id=f"operator/{data.by}/{data.at_ns}/{os.getpid()}",
        source=f"/operators/{data.by}",
        at_ns=data.at_ns,
        data=data,
        key=data.job,
    )
    await log.publish(subject, payload)
