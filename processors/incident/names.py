"""How an incident is called, and by which name a fact says that it belongs to one.

An incident is named by the fact that opened it. Attribution makes a short name of that fact's id; a
decision that comes before there is a verdict names the fact itself. Both are the same name here.
"""

from hashlib import sha256
from typing import Any, Final

from nemesis.schemas.decided import Decision, RecoveryWithheld
from nemesis.schemas.done import Attempt
from nemesis.schemas.inferred import (
    FailurePredicted,
    FaultAttributed,
    IncidentClosed,
    IncidentCosted,
    IncidentGrouped,
    IncidentOpened,
    JobResumed,
)
from nemesis.schemas.operated import DecisionApproved, DecisionVetoed, NoteAdded

_OF_INCIDENTS: Final = (
    FaultAttributed,
    FailurePredicted,
    Decision,
    RecoveryWithheld,
    NoteAdded,
    IncidentOpened,
    IncidentGrouped,
    IncidentClosed,
    IncidentCosted,
)
_OF_DECISIONS: Final = (Attempt, DecisionApproved, DecisionVetoed, JobResumed)


def incident_of(opened_by: str) -> str:
    """The name of the incident that this fact opened; what is no fact's id is a name already."""
    if "/" not in opened_by:
        return opened_by
    return f"i-{sha256(opened_by.encode()).hexdigest()[:10]}"


def incident_named(data: Any) -> str:
    """The incident that a fact names, "" where it names none."""
    return incident_of(data.incident) if isinstance(data, _OF_INCIDENTS) else ""


def decision_named(data: Any) -> str:
    """The decision that a fact names, "" where it names none."""
    return str(data.decision) if isinstance(data, (Decision, *_OF_DECISIONS)) else ""
