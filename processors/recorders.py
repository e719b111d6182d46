"""The latest flight-recorder digest of each rank, and when it is time to read them together.

Why: in a healthy job some rank is always ahead of the others; only what stays so is a hang. How: a
job's digests are judged when an operation has been pending for longer than STALL_NS, or when no
digest has changed for so long; what came later than the digests of the others is waited for. Not
here: what they prove (collectives.py).
"""

from typing import Final

import msgspec

from nemesis.processors.collectives import judge_collectives
from nemesis.processors.findings import Finding
from nemesis.processors.inventory import Inventory
from nemesis.processors.wait_graph import Seen
from nemesis.schemas.facts import Fact

SECOND_NS: Final = 1_000_000_000
# Saving a checkpoint legitimately keeps the others waiting for tens of seconds; NCCL's own limit is
# 600 s (torch, kProcessGroupNCCLDefaultTimeout)
STALL_NS: Final = 60 * SECOND_NS
GATHER_NS: Final = 2 * SECOND_NS  # ranks dump when one tells them to, within a second or two
FORGET_NS: Final = 600 * SECOND_NS


class JobRecorders(msgspec.Struct):
    """The digests of one job."""

    seen: dict[int, Seen] = {}
    changed_ns: int = 0
    """Log time of the last digest that said something new."""
    ripe: bool = False
    """An operation is pending for longer than STALL_NS."""
    judged: bool = False
    """Nothing is new since they were judged."""


class Recorders(msgspec.Struct):
    """The digests of all jobs."""

    jobs: dict[str, JobRecorders] = {}

    def take(self, fact: Fact) -> None:
        """Take up a digest; an older one than is known is ignored."""
        data = fact.data
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
        if not job.ripe and _is_ripe(seen):
            job.ripe, job.judged = True, False
        if known is None or (known.groups, known.missing) != (seen.groups, seen.missing):
            job.changed_ns, job.judged = fact.log_time_ns, False

    def forget(self, job: str) -> None:
        """The job is over, or goes on in another membership."""
        self.jobs.pop(job, None)

    def judge(self, now_ns: int, inventory: Inventory) -> list[tuple[str, Finding, list[str]]]:
        """(job, what its recorders prove, nodes of the culprits) of those whose time has come."""
        found: list[tuple[str, Finding, list[str]]] = []
        for job, recorders in sorted(self.jobs.items()):
            waited_ns = now_ns - recorders.changed_ns
            if waited_ns > FORGET_NS:
                del self.jobs[job]
            if recorders.judged or waited_ns < (GATHER_NS if recorders.ripe else STALL_NS):
                continue
            recorders.judged = True
            finding = judge_collectives(job, recorders.seen)
            if finding is not None:
                nodes = {_node(job, name, recorders, inventory) for name in finding.culprits}
                found.append((job, finding, sorted(nodes - {""})))
        return found


def _is_ripe(seen: Seen) -> bool:
    pending = [each.first_unfinished for each in seen.groups]
    return any(
        operation is not None
        and operation.created_ns > 0
        and seen.at_ns - operation.created_ns >= STALL_NS
        for operation in pending
    )


def _node(job: str, name: str, recorders: JobRecorders, inventory: Inventory) -> str:
    rank = int(name.rpartition("/")[2])
    seen = recorders.seen.get(rank)
    return inventory.node_of_rank(job, rank) or (seen.node if seen else "")
