"""The whole page as one document, folded from the log, and what has changed in it since a version.

A pure reader: records in, documents out. Every part of the document remembers the version at which
it last changed, so a browser that was away gets what it missed and no queue is kept for anybody.
Everything is bounded: incidents, rows of the feed, alarms.
"""

from collections import deque
from collections.abc import Container
from typing import Any, Final

from nemesis.processors.fold import Input
from nemesis.schemas.done import AttemptCompleted, MembershipReported
from nemesis.schemas.facts import Record
from nemesis.schemas.inferred import (
    FailurePredicted,
    FaultAttributed,
    GoodputAccounted,
    IncidentClosed,
    IncidentGrouped,
)
from nemesis.schemas.observed import ClockTicked, InventoryReported, SampleTaken
from nemesis.schemas.operated import JobEnded, JobSubmitted, NodeProtected
from nemesis.schemas.printable import one_line
from nemesis.schemas.scheduled import JobPlaced, begun
from nemesis.views.dashboard import alarms, waiting
from nemesis.views.dashboard.alarms import Trouble
from nemesis.views.dashboard.feed import Feed, row_of
from nemesis.views.dashboard.health import OK, SILENT, Health
from nemesis.views.dashboard.incident_page import incident_row
from nemesis.views.dashboard.jobs import Jobs
from nemesis.views.dashboard.presence import Presence
from nemesis.views.hands import Hands
from nemesis.views.incidents import Entry, Incidents

INCIDENTS_MAX: Final = 1000
ENTRIES_MAX: Final = 2000  # of one incident; a fault that came back for days
DECISIONS_MAX: Final = 200  # answered ones; what waits is never let go
FEED_SENT_MAX: Final = 200  # rows in one change: more than a person sees pass by

UNWELL_MAX: Final = 200  # parts listed in words; the map shows all

_OF_HANDS: Final = ("decided", "done", "operated")
_PARTS: Final = ("alarms", "waiting", "jobs", "nodes")
_OF_JOBS: Final = (
    AttemptCompleted,
    GoodputAccounted,
    JobEnded,
    JobPlaced,
    JobSubmitted,
    MembershipReported,
)
_TAKES_OUT: Final = frozenset(
    {"shrink", "swap_node", "drain_node", "cordon_node", "reset_gpu", "reboot_node"}
)


