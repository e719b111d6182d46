"""Writes down what an actor does: claims and outcomes, each once.

A claim is a fact that the log takes only if its subject ends where the claimer believes: of two
copies that try, one is refused and stays out. Each kind of outcome has a subject of its own, one a
decision, that must be empty.
"""

import asyncio
import time
from typing import Final

import msgspec

from nemesis.actors.claims import Claims, Due
from nemesis.schemas.done import Attempt, AttemptStarted, MembershipReported
from nemesis.schemas.facts import decode_conclusion, encode_conclusion
from nemesis.schemas.registry import BY_STRUCT
from nemesis.streams.errors import LogFullError, LogUnavailableError, PositionMovedError
from nemesis.streams.log import Log

CLAIM_NS: Final = 30_000_000_000
"""Log time after which another copy may take an attempt over, unless the claim was made longer."""
RETRY_S: Final = 0.2


class Notary:
    """One life of one copy of an actor, as a writer of facts."""

    def __init__(self, log: Log, claims: Claims) -> None:
        self._log: Final = log
        self._claims: Final = claims
        self._life: Final = f"{claims.actor}/{time.time_ns()}"

    async def claim(self, due: Due) -> int:
        """Sequence of our claim, or 0 where another copy was first."""
        return await self._claim(due, f"claim/{due.attempt}")

    async def extend(self, due: Due, claim_seq: int) -> int:
        """Sequence of a longer claim in the place of ours, or 0 where another copy took it over."""
        longer = msgspec.structs.replace(due, expected_seq=claim_seq)
        return await self._claim(longer, f"claim/{due.attempt}/{claim_seq}")

    async def _claim(self, due: Due, what: str) -> int:
        decision, now_ns = due.decision, self._claims.log_time_ns
        started = AttemptStarted(
            at_ns=now_ns,
            reason=f"{self._claims.actor} carries out {decision.decision}.",
            decision=decision.decision,
            actor=self._claims.actor,
            job=decision.job,
            epoch=decision.epoch,
            deadline_ns=now_ns + CLAIM_NS,
            attempt=due.attempt,
        )
        return await self._once(started, decision.decision, what, due.expected_seq)

    async def end(self, outcome: Attempt) -> int:
        """Sequence of the outcome, or 0 where one of its kind was written before."""
        return await self._once(outcome, outcome.decision, "end", 0)

    async def report(self, membership: MembershipReported) -> int:
        """Sequence of the membership that agents made, or 0 where it was written before."""
        key = f"{membership.job}/{membership.epoch}"
        return await self._once(membership, key, "membership", 0)

    async def _once(
        self, data: Attempt | MembershipReported, key: str, what: str, expected_seq: int
    ) -> int:
        identity = f"{self._life}/{key}/{what}"
        subject, payload = encode_conclusion(
            id=identity, source="/actors/job", at_ns=data.at_ns, data=data, key=key, job=data.job
        )
        while True:
            try:
                return await self._log.publish(
                    subject, payload, expected_last_subject_seq=expected_seq
                )
            except PositionMovedError:
                return await self._ours(subject, data, identity)
            except (LogUnavailableError, LogFullError):
                await asyncio.sleep(RETRY_S)

    async def _ours(self, subject: str, data: Attempt | MembershipReported, identity: str) -> int:
        """Our own fact's sequence where an earlier try was stored and its answer lost."""
        while True:
            try:
                last = await self._log.last(subject)
            except LogUnavailableError:
                await asyncio.sleep(RETRY_S)
                continue
            if last is None:
                return 0
            event, _ = decode_conclusion(BY_STRUCT[type(data)].token, last.payload)
            return last.seq if event.id == identity else 0
