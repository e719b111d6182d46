"""The job actor's end of the plan channel: plans out, answers and reports in.

Keeps the newest state of every rank as its node's agent told it. Reports of one agent process are
ordered by their number, and an answer says which of them it follows: two messages that arrive
together may be read in either order, and an answer that came first must not undo a report.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from nats.aio.msg import Msg

from nemesis.schemas.errors import MalformedFactError
from nemesis.schemas.plans import (
    ALL_HELLOS,
    ALL_REPORTS,
    Hello,
    Plan,
    PlanAnswer,
    Plans,
    RankState,
    Report,
    decode_message,
    encode_message,
    plan_subject,
)
from nemesis.schemas.tokens import token_of
from nemesis.streams.connection import Connection
from nemesis.streams.errors import LogUnavailableError

ANSWER_TIMEOUT_S: Final = 1.0  # an agent judges a plan in milliseconds
RETRY_S: Final = 0.1


class Channel:
    """Talks to all agents of a cell."""

    def __init__(
        self,
        connection: Connection,
        *,
        ranks_of: Callable[[str], int],
        plans_for: Callable[[str], tuple[Plan, ...] | None],
        on_said: Callable[[Report | PlanAnswer], None],
        on_change: Callable[[], None],
    ) -> None:
        """`ranks_of`: how many ranks a job has, 0 for one that is not known: what is said of others
        is not kept, so that no node can fill our memory; `plans_for`: the last plans of a node, in
        order, or None while they are not known; `on_said` gets what agents say, asked or not;
        `on_change`: some state is newer."""
        self.boot_ids: Final[dict[str, str]] = {}
        self._stores: Final[dict[str, dict[str, str]]] = {}
        self._connection: Final = connection
        self._ranks_of: Final = ranks_of
        self._plans_for: Final = plans_for
        self._on_said: Final = on_said
        self._on_change: Final = on_change
        self._states: Final[dict[str, dict[tuple[str, int], RankState]]] = {}
        self._newest: Final[dict[tuple[str, str], tuple[int, int]]] = {}

    async def open(self) -> None:
        """Listen to agents."""
        await self._connection.subscribe(ALL_REPORTS, self._hear_report)
        await self._connection.subscribe(ALL_HELLOS, self._hear_hello)

    @property
    def lost_count(self) -> int:
        """How often we lost the server ourselves."""
        return self._connection.lost_count

    @property
    def connected(self) -> bool:
        """Whether agents can be heard now, as far as it depends on us."""
        return self._connection.client.is_connected

    def stores(self, job: str) -> dict[str, str]:
        """Per node of a job, `host:port` where its memberships can meet."""
        return {node: store for node, store in self._stores.get(job, {}).items() if store}

    def states(self, job: str) -> dict[tuple[str, int], RankState]:
        """The newest state of each (node, rank) of a job."""
        return self._states.setdefault(job, {})

    async def send(self, node: str, plan: Plan) -> PlanAnswer:
        """Send a plan until the node's agent answers."""
        payload = encode_message(plan)
        while True:
            try:
                reply = await self._connection.request(
                    plan_subject(node), payload, timeout_s=ANSWER_TIMEOUT_S
                )
                answer = decode_message(PlanAnswer, reply.data)
            except (LogUnavailableError, MalformedFactError):
                await asyncio.sleep(RETRY_S)
                continue
            if answer.node == node and answer.job == plan.job:
                self._hear(answer)
                return answer

    async def _hear_report(self, message: Msg) -> None:
        try:
            report = decode_message(Report, message.data)
        except MalformedFactError:
            return  # an agent of another release; its answers will say so again
        if not _is_from(message, report.node) or not self._ranks_of(report.job):
            return
        place, number = (report.node, report.job), (report.start_ns, report.n)
        if number <= self._newest.get(place, (0, 0)):
            return
        self._newest[place] = number
        # also none: the store of an earlier life of the agent may be gone
        self._stores.setdefault(report.job, {})[report.node] = report.store
        self._hear(report)

    async def _hear_hello(self, message: Msg) -> None:
        try:
            hello = decode_message(Hello, message.data)
        except MalformedFactError:
            return
        if not _is_from(message, hello.node):
            return
        self.boot_ids[hello.node] = hello.boot_id
        plans = self._plans_for(hello.node)
        if plans is not None:  # else the agent asks again
            await message.respond(encode_message(Plans(plans=plans)))

    def _hear(self, said: Report | PlanAnswer) -> None:
        self.boot_ids[said.node] = said.boot_id
        newest = self._newest.get((said.node, said.job), (0, 0))
        if not said.start_ns or (said.start_ns, said.n) >= newest:
            count, states = self._ranks_of(said.job), self._states.setdefault(said.job, {})
            of_job = (each for each in said.ranks if each.rank < count)
            states.update({(said.node, each.rank): each for each in of_job})
        self._on_said(said)
        self._on_change()


def _is_from(message: Msg, node: str) -> bool:
    """Whether the sender may speak for the node: the server checked the subject, not the text."""
    return message.subject.split(".")[2] == token_of(node)
