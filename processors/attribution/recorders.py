"""The latest flight-recorder digest of each rank, and when it is time to read them together.

Why: in a healthy job some rank is always ahead of the others; only what stays so is a hang. How: a
job's digests are judged when one shows an operation pending for as long as a setting says, or when
none has changed for so long; what no save explains is told as soon as the job is known to stand,
and who did not call as soon as its stack shows that it is stuck.
For those of the other ranks there is a moment to arrive; what a digest shows that is older than the
job's latest step is over. Not here:
what they prove (collectives.py).
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from nemesis.processors.attribution.collectives import (
    judge_calls,
    judge_collectives,
    judge_sure,
)
from nemesis.processors.attribution.findings import Finding
from nemesis.processors.attribution.inventory import Inventory
from nemesis.processors.attribution.rank_stacks import RankStacks, Stood, is_shown, with_stacks
from nemesis.processors.attribution.steps import Steps
from nemesis.processors.attribution.wait_graph import Seen
from nemesis.schemas.facts import Fact

SECOND_NS: Final = 1_000_000_000
# Saving a checkpoint legitimately keeps the others waiting for tens of seconds; NCCL's own limit is
# 600 s (torch, kProcessGroupNCCLDefaultTimeout)
STALL_NS: Final = 60 * SECOND_NS
SURE_NS: Final = 8 * SECOND_NS  # collectives of training take milliseconds
GATHER_NS: Final = 2 * SECOND_NS  # ranks dump when one tells them to, within a second or two
FORGET_NS: Final = 600 * SECOND_NS


class JobRecorders(msgspec.Struct):
    """The digests of one job."""

    seen: dict[int, Seen] = {}
    changed_ns: int = 0
    """Log time of the last digest that said something new."""
    ripe: bool = False
    """An operation was pending for as long as makes a hang."""
    judged: bool = False
    """Nothing is new since they were judged."""
    compared: bool = False
    """Nothing is new since it was looked whether all called the same."""
    weighed: bool = False
    """Nothing is new since it was looked for what no save explains."""
    timed: bool = False
    """Nothing is new since it was looked how long they wait."""
    shown_ns: int = 0
    """Log time of the last stack that was looked at beside them."""


class Recorders(msgspec.Struct):
    """The digests of all jobs."""

    jobs: dict[str, JobRecorders] = {}

    def take(self, fact: Fact, stall_ns: int) -> None:
        """Take up a digest; an older one than is known is ignored."""
        data = fact.data
        if fact.late and data.job not in self.jobs:
            return
        job = self.jobs.setdefault(data.job, JobRecorders())
        known = job.seen.get(data.rank)
        if known is not None and known.at_ns > data.at_ns:
            return
        seen = Seen(
            fact=fact.id,
            seq=fact.seq,
            node=fact.key,
            at_ns=data.at_ns,
            error_ns=data.clock_error_ns,
            entry_count=data.entry_count,
            missing=data.dump_missing,
            groups=data.groups,
        )
        job.seen[data.rank] = seen
        if not job.ripe and _is_ripe(seen, stall_ns):
            job.ripe, job.judged = True, False
        if known is None or (known.groups, known.missing) != (seen.groups, seen.missing):
            job.changed_ns, job.judged, job.compared = fact.log_time_ns, False, False
            job.timed = job.weighed = False

    def forget(self, job: str) -> None:
        """The job is over, or goes on in another membership."""
        self.jobs.pop(job, None)

    def waiting(self) -> list[tuple[str, int]]:
        """(job, when its ranks entered the collective that most of them wait in), where new."""
        found: list[tuple[str, int]] = []
        for job, recorders in self.jobs.items():
            if not recorders.timed:
                recorders.timed = True
                found.append((job, _waiting_since(recorders.seen.values())))
        return [(job, since_ns) for job, since_ns in found if since_ns]

    def early(self, job: str, now_ns: int) -> Finding | None:
        """What the recorders of a job prove that is known to stand, before a hang is sure: to be
        believed only where something else says the same."""
        recorders = self.jobs.get(job)
        if recorders is None or now_ns - recorders.changed_ns < GATHER_NS:
            return None
        return judge_collectives(job, recorders.seen)

    def judge(
        self,
        now_ns: int,
        stall_ns: int,
        inventory: Inventory,
        steps: Steps,
        stacks: RankStacks,
    ) -> list[tuple[str, Finding | None, list[str]]]:
        """(job, what its recorders prove, nodes of the culprits) of those whose time has come."""
        found: list[tuple[str, Finding | None, list[str]]] = []
        for job, recorders in sorted(self.jobs.items()):
            waited_ns = now_ns - recorders.changed_ns
            if waited_ns > FORGET_NS and recorders.judged:
                del self.jobs[job]
            if recorders.judged or waited_ns < GATHER_NS:
                continue
            recorders.seen = {
                rank: seen
                for rank, seen in recorders.seen.items()
                if not steps.has_got_on_since(job, seen.at_ns + seen.error_ns)
            }
            if not recorders.seen:
                del self.jobs[job]  # they show a moment that is over
                continue
            is_told, finding = _judged(
                job, recorders, now_ns, stall_ns, steps=steps, stood=stacks.since(job, steps)
            )
            if not is_told:
                continue
            culprits = finding.culprits if finding is not None else ()
            nodes = {_node(job, name, recorders, inventory) for name in culprits}
            found.append((job, finding, sorted(nodes - {""})))
        return found


def _judged(
    job: str,
    recorders: JobRecorders,
    now_ns: int,
    stall_ns: int,
    *,
    steps: Steps,
    stood: Mapping[int, Stood],
) -> tuple[bool, Finding | None]:
    """(whether there is anything to tell, what), as far as patience and stacks allow."""
    waited_ns = now_ns - recorders.changed_ns
    if waited_ns >= (GATHER_NS if recorders.ripe else stall_ns):
        recorders.judged = recorders.compared = True
        finding = judge_collectives(job, recorders.seen)
        return True, finding and with_stacks(finding, stood)
    finding = None
    if _is_news(stood, recorders, now_ns):
        recorders.shown_ns = now_ns
        whole = judge_collectives(job, recorders.seen)
        if whole is not None and is_shown(whole, stood):
            finding = with_stacks(whole, stood)
    elif not recorders.weighed and waited_ns >= SURE_NS and steps.stands(job, now_ns):
        recorders.weighed = True
        finding = judge_sure(job, recorders.seen)
    elif not recorders.compared:
        # what was called cannot change any more, however long one waits
        recorders.compared = True
        finding = judge_calls(job, recorders.seen)
    return finding is not None, finding


def _is_news(stood: Mapping[int, Stood], recorders: JobRecorders, now_ns: int) -> bool:
    """Whether stacks came that nobody looked at, and all that come with them are here."""
    last_ns = max((each.known_ns for each in stood.values() if each.is_stuck), default=0)
    return last_ns > recorders.shown_ns and now_ns - last_ns >= GATHER_NS


def _waiting_since(recorders: Iterable[Seen]) -> int:
    """When the middle one entered the collective that most wait in; 0 if fewer than half do."""
    entered: dict[tuple[str, int], list[int]] = {}
    count = 0
    for seen in recorders:
        count += 1
        for group in seen.groups:
            operation = group.first_unfinished
            if operation is not None and operation.created_ns and not operation.p2p:
                entered.setdefault((group.name, operation.seq), []).append(operation.created_ns)
    most = max(entered.values(), key=len, default=[])
    return sorted(most)[len(most) // 2] if 2 * len(most) > count else 0


def _is_ripe(seen: Seen, stall_ns: int) -> bool:
    """Whether an operation was pending for longer than stall_ns when the recorder was read."""
    pending = [each.first_unfinished for each in seen.groups]
    return any(
        operation is not None
        and operation.created_ns > 0
        and seen.at_ns - operation.created_ns >= stall_ns
        for operation in pending
    )


def _node(job: str, name: str, recorders: JobRecorders, inventory: Inventory) -> str:
    rank = int(name.rpartition("/")[2])
    seen = recorders.seen.get(rank)
    return inventory.node_of_rank(job, rank) or (seen.node if seen else "")
