"""What the healer makes of groups that break though nobody ended, and of ranks that wait to join.

A group that its ranks gave up is held: who is gone shows by not answering. A rank whose process was
started anew beside the job joins at a boundary, once nothing else is wrong with the job. What the
job has saved is kept here too: who starts it anew says how far back that goes.
"""

from collections.abc import Iterable

from nemesis.processors.healer.replicas import world_of
from nemesis.processors.healer.state import HealerState, note, ranks_of
from nemesis.schemas.facts import Fact
from nemesis.schemas.observed import GroupBroken, RankReady
from nemesis.schemas.saved import CheckpointWritten


def take(
    state: HealerState, fact: Fact, data: GroupBroken | RankReady | CheckpointWritten
) -> Iterable[str]:
    """Keep what the fact says; the job for which something may follow from it."""
    job = state.jobs.get(data.job)
    if job is None:
        return ()
    if isinstance(data, CheckpointWritten):
        job.saved = data.step, data.path
        return ()
    if isinstance(data, RankReady):
        # who is left out is a member until that is done, and its next process may be there first
        alive = ranks_of(job.members).difference(job.exited, job.silent)
        if data.rank in alive or data.rank >= world_of(job.submitted):
            return ()
        job.ready = tuple(sorted({*job.ready, data.rank}))
        return (data.job,)
    if fact.late or job.phase != "running" or data.epoch != job.epoch:
        return ()
    if data.node not in (*job.submitted.node_names, *(each.node for each in job.moved)):
        return ()  # of an earlier life of its name
    job.broken = True
    note(job, fact, fact.id)
    return (data.job,)
