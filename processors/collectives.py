"""Who waits for whom in a job's collectives, read off the flight recorders of its ranks."""

import msgspec

from nemesis.processors.findings import Finding
from nemesis.processors.inventory import Inventory
from nemesis.schemas.facts import Fact


class Recorders(msgspec.Struct):
    """The latest digest of each rank of each job."""

    jobs: dict[str, dict[int, str]] = {}

    def take(self, fact: Fact) -> None:
        """Take up a digest."""

    def forget(self, job: str) -> None:
        """The job is over."""
        self.jobs.pop(job, None)

    def judge(self, now_ns: int, inventory: Inventory) -> list[tuple[str, Finding, list[str]]]:
        """(job, what its recorders prove, nodes of the culprits)."""
        return []
