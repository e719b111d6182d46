"""Which slices of which incidents are to be kept: a fold over what the archivist has read back.

Why: samples expire after a day, an incident must replay for ever. How: every fact that names an
incident, and the sequences it was drawn from, belong to the part that is not kept yet; a part is
due when the incident is closed, or when its oldest fact comes of age while it is still open; what
`incident_archived` says is kept drops out. Pure: times are handed in. Not here: copying.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from nemesis.processors.fold import Input
from nemesis.processors.incident.names import decision_named, incident_named, incident_of
from nemesis.schemas.decided import Decision
from nemesis.schemas.errors import NemesisError
from nemesis.schemas.inferred import IncidentClosed, IncidentGrouped, IncidentOpened
from nemesis.schemas.kept import IncidentArchived


class NoSuchIncidentError(NemesisError):
    """The log knows no incident of that name, or several."""

    exit_code = 3


class Named(msgspec.Struct, frozen=True, order=True):
    """One fact of an incident that no part holds yet."""

    seq: int
    needs: tuple[int, ...]
    """Itself and what it was drawn from."""
    stored_ns: int
    at_ns: int


class Case(msgspec.Struct, kw_only=True):
    """What is known of one incident."""

    incident: str
    opened_seq: int = 0
    closed_seq: int = 0
    parts: list[IncidentArchived] = []
    archived_seq: int = 0
    """Sequence of the last `incident_archived`: the next one expects it."""
    facts: list[Named] = []
    """Those that no part holds yet."""

    @property
    def covered_seq(self) -> int:
        """Everything up to here is kept."""
        return self.parts[-1].to_seq if self.parts else 0

    @property
    def from_seq(self) -> int:
        """Where the part that is not kept yet begins."""
        return min(seq for fact in self.facts for seq in fact.needs if not self._has(seq))

    def forget_kept(self) -> None:
        """Let go of the facts that parts hold, with all that they were drawn from."""
        self.facts = [fact for fact in self.facts if not all(map(self._has, fact.needs))]

    def _has(self, seq: int) -> bool:
        return any(part.from_seq <= seq <= part.to_seq for part in self.parts)

    @property
    def is_open(self) -> bool:
        """Whether it goes on."""
        return self.opened_seq > self.closed_seq

    @property
    def is_whole(self) -> bool:
        """Whether it is over and kept from beginning to end."""
        return not self.is_open and self.covered_seq >= self.closed_seq > 0


class Due(msgspec.Struct, frozen=True, kw_only=True):
    """A part that is to be kept now."""

    incident: str
    part_index: int
    from_seq: int
    last_seq: int
    last_stored_ns: int
    last_at_ns: int
    closed: bool
    expected_seq: int
    """Last sequence of the subject on which it is said."""


class Cases:
    """All incidents of the events that passed by."""

    def __init__(self) -> None:
        self.seq = 0
        self.by_id: Final[dict[str, Case]] = {}
        self._other_names: Final[dict[str, str]] = {}
        """Of a decision, a fact or a merged incident -> the incident that it belongs to."""

    def take(self, item: Input) -> None:
        """Read one record; they must come in order."""
        data = item.decoded()
        self.seq = max(self.seq, item.record.seq)
        name = self._name_in(data)
        if item.space != "events" or data is None or not name:
            return
        case = self.case(name)
        if isinstance(data, IncidentArchived):
            self._on_archived(case, data, item.record.seq)
            return
        fact = item.fact(0)
        seq = item.record.seq
        needs = tuple(sorted({seq, *fact.cause}))
        case.facts.append(Named(seq, needs, item.record.stored_ns, fact.at_ns))
        match data:
            case IncidentOpened():
                case.opened_seq = seq
            case IncidentClosed():
                case.closed_seq = seq
            case IncidentGrouped():
                self._on_grouped(case, data.member)
            case _:
                pass

    def case(self, name: str) -> Case:
        """The incident that goes by this name."""
        id = self._known_as(incident_of(name))
        return self.by_id.setdefault(id, Case(incident=id))

    def found(self, name: str) -> Case:
        """The incident of this name, or the only one whose name begins like it.

        Raises:
            NoSuchIncidentError: there is none, or more than one.
        """
        id = self._known_as(incident_of(name))
        alike = [id] if id in self.by_id else [each for each in self.by_id if each.startswith(name)]
        if len(alike) == 1:
            return self.by_id[alike[0]]
        what = f"{len(alike)} incidents begin with" if alike else "no incident"
        raise NoSuchIncidentError(f"{what} {name!r}", hint="`nemesis incident` lists them")

    def due(self, before_ns: int) -> Iterator[Due]:
        """Parts of closed incidents, and of open ones with a fact stored before this time."""
        for case in self.by_id.values():
            over = case.closed_seq > case.covered_seq and not case.is_open
            aged = case.is_open and case.facts and case.facts[0].stored_ns < before_ns
            if (over or aged) and case.facts:
                yield Due(
                    incident=case.incident,
                    part_index=len(case.parts),
                    from_seq=case.from_seq,
                    last_seq=case.facts[-1].seq,
                    last_stored_ns=case.facts[-1].stored_ns,
                    last_at_ns=case.facts[-1].at_ns,
                    closed=over,
                    expected_seq=case.archived_seq,
                )

    def _on_archived(self, case: Case, data: IncidentArchived, seq: int) -> None:
        case.parts.append(data)
        case.archived_seq = seq
        case.forget_kept()

    def _on_grouped(self, case: Case, member: str) -> None:
        """What went by the member's name is of this incident from now on."""
        name = self._known_as(incident_of(member))
        if name == case.incident:
            return
        other = self.by_id.pop(name, None)
        for each in (member, name):
            self._other_names[each] = case.incident
        if other is not None:
            case.parts = sorted([*case.parts, *other.parts], key=lambda part: part.to_seq)
            case.facts = sorted([*case.facts, *other.facts])
            case.forget_kept()

    def _known_as(self, name: str) -> str:
        while (other := self._other_names.get(name)) is not None:
            name = other
        return name

    def _name_in(self, data: Any) -> str:
        incident = data.incident if isinstance(data, IncidentArchived) else incident_named(data)
        decision = decision_named(data)
        if isinstance(data, Decision) and incident:
            self._other_names.setdefault(decision, incident)
        return incident or self._other_names.get(decision, "")
