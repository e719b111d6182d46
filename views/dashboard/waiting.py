"""Decisions that wait for a person, each with its deadline and the command to type."""

import shlex
from typing import Any

from nemesis.schemas.policy import Policy
from nemesis.schemas.printable import one_line
from nemesis.views.hands import Decided, Hands


def document(hands: Hands, where: str) -> list[dict[str, Any]]:
    """As the page shows them; `where`: options that name the log in a command."""
    return [_document(each, where) for each in hands.waiting()]


def mode_of(policy: Policy) -> str:
    """shadow, approve or act: the most that any action may do."""
    modes = {policy.mode, *policy.mode_by_action.values()}
    return next(mode for mode in ("act", "approve", "shadow") if mode in modes)


def _document(decided: Decided, where: str) -> dict[str, Any]:
    name = shlex.quote(decided.decision)
    return {
        "decision": one_line(decided.decision),
        "incident": one_line(decided.incident),
        "action": decided.action,
        "target": one_line(decided.target),
        "job": one_line(decided.job),
        "reason": one_line(decided.reason),
        "decided_ms": decided.decided_ns // 1_000_000,
        "deadline_ms": decided.deadline_ns // 1_000_000,
        "approve": one_line(f"nemesis approve {name}{where} --reason 'seen'"),
        "veto": one_line(f"nemesis veto {name}{where} --reason 'not now'"),
    }
