"""A job's beginning and end in the log, written with the operator's credential."""

import getpass
import os
import time
from collections import Counter
from typing import Any, Final

from nemesis.processors.fold import Input
from nemesis.schemas.errors import MalformedFactError, NemesisError
from nemesis.schemas.facts import decode_conclusion, encode_conclusion, event_subject
from nemesis.schemas.operated import JobEnded, JobSubmitted
from nemesis.schemas.registry import BY_STRUCT
from nemesis.schemas.scheduled import begun
from nemesis.schemas.tokens import token_of
from nemesis.streams.log import Log

REASON: Final = "nemesis run"


class BadJobError(NemesisError):
    """A job that cannot be as it was described."""

    exit_code = 2


def described(**fields: Any) -> JobSubmitted:
    """The job of these fields of a `JobSubmitted`.

    Raises:
        BadJobError: nodes, spares, degrees or the least number of ranks go together in no job.
    """
    try:
        job = JobSubmitted(**fields)
    except ValueError as error:
        raise BadJobError(str(error)) from error
    if not job.node_names:
        raise BadJobError("--nodes names no node, expected a,b,c in the order of the ranks")
    named = Counter((*job.node_names, *job.spares))
    for node, count in named.items():
        if count > 1:
            raise BadJobError(f"node {node[:60]!r} is named {count} times, expected each once")
    world = len(job.node_names) * job.ranks_per_node
    if not 1 <= job.world_min <= world:
        raise BadJobError(f"--world-min {job.world_min}: expected 1 to {world}, its ranks")
    check_degrees(world, tp=job.tp, cp=job.cp, pp=job.pp, ep=job.ep)
    return job


def check_degrees(world: int, *, tp: int, cp: int, pp: int, ep: int) -> None:
    """Tensor, context and pipeline groups divide the ranks, experts those of a stage.

    Raises:
        BadJobError: they do not.
    """
    if world % (tp * cp * pp):
        raise BadJobError(
            f"tp {tp} x cp {cp} x pp {pp} over {world} ranks: expected a product that divides them"
        )
    if world // pp % ep:
        raise BadJobError(f"ep {ep} over the {world // pp} ranks of a stage: expected a divisor")


async def submit(log: Log, job: JobSubmitted) -> int:
    """Let NEMESIS know of a job; the sequence of the fact.

    Raises:
        BadJobError: no reader could read it, as with a number that is too large.
        LogUnavailableError: no answer.
    """
    return await _publish(log, job)


async def end(log: Log, job: str, *, by: str, reason: str, requeued: bool = False) -> int:
    """The job is over, or `requeued`: waits for other nodes; the sequence of the fact.

    Raises:
        LogUnavailableError: no answer.
    """
    at_ns = time.time_ns()
    ended = JobEnded(at_ns=at_ns, by=by, reason=reason, job=job, requeued=requeued)
    return await _publish(log, ended)


async def life_of(log: Log, job: str) -> int | None:
    """Sequence of the fact with which the job began last, 0 where it has yet to be placed; None:
    the log was never told of it. A node may ask.

    Raises:
        LogUnavailableError: no answer.
        UndeliverableError: a server whose nodes may not ask.
    """
    told = [await log.last(event_subject(kind, job)) for kind in ("job_submitted", "job_placed")]
    known = [record for record in told if record is not None]
    begins = (record.seq for record in known if begun(Input(record).decoded()) is not None)
    return max(begins, default=0) if known else None


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


async def _publish(log: Log, data: JobSubmitted | JobEnded) -> int:
    try:
        subject, payload = encode_conclusion(
            id=f"operator/{data.by}/{data.at_ns}/{os.getpid()}",
            source=f"/operators/{data.by}",
            at_ns=data.at_ns,
            data=data,
            key=data.job,
        )
        decode_conclusion(BY_STRUCT[type(data)].token, payload)  # as its readers will
    except MalformedFactError as error:
        raise BadJobError(str(error)) from error
    return await log.publish(subject, payload)
