"""What completed recoveries changed: who left a job, who moved, which incident is over."""

import msgspec

from nemesis.processors.attribution.inventory import Inventory
from nemesis.schemas.decided import RecoveryDecided
from nemesis.schemas.errors import BadNameError
from nemesis.schemas.rank_ranges import parse_ranks

DECISIONS_MAX = 256  # decisions that nobody completes are forgotten, oldest first


class _Decided(msgspec.Struct, array_like=True):
    incident: str
    job: str
    removed: tuple[int, ...]
    moved: dict[int, str]
    members: str = ""


class Recoveries(msgspec.Struct):
    """Decisions about jobs that are not completed yet."""

    open: dict[str, _Decided] = {}

    def decide(self, data: RecoveryDecided) -> None:
        """Take note of a decision; whether it is carried out is another fact."""
        moved = {rank: each.node for each in data.placements for rank in _ranks(each.ranks)}
        self.open[data.decision] = _Decided(
            data.incident, data.job, data.removed_ranks, moved, data.members
        )
        while len(self.open) > DECISIONS_MAX:
            del self.open[next(iter(self.open))]

    def is_leaving(self, job: str, rank: int) -> bool:
        """Whether a rank is being removed on purpose: its end is no symptom."""
        return any(each.job == job and rank in each.removed for each in self.open.values())

    def complete(self, decision: str, inventory: Inventory) -> tuple[str, str]:
        """Take effect; the job and the incident that is over by it, "" where not known."""
        decided = self.open.pop(decision, None)
        if decided is None:
            return "", ""
        places = inventory.jobs.get(decided.job)
        if places is not None:
            places.moved.update(decided.moved)
            back = {*decided.moved, *(_ranks(decided.members) if places.gone else ())}
            places.gone = sorted({*places.gone, *decided.removed} - back)
        return decided.job, decided.incident


def _ranks(text: str) -> tuple[int, ...]:
    """The ranks of a spelling; one that is none names nobody."""
    try:
        return parse_ranks(text)
    except BadNameError:
        return ()
