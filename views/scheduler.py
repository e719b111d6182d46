"""The scheduler's own state as of the end of the log: its last snapshot, and what came after it."""

from typing import Final

from nemesis.processors.fold import Fold, Input
from nemesis.processors.scheduler.advice_rules import Moment
from nemesis.processors.scheduler.scheduler import Scheduler
from nemesis.schemas.errors import NemesisError
from nemesis.streams.log import Log
from nemesis.streams.position import read_snapshot

NAME: Final = "scheduler"


class NoSchedulerError(NemesisError):
    """The log has no scheduler whose state this release could read."""

    exit_code = 3


async def moment_at_end(log: Log) -> Moment:
    """What the scheduler knows once it has read all that lies there now.

    Raises:
        NoSchedulerError: none is active, or of another version.
        LogUnavailableError: the log does not answer.
    """
    _, taken = await read_snapshot(log, log.states, NAME)
    scheduler = Scheduler()
    fold = Fold(scheduler)
    if taken is not None:
        fold.restore(taken.state)
    last_seq = (await log.bounds()).last_seq
    async for record in log.read_range(fold.seq + 1, last_seq):
        if fold.superseded_by is not None or fold.lacks:
            break
        fold.step(Input(record))
    if not fold.active or fold.superseded_by is not None:
        raise NoSchedulerError(
            "no scheduler of this release is at work in this log",
            hint="`nemesis status` tells its version; `nemesis activate scheduler` takes this one",
        )
    return scheduler.moment(fold.log_time_ns)
