"""Whose producers are asked to look more often, for as long as an incident of their node is open.

Why: at 5 s from poll to poll what follows a fault within seconds is one line in the log; at 1 s it
is a course. How: the incidents that are open name components, whose nodes are asked again and
again, each time for a while, so that nobody has to be told when it is over. Only the node that is
suspected, and no longer than ten minutes: a cluster that is asked at once sends five times as much.
Nobody answers and nothing depends on it, so any number of copies may ask. Pure but for `ask`.
"""

from typing import Final

from nemesis.processors.fold import Input
from nemesis.schemas import components
from nemesis.schemas.inferred import FaultAttributed, IncidentClosed, IncidentOpened
from nemesis.schemas.plans import PollPlan, encode_message, poll_plan_subject
from nemesis.streams.connection import Connection
from nemesis.streams.errors import LogUnavailableError

PERIOD_NS: Final = 1_000_000_000
FOR_NS: Final = 30_000_000_000
ASK_S: Final = 10.0
"""A third of the time for which it is asked: two messages may be lost."""
LONGEST_NS: Final = 600_000_000_000
NODES_MAX: Final = 64
"""The newest; more that are suspected at once have one cause outside of them."""


class Suspicion:
    """A fold over what is said of incidents."""

    def __init__(self) -> None:
        self._since_ns: Final[dict[str, int]] = {}
        """Log time at which each open incident was opened."""
        self._nodes: Final[dict[str, set[str]]] = {}

    def take(self, item: Input) -> None:
        """Read one record; they come in order."""
        match item.decoded():
            case IncidentOpened() as opened:
                self._since_ns[opened.incident] = opened.at_ns
                self._suspect(opened.incident, opened.component)
            case FaultAttributed() as verdict if verdict.incident in self._since_ns:
                for culprit in verdict.culprits:
                    self._suspect(verdict.incident, culprit.id)
            case IncidentClosed() as closed:
                self._since_ns.pop(closed.incident, None)
                self._nodes.pop(closed.incident, None)
            case _:
                pass

    def plans(self, log_time_ns: int) -> list[PollPlan]:
        """What is to be asked now, the newest incidents first."""
        over = [i for i, since in self._since_ns.items() if log_time_ns - since > LONGEST_NS]
        for incident in over:
            del self._since_ns[incident]
            self._nodes.pop(incident, None)
        why: dict[str, str] = {}
        for incident in reversed(self._nodes):
            for node in sorted(self._nodes[incident]):
                why.setdefault(node, incident)
        return [
            PollPlan(node=node, period_ns=PERIOD_NS, for_ns=FOR_NS, why=incident)
            for node, incident in list(why.items())[:NODES_MAX]
        ]

    def _suspect(self, incident: str, component: str) -> None:
        node = components.node_of(component)
        if node:
            self._nodes.setdefault(incident, set()).add(node)


async def ask(connection: Connection, plans: list[PollPlan]) -> None:
    """Ask each node's producer; while the server is away nobody is asked."""
    for plan in plans:
        try:
            await connection.publish(poll_plan_subject(plan.node), encode_message(plan))
        except LogUnavailableError:
            return
