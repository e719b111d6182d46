"""Is an incident over, and how did it end?

| what is known | over | outcome |
|---|---|---|
| the new membership's steps go on (job_resumed) | at once | recovered, confirmed |
| the recovery was carried out, no steps are reported | after CONFIRM_NS | recovered |
| the prediction was taken back, nothing else was said | at once | cleared |
| a decision waits for its outcome | when its deadline is long past | expired |
| the verdict was taken back | after CALM_NS | refuted |
| withheld, vetoed, expired, failed: a person must look | after QUIET_NS | the same |
| a prediction is in force | not | |
| decided in shadow or for a person | after CALM_NS | no_action or advised |
| nothing decided | after QUIET_NS | quiet |

All times are quiet: they begin anew with each fact of the incident.
"""

from typing import Final

from nemesis.processors.incident.case import Case
from nemesis.schemas.inferred import IncidentOutcome

SECOND_NS: Final = 1_000_000_000
# a job of thousands of GPUs that restarts loads its checkpoint for minutes before its first step
CONFIRM_NS: Final = 900 * SECOND_NS
CALM_NS: Final = 120 * SECOND_NS  # as long as more evidence joins one incident of attribution
QUIET_NS: Final = 600 * SECOND_NS  # attribution forgets an incident then
NO_ACTIONS: Final = ("none", "watch", "collect_more")


def outcome_of(case: Case, now_ns: int) -> IncidentOutcome | None:
    """How it ended; None while it goes on."""
    quiet_ns = now_ns - case.changed_ns
    if case.standing == "completed":
        return "recovered" if quiet_ns >= CONFIRM_NS else None
    if any(each.is_pending(now_ns) for each in case.decisions.values()):
        return None
    if case.verdict == "no-fault":
        return "refuted" if quiet_ns >= CALM_NS else None
    if case.standing:
        return case.standing if quiet_ns >= QUIET_NS else None
    if any(each.mode != "shadow" and not each.ended for each in case.decisions.values()):
        return "expired" if quiet_ns >= QUIET_NS else None
    if case.band in ("watch", "act"):
        return None
    if case.decisions:
        return _advised(case) if quiet_ns >= CALM_NS else None
    return "quiet" if quiet_ns >= QUIET_NS else None


def _advised(case: Case) -> IncidentOutcome:
    last = list(case.decisions.values())[-1]
    return "no_action" if last.action in NO_ACTIONS else "advised"


WORDS: Final = {
    "recovered": "a new membership goes on",
    "no_action": "no action was needed",
    "advised": "what to do was told to people, nothing was carried out",
    "withheld": "the recovery was withheld and nothing came after",
    "vetoed": "a person forbade the recovery and nothing came after",
    "expired": "nobody carried the decision out",
    "failed": "the recovery failed and nothing came after",
    "refuted": "later evidence refuted it",
    "cleared": "what was predicted was taken back",
    "quiet": "nothing was decided and nothing came after",
}
"""How each end is told."""
