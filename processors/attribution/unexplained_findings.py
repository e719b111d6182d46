"""What was told and no rule explains: an all-clear beside it would be false.

Why: nobody's list of messages is complete. How: where rules find nothing, lines that tell of an
end or of trouble are cited, and it is said that they do not tell what failed.
"""

from collections import Counter
from typing import Final

from nemesis.processors.attribution import wanted
from nemesis.processors.attribution.findings import UNEXPLAINED, Finding
from nemesis.processors.attribution.report_rules import proofs, shown
from nemesis.processors.attribution.reports import Told

_KINDS: Final = (
    "trouble",
    "follower",
    "peer_closed",
    "group_state",
    "device_error",
    "first_failure",
    "exception",
)
TELLERS_MIN: Final = 2


def judge_unexplained(told: Told) -> list[Finding]:
    """That something failed, where nothing says what."""
    said = told.of(*_KINDS)
    if not said:
        return []
    gone = Counter(each.message.device for each in told.of("peer_closed"))
    lost = sorted(host for host, count in gone.items() if count >= TELLERS_MIN)
    reason = f"something ended {told.job}, and these lines do not say what"
    if lost:
        reason = f"processes on {shown(lost)} were gone before the others; why is not said"
    return [
        Finding(
            verdict="insufficient",
            fault_class="unknown",
            reason=reason,
            confidence_ppm=0,
            level=UNEXPLAINED - 1,
            proofs=proofs(said, "it tells that something failed, or follows from it"),
            jobs=(told.job,),
            missing=(wanted.RANKS_OUTPUT, wanted.KERNEL_LOGS, wanted.ALL_DUMPS),
        )
    ]
