"""When a run is over: everything is answered and has settled, or will not be.

Pure: asked again and again with what is known by then.
"""

from collections.abc import Sequence
from typing import Final

from nemesis.schemas.facts import Fact
from nemesis.sim.faults.scenario import Scenario
from nemesis.sim.faults.symptoms import Fault
from nemesis.sim.truth.ledger import FaultInjected, MembershipFormed
from nemesis.sim.truth.score import Score, score

SECOND_NS: Final = 1_000_000_000
SETTLE_NS: Final = 3 * SECOND_NS  # simulated: a few steps of the new epoch, a last revision
PATIENCE_NS: Final = 90 * SECOND_NS  # simulated: a window of a minute, and what follows from it


class Ending:
    """Watches one run for its end."""

    def __init__(
        self,
        scenario: Scenario,
        faults: Sequence[Fault],
        *,
        speed: float = 1.0,
        patience_ns: int = PATIENCE_NS,
    ) -> None:
        """`speed`: patience is real time where simulated time passes faster than NEMESIS thinks."""
        self._scenario: Final = scenario
        self._last_ns: Final = max((each.over_ns for each in faults), default=0)
        self._patience_ns: Final = round(patience_ns * max(1.0, speed))
        self._passed_ns: int | None = None
        self._seen = (-1, -1)

    def is_over(
        self,
        passed_ns: int,
        truths: Sequence[FaultInjected | MembershipFormed],
        facts: Sequence[Fact],
        standing: Sequence[MembershipFormed],
    ) -> bool:
        """Whether to stop now, so long after the start; `standing`: each job's newest step."""
        if self._scenario.duration_s:
            return passed_ns >= self._scenario.duration_s * SECOND_NS
        if passed_ns <= self._last_ns:
            return False
        if (len(truths), len(facts)) != self._seen or self._passed_ns is None:
            self._seen = (len(truths), len(facts))
            if not judged(self._scenario, truths, facts, standing).passed:
                self._passed_ns = None
            elif self._passed_ns is None:
                self._passed_ns = passed_ns
        if self._passed_ns is not None:
            return passed_ns >= self._passed_ns + SETTLE_NS
        return passed_ns >= self._last_ns + self._patience_ns


def judged(
    scenario: Scenario,
    truths: Sequence[FaultInjected | MembershipFormed],
    facts: Sequence[Fact],
    standing: Sequence[MembershipFormed],
) -> Score:
    """The score of a run, as it stands."""
    formed = [each for each in truths if isinstance(each, MembershipFormed)]
    formed += [each for each in standing if each not in formed]
    return score(
        [each for each in truths if isinstance(each, FaultInjected)],
        formed,
        facts,
        expect=scenario.expect,
    )
