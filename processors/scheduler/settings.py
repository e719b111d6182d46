"""What a cell may set of the scheduler, by its activation; all of it has a default."""

from collections.abc import Mapping
from typing import Final

import msgspec

from nemesis.schemas.errors import MalformedFactError
from nemesis.schemas.observed import Count, Ns

SECOND_NS: Final = 1_000_000_000
HOUR_NS: Final = 3600 * SECOND_NS
DAY_NS: Final = 24 * HOUR_NS
YEAR_NS: Final = 365 * DAY_NS
RUNTIME_MAX_YEARS: Final = 100
"""Whoever says more is taken to say so much: an end in 292 years or later fits into no fact."""


class Settings(
    msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True, forbid_unknown_fields=True
):
    """The scheduler's settings; a field that is not known is refused."""

    shares: Mapping[str, Count] = {}
    """By team: with twice the share it has had twice as much before it stands behind. 1 for whom
    it does not name."""
    share_half_life_ns: Ns = 7 * DAY_NS
    """What a team had so long ago counts half: Slurm's PriorityDecayHalfLife, seven days."""
    runtime_ns: Ns = DAY_NS
    """How long a job is taken to run that does not say."""
    probation_ns: Ns = DAY_NS
    """A node that was at fault works for no job for so long after, and may be a spare."""

    move_ns: Ns = 300 * SECOND_NS
    """What a move costs a job: to save, to restart, to do again what was lost. An assumption; what
    `nemesis goodput` shows of one's own jobs is better."""
    settle_ns: Ns = 3 * SECOND_NS
    """Nobody is placed for so long after a node or switch told something new of itself: when a cell
    starts, inventories trickle in, and the first nodes are not the best."""
    solver_wait_ns: Ns = 0
    """How long a solver's proposal is waited for where our own place is not proven to be the best;
    0: no solver is asked."""
    follow_advice: bool = False
    """Take up what an advisor proposes where it passes the rules; else it is recorded."""
    advice_wait_ns: Ns = 0
    """A job that has a place is held back so long at most for somebody to advise on it."""

    def runs_ns(self, said_ns: int) -> int:
        """How long a job is taken to run that says so; 0: it does not say."""
        return min(said_ns or self.runtime_ns, RUNTIME_MAX_YEARS * YEAR_NS)

    def broken(self) -> tuple[str, ...]:
        """One sentence for each rule that these settings break."""
        said = [
            f"{name} must be {least_ns // SECOND_NS} s to a year."
            for name, least_ns in (("share_half_life_ns", HOUR_NS), ("runtime_ns", SECOND_NS))
            if not least_ns <= getattr(self, name) <= YEAR_NS
        ]
        said += [
            f"{name} must be at most an hour."
            for name in ("move_ns", "settle_ns", "solver_wait_ns")
            if getattr(self, name) > HOUR_NS
        ]
        if self.probation_ns > YEAR_NS:
            said.append("probation_ns must be at most a year.")
        if self.advice_wait_ns > HOUR_NS:
            said.append("advice_wait_ns must be at most an hour.")
        said += [
            f"shares.{team[:60]} must be 1 to 1000000: a team without a share has no job."
            for team, share in self.shares.items()
            if not 1 <= share <= 1_000_000
        ]
        return tuple(said)


_decoder: Final = msgspec.json.Decoder(Settings)


def decode_settings(document: bytes) -> Settings:
    """The settings in a JSON object.

    Raises:
        MalformedFactError: not settings of the scheduler, or they break a rule; names each.
    """
    try:
        settings = _decoder.decode(document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedFactError(f"scheduler: {error}") from error
    if broken := settings.broken():
        raise MalformedFactError(f"scheduler: {' '.join(broken)}")
    return settings