class Board:
    """What the page shows."""

    def __init__(self, *, cell: str, where: str = "") -> None:
        """`where`: the options that name this log in a command, with a blank before them."""
        self.version = 1
        self.incidents: Final = Incidents()
        self.feed: Final = Feed()
        self.presence: Final = Presence()
        self.last_seq = 0
        self.log_time_ns = 0
        self._cell: Final = one_line(cell)
        self._where: Final = where
        self._health: Final = Health()
        self._jobs: Final = Jobs()
        self._hands: Final = Hands()
        self._trouble: Final = Trouble()
        self._waiting: tuple[str, ...] = ()
        self._order: list[str] = []
        self._place: dict[str, int] = {}
        self._changed: Final[dict[tuple[str, str], int]] = {}
        """(part, key) -> version, the latest last."""
        self._gone: Final[deque[str]] = deque()
        self._floor = 0
        """What has gone up to this version is known no more."""

    def see(self, record: Record) -> None:
        """Take note of the next record of the log."""
        self.take(Input(record))

    def take(self, item: Input) -> None:
        """The same, for a record that was decoded before."""
        self.last_seq = max(self.last_seq, item.record.seq)
        if item.space == "telemetry":
            self._telemetry(item)
        elif item.space == "events":
            self._event(item)

    def listen(self, now_ns: int) -> None:
        """From now on samples are seen: who does not speak is silent."""
        self.presence.begin(self._health.nodes, now_ns)

    def touch_log(self) -> None:
        """Something about the way to the log has changed."""
        self._touch("log")

    def node(self, name: str) -> dict[str, Any] | None:
        """One node of the map in words; None: there is no such node."""
        if name not in self._health.nodes:
            return None
        node = self._health.nodes[name]
        return {
            "name": one_line(name),
            "leaf": one_line(node.leaf),
            "model": one_line(node.model),
            "gpus": [one_line(pci) for pci in node.gpus],
            "silent": name in self.presence.silent,
            "marks": [
                (one_line(part), mark.state, one_line(mark.incident))
                for part, mark in self._health.marks_of(name).items()
            ],
        }

    def course(self, job: str) -> list[dict[str, Any]]:
        """Where the time of a job went, account by account."""
        found = self._jobs.by_name.get(job)
        return found.course() if found is not None else []

    def document(self) -> dict[str, Any]:
        """The whole page; rows of the feed are asked for by themselves."""
        if not self._order and self._health.nodes:
            self._lay_out()
        whole: dict[str, Any] = {"version": self.version, **self._parts()}
        whole["nodes"] = [self._node(name) for name in self._order]
        whole["incidents"] = [incident_row(each) for each in self.incidents.by_id.values()]
        whole["feed"] = self.feed.before(1 << 62, FEED_SENT_MAX)
        return whole

    def changes(self, since: int) -> dict[str, Any]:
        """What is different from that version; `layout`: too much is, ask for all."""
        touched: list[tuple[str, str]] = []
        for where, version in reversed(self._changed.items()):
            if version <= since:
                break
            touched.append(where)
        keys: dict[str, list[str]] = {}
        for part, key in touched:
            keys.setdefault(part, []).append(key)
        changed: dict[str, Any] = {"version": self.version, "log": self._log()}
        if "layout" in keys or since < self._floor:
            return changed | {"layout": True}
        parts = self._parts(keys)
        if "nodes" in keys:
            names = [name for name in keys["nodes"] if name in self._place]
            parts["nodes"] = [[self._place[name], *self._node(name)[2:]] for name in names]
        if "incidents" in keys:
            known = self.incidents.by_id
            ids = [id for id in reversed(keys["incidents"]) if id in known]
            parts["incidents"] = [incident_row(known[id]) for id in ids]
        if "gone" in keys:
            parts["gone"] = [one_line(id) for id in keys["gone"]]
        if "feed" in keys:
            parts["feed"] = self.feed.after(since, FEED_SENT_MAX)
        return changed | parts

    def _telemetry(self, item: Input) -> None:
        if item.token == "sample":
            if self.presence.must_know(item.name) and isinstance(item.decoded(), SampleTaken):
                self.presence.period(item.name, item.value.period_ns)
            if self.presence.heard(item.name, item.record.stored_ns):
                self._touch("nodes", item.name)
            return
        if item.token not in ("tick", "inventory"):
            return
        match item.decoded():
            case ClockTicked() as tick if tick.at_ns > self.log_time_ns:
                self._hands.take(item)
                self._tick(tick.at_ns, item.record.stored_ns)
            case InventoryReported() as inventory:
                if self._health.describe(inventory, item.record.seq):
                    self._order = []
                    self._touch("layout")
                else:
                    self._touch("nodes", inventory.node)

    def _tick(self, at_ns: int, stored_ns: int) -> None:
        self.log_time_ns = at_ns
        self._touch("log")
        before = self._waiting
        self._look_at_hands()
        for name in before:
            late = self._hands.decisions.get(name)
            if late is not None and late.state_at(at_ns) == "expired":
                text = f"nobody answered {name} in time: {late.reason}"
                self._trouble.add(f"expired {name}", at_ns, "Expired", text)
                self._touch("alarms")
        if self._trouble.forget(at_ns):
            self._touch("alarms")
        for node in self.presence.fell_silent(stored_ns):
            self._touch("nodes", node)

    def _event(self, item: Input) -> None:
        entry = self.incidents.take(item)
        row = row_of(item, one_line(entry.incident) if entry is not None else "")
        self._touch("feed")
        self.feed.add(row, self.version)
        data = item.decoded()
        if data is None:
            return
        if self._trouble.see(item):
            self._touch("alarms")
        if row.certainty in _OF_HANDS:
            self._hands.take(item)
            self._hands.forget(DECISIONS_MAX)
            self._look_at_hands()
            self._touch("alarms")
        moved = self._jobs.see(data)
        if moved or isinstance(data, _OF_JOBS):
            self._touch("jobs")
        places = moved | self._blame(data, entry, item.record.seq)
        for place in sorted(places):
            self._touch("nodes", place)
        if entry is not None:
            self._keep(entry)

    def _look_at_hands(self) -> None:
        """What waits for a person may be another for a fact, or for time that passed."""
        names = tuple(each.decision for each in self._hands.waiting())
        if names != self._waiting:
            self._waiting = names
            self._touch("waiting")

    def _blame(self, data: Any, entry: Entry | None, seq: int) -> set[str]:
        """Places on the map that look different for this fact."""
        match data:
            case JobSubmitted() | JobPlaced():
                if (job := begun(data)) is not None:
                    self._health.submit(job)
            case NodeProtected():
                return {data.node}
            case FaultAttributed():
                return self._health.attribute(data, seq)
            case IncidentClosed() if entry is not None:
                return self._health.clear(entry.incident, keep_out=True)
            case FailurePredicted():
                return self._health.predict(data, seq)
            case AttemptCompleted() if entry is not None:
                decided = self._jobs.decided(data.decision)
                if decided is not None and decided.action in _TAKES_OUT:
                    return self._health.take_out(entry.incident, seq)
                if decided is not None:
                    return self._health.clear(entry.incident, keep_out=True)
        return set()

    def _keep(self, entry: Entry) -> None:
        """The incident has changed; what became part of it, or is too old, goes."""
        one = self.incidents.by_id[entry.incident]
        self._touch("incidents", entry.incident)
        if len(one.entries) > ENTRIES_MAX:
            del one.entries[1 : len(one.entries) - ENTRIES_MAX + 1]
        if isinstance(entry.data, FaultAttributed | IncidentGrouped):
            known = self.incidents.by_id
            shown = [id for part, id in self._changed if part == "incidents" and id not in known]
            for id in shown:
                self._go(id)
        while len(self.incidents.by_id) > INCIDENTS_MAX:
            oldest = min(self.incidents.by_id.values(), key=lambda each: each.last_seq)
            self.incidents.forget(oldest.id)
            self._go(oldest.id)

    def _go(self, id: str) -> None:
        del self._changed["incidents", id]
        self._touch("gone", id)
        self._gone.append(id)
        if len(self._gone) > INCIDENTS_MAX:
            self._floor = self._changed.pop(("gone", self._gone.popleft()))

    def _touch(self, part: str, key: str = "") -> None:
        self.version += 1
        self._changed.pop((part, key), None)
        self._changed[part, key] = self.version

    def _lay_out(self) -> None:
        """Nodes by leaf and name: neighbours on the map are neighbours in the hall."""
        self._order = sorted(
            self._health.nodes, key=lambda name: (self._health.nodes[name].leaf, name)
        )
        self._place = {name: at for at, name in enumerate(self._order)}

    def _node(self, name: str) -> tuple[str, ...]:
        """(name, leaf, a letter for each GPU, one for the node, job, role) of a node."""
        gpus, rest = self._health.states(name)
        if name in self.presence.silent:
            gpus, rest = gpus.replace(OK, SILENT), SILENT if rest == OK else rest
        job, role = self._jobs.of_node(name)
        role = "protected" if name in self._hands.protected else role
        return one_line(name), one_line(self._health.nodes[name].leaf), gpus, rest, job, role

    def _parts(self, keys: Container[str] = _PARTS) -> dict[str, Any]:
        parts: dict[str, Any] = {"log": self._log()}
        if "alarms" in keys:
            parts["mode"] = waiting.mode_of(self._hands.policy)
            parts["alarms"] = alarms.document(self._hands, self._trouble, self._where)
        if "waiting" in keys:
            parts["waiting"] = waiting.document(self._hands, self._where)
        if "jobs" in keys:
            parts["jobs"] = [each.document() for each in self._jobs.by_name.values()]
        if "nodes" in keys:
            parts["leaves"] = self._health.leaf_states()
            parts["unwell"] = [
                (one_line(part), state, one_line(incident))
                for part, state, incident in self._health.unwell(UNWELL_MAX)
            ]
        return parts

    def _log(self) -> dict[str, Any]:
        return {
            "cell": self._cell,
            "where": one_line(self._where),
            "last_seq": self.last_seq,
            "log_time_ms": self.log_time_ns // 1_000_000,
            "events_count": self.feed.total_count,
        }
