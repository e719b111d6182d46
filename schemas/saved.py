"""What a job says of what it has saved."""

from nemesis.schemas.observed import Count, Index, Observation


class CheckpointWritten(Observation, kw_only=True, frozen=True):
    """A job's own checkpoint is whole, as one of its ranks said by the hook."""

    job: str
    rank: Index
    step: Count
    """After which step."""
    path: str = ""
