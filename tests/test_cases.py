"""Promises of the fold that says what of which incident is to be kept."""

import msgspec

from nemesis.processors.fold import Input
from nemesis.processors.incident.names import incident_of
from nemesis.replay.cases import Cases
from nemesis.schemas.decided import RecoveryDecided
from nemesis.schemas.done import AttemptCompleted
from nemesis.schemas.facts import Record, encode_conclusion
from nemesis.schemas.inferred import IncidentClosed, IncidentGrouped, IncidentOpened
from nemesis.schemas.kept import IncidentArchived
from nemesis.schemas.operated import NoteAdded

LONG_AGO_NS = -1


class Told:
    """Cases that read what is told, one fact a second."""

    def __init__(self) -> None:
        self.cases = Cases()
        self.seq = 100

    def say(self, data: msgspec.Struct, *cause: int) -> int:
        self.seq += 1
        subject, payload = encode_conclusion(
            id=f"x/{self.seq}",
            source="/x",
            at_ns=1,
            data=data,
            key="k",
            cause=" ".join(map(str, cause)),
        )
        self.cases.take(Input(Record(self.seq, subject, self.seq * 10, payload)))
        return self.seq

    def opened(self, incident: str = "i-1", *cause: int) -> int:
        return self.say(
            IncidentOpened(at_ns=1, reason="r", incident=incident, trigger="verdict"), *cause
        )

    def closed(self, *cause: int) -> int:
        return self.say(
            IncidentClosed(at_ns=1, reason="r", incident="i-1", outcome="recovered"), *cause
        )

    def archived(self, to_seq: int, incident: str = "i-1", *, index: int = 0) -> int:
        return self.say(
            IncidentArchived(
                at_ns=1,
                reason="r",
                incident=incident,
                object=f"{incident}/{index}",
                sha256="0" * 64,
                size_bytes=1,
                from_seq=1,
                to_seq=to_seq,
                part_index=index,
            )
        )

    def due(self, before_ns: int = LONG_AGO_NS) -> list[tuple[str, int, int, int, bool]]:
        return [
            (due.incident, due.part_index, due.from_seq, due.last_seq, due.closed)
            for due in self.cases.due(before_ns)
        ]


def test_an_incident_is_due_once_when_it_is_closed() -> None:
    told = Told()
    told.opened("i-1", 40, 60)
    assert told.due() == []
    closed = told.closed()
    assert told.due() == [("i-1", 0, 40, closed, True)]
    told.archived(closed + 3)
    assert told.due() == []
    assert told.cases.case("i-1").is_whole
    told.say(NoteAdded(at_ns=1, by="a", reason="", incident="i-1", text="a remark"))
    assert told.due() == []


def test_one_that_is_open_for_long_is_due_by_age_and_its_rest_when_it_is_closed() -> None:
    told = Told()
    opened = told.opened("i-1", 40)
    assert told.due(opened * 10) == []
    assert told.due(opened * 10 + 1) == [("i-1", 0, 40, opened, False)]
    said = told.archived(opened + 1)
    assert told.due(10**9) == []
    closed = told.closed(40)  # what is drawn from what is kept needs no more of it
    assert told.due() == [("i-1", 1, closed, closed, True)]
    (due,) = told.cases.due(0)
    assert due.expected_seq == said


def test_one_that_is_opened_again_is_due_again() -> None:
    told = Told()
    told.opened()
    told.archived(told.closed())
    again = told.opened("i-1", 90)  # of which the first part has it already
    assert told.due() == []
    closed = told.closed()
    assert told.due() == [("i-1", 1, again, closed, True)]


def test_decisions_members_and_names_after_facts_are_of_the_incident() -> None:
    told = Told()
    decided = RecoveryDecided(
        at_ns=1,
        reason="r",
        decision="llama/1",
        incident="n1/process/1/7",
        mode="act",
        deadline_ns=0,
        action="shrink",
        target="job/llama",
    )
    told.say(decided, 30)
    told.opened("i-1", 50)
    told.opened("i-2", 20)
    for member, rule in (("n1/process/1/7", "cited"), ("i-2", "component")):
        told.say(
            IncidentGrouped(at_ns=1, reason="r", incident="i-1", member=member, rule=rule)  # type: ignore[arg-type]
        )
    done = told.say(AttemptCompleted(at_ns=1, reason="r", decision="llama/1", actor="a"))
    assert told.cases.found("i-2").incident == "i-1"
    assert told.cases.found(incident_of("n1/process/1/7")).incident == "i-1"
    assert list(told.cases.by_id) == ["i-1"]
    assert told.cases.case("i-1").facts[-1].seq == done
    closed = told.closed()
    assert told.due() == [("i-1", 0, 20, closed, True)]


def test_facts_that_came_with_a_member_after_a_part_was_kept_are_kept_too() -> None:
    told = Told()
    told.opened("i-2", 20)
    opened = told.opened("i-1", 50)
    told.say(
        IncidentArchived(
            at_ns=1,
            reason="r",
            incident="i-1",
            object="i-1/0",
            sha256="0" * 64,
            size_bytes=1,
            from_seq=50,
            to_seq=opened,
        )
    )
    told.say(IncidentGrouped(at_ns=1, reason="r", incident="i-1", member="i-2", rule="component"))
    told.closed()
    ((_, index, from_seq, _, _),) = told.due()
    assert (index, from_seq) == (1, 20)
