"""The end of a rank's process becomes a `process` fact."""

from nemesis.producers.origin import Origin
from nemesis.schemas.observed import ProcessExited


def exit_of(
    origin: Origin,
    at_ns: int,
    *,
    job: str,
    rank: int,
    pid: int,
    returncode: int,
    fenced: bool,
    epoch: int = -1,
) -> ProcessExited:
    """The fact of an exit, `returncode` as subprocess gives it: negative for a signal.

    `epoch` is the membership that the process was in, -1 where its agent does not know.
    """
    return ProcessExited(
        **origin.stamp("process", at_ns),
        job=job,
        rank=rank,
        pid=pid,
        exit_code=max(returncode, 0),
        signal=max(-returncode, 0),
        fenced=fenced,
        epoch=epoch,
    )
