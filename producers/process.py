"""The end of a rank's process becomes a `process` fact."""

from nemesis.producers.origin import Origin
from nemesis.schemas.observed import ProcessExited


def exit_of(
    origin: Origin, at_ns: int, *, job: str, rank: int, pid: int, returncode: int, fenced: bool
) -> ProcessExited:
    """The fact of an exit, `returncode` as subprocess gives it: negative for a signal."""
    return ProcessExited(
        **origin.stamp("process", at_ns),
        job=job,
        rank=rank,
        pid=pid,
        exit_code=max(returncode, 0),
        signal=max(-returncode, 0),
        fenced=fenced,
    )
