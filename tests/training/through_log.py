"""Whether what real ranks were told went through the log, and whether the log can be replayed."""

from collections.abc import Iterable

from nemesis import __version__
from nemesis.processors.fold import Input
from nemesis.replay.verify import plans_of, verify_log
from nemesis.replay.versions import maker
from nemesis.schemas.decided import QuiesceDecided, RecoveryDecided
from nemesis.schemas.done import AttemptCompleted, AttemptStarted
from nemesis.schemas.facts import Record


def judge_log(records: Iterable[Record]) -> None:
    """A decision lies in the log before anybody begins with it, and that before it is done; every
    processor says again, byte for byte, what it said.

    Raises:
        AssertionError: it is not so.
    """
    records = list(records)
    decided: dict[str, int] = {}
    begun: dict[str, int] = {}
    for record in records:
        match Input(record).decoded():
            case QuiesceDecided() | RecoveryDecided() as decision:
                assert decision.decision not in decided, f"{decision.decision} was decided twice"
                decided[decision.decision] = record.seq
            case AttemptStarted() as claim:
                assert claim.decision in decided, f"{claim.decision} was begun before it was read"
                begun[claim.decision] = record.seq
            case AttemptCompleted() as outcome:
                assert outcome.decision in begun, f"{outcome.decision} was done by nobody"
            case _:
                pass
    report = verify_log(records, plans_of(records), {}, maker(__version__))
    assert report.verdict == "equal", report.first
    assert report.unknown_facts == {}
    assert sum(each.equal_count for each in report.processors) >= len(decided) > 0
