"""What actors did. An attempt opens with a claim that only one actor can make and ends once."""

from nemesis.schemas.inferred import Inference
from nemesis.schemas.observed import Count, Ns


class Attempt(Inference, kw_only=True, frozen=True):
    """What every fact about an attempt starts with. `at_ns` is the log time the actor had read."""

    decision: str
    actor: str
    """Which copy of the actor, for people."""
    job: str = ""
    epoch: Count = 0
    lost: str = ""
    """Ranks that were seen to have ended, in rank_ranges form."""
    silent: str = ""
    """Ranks whose node does not answer."""


class AttemptStarted(Attempt, kw_only=True, frozen=True):
    """The claim: refused by the log if the decision was claimed before."""

    deadline_ns: Ns = 0
    attempt: Count = 1


class AttemptCompleted(Attempt, kw_only=True, frozen=True):
    """The effect was observed."""

    step: Count = 0
    """The step at which the job stands or goes on."""
    world: Count = 0
    duration_ns: Ns = 0
    """From the claim to the effect, by the actor's own clock: for people, never compared."""
    restarts: Count = 0
    """Process restarts that it took."""
    unattached: str = ""
    """All who live, where none of them has ever called the hook: nothing can hold or regroup them,
    in rank_ranges form."""
    stopped: str = ""
    """Of a hold: ranks that cannot be held because their process is stopped by a signal."""


class AttemptFailed(Attempt, kw_only=True, frozen=True):
    """The effect was observed to be absent, and will not come."""

    withdrawn: bool = False
    """Nothing was tried or it became moot: no word against the action."""
    unattached: str = ""
    """As of a completed one; nothing was tried."""


class AttemptOutcomeUnknown(Attempt, kw_only=True, frozen=True):
    """Nobody can say whether the effect took place."""


class MembershipReported(Inference, kw_only=True, frozen=True):
    """The agents of a job went on by themselves while the log was away, as their plan allowed."""

    job: str
    epoch: Count
    members: str
    """Ranks that go on, in rank_ranges form."""
    world: Count = 0
    step: Count = 0
