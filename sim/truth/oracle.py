"""An oracle: it sees the hidden state and says of it only what the log can show.

Its score is the ceiling of any processor that reads the log. It speaks in the facts of processors
and is judged by the same rules, so a ceiling below what is attributable is an error of the score.
"""

from collections.abc import Iterator
from typing import Final

from nemesis.schemas.components import kind_of
from nemesis.schemas.facts import Fact
from nemesis.schemas.inferred import Culprit, FaultAttributed
from nemesis.sim.truth.ledger import FaultInjected
from nemesis.sim.truth.ledger_file import Ledger
from nemesis.sim.truth.score import Score, score

SURE_PPM: Final = 1_000_000


def oracle_says(ledger: Ledger) -> Iterator[Fact]:
    """A verdict a fault: its culprit where it is attributable, else that nobody can know."""
    for number, fault in enumerate(ledger.faults):
        if fault.components:
            yield _verdict(number, fault)


def ceiling(ledger: Ledger) -> Score:
    """The oracle's score of a run."""
    return score(ledger.faults, ledger.memberships, oracle_says(ledger))


def _verdict(number: int, fault: FaultInjected) -> Fact:
    named = fault.components[:1] if fault.attributable else ()
    data = FaultAttributed(
        at_ns=fault.at_ns,
        reason="the ledger says so",
        incident=f"oracle-{number}",
        revision=0,
        verdict="attributed" if named else "insufficient",
        fault_class=fault.classes[0],
        culprits=tuple(Culprit(kind=kind_of(each), id=each) for each in named),
        confidence_ppm=SURE_PPM if named else 0,
    )
    return Fact(
        seq=number + 1,
        kind="fault_attributed",
        key=data.incident,
        id=data.incident,
        at_ns=fault.at_ns,
        log_time_ns=fault.at_ns,
        late=False,
        data=data,
    )
