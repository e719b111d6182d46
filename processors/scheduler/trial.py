"""What the scheduler would say to a submission now, without anybody having submitted it.

For whoever asks before: the same processor, from a copy of its state, is handed the submission and
answers at once. Nothing is reserved, and a moment later the answer may be another one.
"""

from typing import Final

import msgspec

from nemesis.processors.scheduler.advice_rules import Moment
from nemesis.processors.scheduler.scheduler import Scheduler
from nemesis.schemas.facts import Fact
from nemesis.schemas.operated import JobSubmitted
from nemesis.schemas.scheduled import JobPlaced, JobQueued, JobRejected

BEHIND_SEQ: Final = 2**62
"""Behind everything that a log holds."""


def trial(moment: Moment, job: JobSubmitted) -> JobPlaced | JobQueued | JobRejected:
    """The answer to a submission without nodes, from what the scheduler knows.

    Neither a solver nor advice is waited for. What waits in front of it is let go first, as it
    would be.
    """
    asked = Scheduler()
    asked.restore(msgspec.msgpack.encode(moment.state))
    alone = msgspec.structs.replace(moment.settings, solver_wait_ns=0, advice_wait_ns=0)
    asked.configure(msgspec.json.encode(alone))
    fact = Fact(
        seq=BEHIND_SEQ,
        kind="job_submitted",
        key=job.job,
        id="trial",
        at_ns=moment.now_ns,
        log_time_ns=moment.now_ns,
        late=False,
        data=job,
    )
    for said in asked.step(fact):
        data = said.data
        if isinstance(data, JobPlaced | JobQueued | JobRejected) and data.job == job.job:
            return data
    raise AssertionError("a job that waits for the first time is told why")
