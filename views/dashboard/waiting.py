"""Decisions that wait for a person, each with its deadline and the command to type."""

import shlex
from typing import Any, Final

from nemesis.schemas.decided import Decision, RecoveryDecided, RecoveryWithheld
from nemesis.schemas.done import Attempt
from nemesis.schemas.operated import DecisionApproved, DecisionVetoed
from nemesis.schemas.printable import one_line

_ENDS: Final = (DecisionApproved, DecisionVetoed, Attempt, RecoveryWithheld)


class Waiting:
    """Decisions in approval mode that nobody has answered."""

    def __init__(self) -> None:
        self.by_name: Final[dict[str, Decision]] = {}

    def see(self, data: Any) -> bool:
        """Take note of a fact; whether what waits has changed."""
        if isinstance(data, Decision):
            gone = [
                name
                for name, other in self.by_name.items()
                if (other.incident, type(other)) == (data.incident, type(data))
            ]
            for name in gone:  # concluded again
                del self.by_name[name]
            if data.mode == "approve":
                self.by_name[data.decision] = data
            return bool(gone) or data.mode == "approve"
        if isinstance(data, _ENDS) and data.decision in self.by_name:
            del self.by_name[data.decision]
            return True
        return False

    def expire(self, log_time_ns: int) -> list[Decision]:
        """Drop what log time has passed; these."""
        late = [each for each in self.by_name.values() if each.deadline_ns < log_time_ns]
        for each in late:
            del self.by_name[each.decision]
        return late

    def document(self, where: str) -> list[dict[str, Any]]:
        """As the page shows it; `where`: options that name the log."""
        return [_document(each, where) for each in self.by_name.values()]


def _document(decision: Decision, where: str) -> dict[str, Any]:
    name = shlex.quote(decision.decision)
    action, target = "hold", decision.job
    if isinstance(decision, RecoveryDecided):
        action, target = decision.action, decision.target
    return {
        "decision": one_line(decision.decision),
        "incident": one_line(decision.incident),
        "action": action,
        "target": one_line(target),
        "job": one_line(decision.job),
        "reason": one_line(decision.reason),
        "decided_ms": decision.at_ns // 1_000_000,
        "deadline_ms": decision.deadline_ns // 1_000_000,
        "approve": one_line(f"nemesis approve {name}{where} --reason 'seen'"),
        "veto": one_line(f"nemesis veto {name}{where} --reason 'not now'"),
    }
