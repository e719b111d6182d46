"""What the healer makes of failures that have not come: who leaves, who is watched, who waits.

Three answers. A part that all but surely fails is left; one that likely fails is watched; one
that most likely does not is left all the same where a failure would cost the job more than many
needless moves (`Policy.worth_ppm`). The last has nothing but its costs to speak for it. So it has a
mode and a limit of its own, makes way for whatever is more, and where anything stands in its way
it is advice: it never trips a breaker that a real recovery needs.
"""

from typing import Final

from nemesis.processors.healer.ladder import Choice, Fault, NoRung
from nemesis.processors.healer.state import (
    PARTS_MAX,
    HealerState,
    JobState,
    Verdict,
    bounded,
)
from nemesis.schemas.components import node_of
from nemesis.schemas.facts import Fact
from nemesis.schemas.inferred import FailurePredicted
from nemesis.schemas.policy import PREDICTED_ACT, PREDICTED_WATCH, PREDICTED_WORTH, Policy

SOON_NS: Final = 3 * 3600 * 1_000_000_000
"""What comes within the longest horizon of a model is moved away from; what may come within weeks
is for a person, between jobs."""


def suspect(state: HealerState, predicted: FailurePredicted) -> None:
    """Its node is no good spare while a part is likely to fail, and the last one while it may."""
    for each in (state.suspects, state.doubted):
        each.pop(predicted.incident, None)
    node = node_of(predicted.component)
    if not node:
        return
    if predicted.band in ("watch", "act"):
        state.suspects[predicted.incident] = node
    elif predicted.band == "record" and predicted.probability_ppm:
        state.doubted[predicted.incident] = node
    bounded(state.suspects, PARTS_MAX)
    bounded(state.doubted, PARTS_MAX)


def read_prediction(
    policy: Policy, job: JobState, predicted: FailurePredicted, fact: Fact
) -> Verdict | None:
    """A failure that may come, as if it had, of ranks that still live; None: nothing follows."""
    playbook = _playbook(policy, job, predicted)
    if not playbook:
        return None
    node = node_of(predicted.component)
    return Verdict(
        incident=predicted.incident,
        revision=int(playbook == PREDICTED_ACT),
        known=True,
        fault_class=predicted.fault_class,
        signature="",
        target=predicted.component,
        ranks=predicted.ranks if job.submitted.job == predicted.jobs[0] else (),
        bad_nodes=(node,) if node else (),
        seq=fact.seq,
        predicted=playbook,
        chance_ppm=predicted.probability_ppm,
    )


def _playbook(policy: Policy, job: JobState, predicted: FailurePredicted) -> str:
    if predicted.band == "act":
        return PREDICTED_ACT
    soon = 0 < predicted.horizon_ns <= SOON_NS
    if predicted.band != "clear" and soon and predicted.probability_ppm >= worth_ppm(policy, job):
        return PREDICTED_WORTH
    return PREDICTED_WATCH if predicted.band == "watch" else ""


def worth_ppm(policy: Policy, job: JobState) -> int:
    """From which chance on a move is worth its costs for this job as it stands."""
    view = job.view()
    return policy.worth_ppm(len({view.node_of(rank) for rank in view.members}))


def refused(choice: Choice | NoRung, fault: Fault, limit: str) -> Choice:
    """A move by cost that something stands in the way of: no more than advice."""
    others = choice.refused
    if isinstance(choice, Choice):
        others = (*others, f"{choice.action}: {_OBSTACLES.get(limit, f'it would exceed {limit}')}")
    return Choice(action="watch", target=fault.target, refused=others)


_OBSTACLES: Final = {"paused": "it is paused", "vetoed": "a person forbade it"}


def makes_way(job: JobState, fact: Fact) -> bool:
    """Whether a move by cost that nobody has begun with is given up for something that is more.

    What is more is answered as if the move had never been decided, under a name of its own.
    """
    pending = job.pending
    if pending is None or not pending.by_cost or pending.claim_deadline_ns:
        return False
    sure = [each for each in job.verdicts if each.known and not each.by_cost]
    if not (sure or job.exited or job.silent):
        return False
    job.phase, job.pending = "running", None
    job.opened_ns = max(1, fact.log_time_ns)
    job.incident = sure[0].incident if sure else fact.id
    job.cause = (sure[0].seq if sure else fact.seq,)
    return True
