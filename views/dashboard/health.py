"""Which parts of a cluster are well, as the log tells it: one letter a GPU, one a node, one a leaf.

A part is marked by the facts that blame it, and stays marked until they are taken back, its
incident is over, or its node boots anew. Silence is no mark: it follows from the last sample.
"""

import re
from typing import Final

import msgspec

from nemesis.schemas.components import node_of
from nemesis.schemas.inferred import FailurePredicted, FaultAttributed
from nemesis.schemas.observed import InventoryReported
from nemesis.schemas.operated import JobSubmitted

OK: Final = "."
PREDICTED: Final = "P"
RANK: Final = "R"  # what runs there is at fault; the hardware is innocent
FAULT: Final = "F"
OUT: Final = "O"  # taken out of work, waits for a person's hands
SILENT: Final = "S"
_WORST_FIRST: Final = (FAULT, OUT, PREDICTED, RANK)
_OF_PROGRAMS: Final = ("rank/", "process/", "program/", "job/")
_OF_SWITCHES: Final = ("port/", "switch/")
_RANK: Final = re.compile(r"[0-9]{1,10}")


class Mark(msgspec.Struct, frozen=True):
    """Why a part is not well."""

    state: str
    incident: str
    seq: int


class Node(msgspec.Struct):
    """One node on the map."""

    name: str
    leaf: str = ""
    gpus: tuple[str, ...] = ()
    """PCI addresses by index."""
    model: str = ""
    boot_id: str = ""
    boot_seq: int = 0
    """The inventory of its present boot: marks before it are of the past."""


def leaf_of(inventory: InventoryReported) -> str:
    """The switch that the node's first NIC is plugged into, as far as that is known."""
    for nic in inventory.nics:
        kind, _, rest = nic.switch_port.partition("/")
        if kind == "port" and rest:
            return rest.rpartition("/")[0] or rest
    return ""


class Health:
    """Marks on parts, by component name."""

    def __init__(self) -> None:
        self.nodes: Final[dict[str, Node]] = {}
        self._marks: Final[dict[str, dict[str, Mark]]] = {}
        """Component -> incident -> mark."""
        self._places: Final[dict[str, str]] = {}
        """Marked component -> where it was when it was marked: a rank may run elsewhere later."""
        self._by_place: Final[dict[str, set[str]]] = {}
        """Node or leaf -> marked components."""
        self._by_incident: Final[dict[str, set[str]]] = {}
        self._ranks: Final[dict[str, JobSubmitted]] = {}

    def describe(self, inventory: InventoryReported, seq: int) -> bool:
        """Take note of what a node is made of; whether the map looks different for it."""
        before = self.nodes.get(inventory.node)
        rebooted = before is None or before.boot_id != inventory.boot_id
        now = Node(
            name=inventory.node,
            leaf=leaf_of(inventory),
            gpus=tuple(each.pci for each in inventory.gpus),
            model=inventory.gpus[0].model if inventory.gpus else inventory.model,
            boot_id=inventory.boot_id,
            boot_seq=seq if before is None or rebooted else before.boot_seq,
        )
        self.nodes[inventory.node] = now
        return before is None or (before.leaf, before.gpus) != (now.leaf, now.gpus)

    def submit(self, job: JobSubmitted) -> None:
        """Where the ranks of a job run."""
        self._ranks[job.job] = job

    def attribute(self, verdict: FaultAttributed, seq: int) -> set[str]:
        """A verdict blames parts in place of those that it blamed before; places that change."""
        changed = self.clear(verdict.incident)
        if verdict.verdict != "attributed":
            return changed
        for culprit in verdict.culprits:
            of_program = culprit.id.startswith(_OF_PROGRAMS)
            state = RANK if of_program else FAULT
            changed |= self._mark(culprit.id, Mark(state, verdict.incident, seq))
        return changed

    def predict(self, prediction: FailurePredicted, seq: int) -> set[str]:
        """A part is likely to fail, or no longer."""
        incident = prediction.incident or f"prediction of {prediction.component}"
        changed = self.clear(incident)
        if prediction.band != "clear":
            changed |= self._mark(prediction.component, Mark(PREDICTED, incident, seq))
        return changed

    def take_out(self, incident: str, seq: int) -> set[str]:
        """What the incident blames works no longer; programs that ran there are forgiven."""
        parts = self._by_incident.get(incident, set())
        changed: set[str] = set()
        for part in sorted(parts):
            if self._marks[part][incident].state == FAULT:
                changed |= self._mark(part, Mark(OUT, incident, seq))
            else:
                changed |= self._unmark(part, incident)
        return changed

    def clear(self, incident: str, *, keep_out: bool = False) -> set[str]:
        """The incident blames nobody any more; `keep_out`: what was taken out stays so."""
        changed: set[str] = set()
        for part in sorted(self._by_incident.get(incident, set())):
            if not (keep_out and self._marks[part][incident].state == OUT):
                changed |= self._unmark(part, incident)
        return changed

    def marks_of(self, place: str) -> dict[str, Mark]:
        """Marked parts of a node or a leaf, the worst mark of each."""
        found = {}
        since = self.nodes[place].boot_seq if place in self.nodes else 0
        for part in sorted(self._by_place.get(place, set())):
            marks = [mark for mark in self._marks[part].values() if mark.seq > since]
            if marks:
                found[part] = min(marks, key=lambda mark: _WORST_FIRST.index(mark.state))
        return found

    def unwell(self, limit: int) -> list[tuple[str, str, str]]:
        """(part, letter, incident) of marked parts, the worst first."""
        found = [
            (part, mark.state, mark.incident)
            for place in sorted(self._by_place)
            for part, mark in self.marks_of(place).items()
        ]
        found.sort(key=lambda each: _WORST_FIRST.index(each[1]))
        return found[:limit]

    def states(self, name: str) -> tuple[str, str]:
        """(a letter for each GPU, a letter for the rest of the node)."""
        node = self.nodes[name]
        gpus = [OK] * len(node.gpus)
        rest = OK
        for part, mark in self.marks_of(name).items():
            index = self._index_of(node, part)
            if index is None:
                rest = _worse(rest, mark.state)
            elif index < len(gpus):
                gpus[index] = _worse(gpus[index], mark.state)
        return "".join(gpus), rest

    def leaf_states(self) -> dict[str, str]:
        """The worst letter of each marked switch."""
        leaves = {node.leaf for node in self.nodes.values()}
        return {
            place: min((m.state for m in marks.values()), key=_WORST_FIRST.index)
            for place in sorted(self._by_place)
            if place in leaves and (marks := self.marks_of(place))
        }

    def _mark(self, part: str, mark: Mark) -> set[str]:
        self._marks.setdefault(part, {})[mark.incident] = mark
        self._by_incident.setdefault(mark.incident, set()).add(part)
        place = self._places.setdefault(part, self._place_of(part))
        self._by_place.setdefault(place, set()).add(part)
        return {place}

    def _unmark(self, part: str, incident: str) -> set[str]:
        place = self._places[part]
        marks = self._marks[part]
        del marks[incident]
        if not marks:
            del self._marks[part], self._places[part]
            self._by_place[place].discard(part)
            if not self._by_place[place]:
                del self._by_place[place]
        named = self._by_incident[incident]
        named.discard(part)
        if not named:
            del self._by_incident[incident]
        return {place}

    def _place_of(self, part: str) -> str:
        if part.startswith(_OF_SWITCHES):
            return part.split("/")[1]
        if (at := self._rank(part)) is not None:
            return at[0]
        return node_of(part) or ""

    def _index_of(self, node: Node, part: str) -> int | None:
        if part.startswith("gpu/"):
            pci = part.rpartition("/")[2]
            return node.gpus.index(pci) if pci in node.gpus else None
        at = self._rank(part)
        return at[1] if at is not None else None

    def _rank(self, part: str) -> tuple[str, int] | None:
        """(node, index of the GPU) that a rank was submitted to."""
        kind, _, rest = part.partition("/")
        name, _, number = rest.rpartition("/")
        job = self._ranks.get(name)
        if kind != "rank" or job is None or not _RANK.fullmatch(number):
            return None
        at, index = divmod(int(number), job.ranks_per_node)
        return (job.node_names[at], index) if at < len(job.node_names) else None


def _worse(one: str, other: str) -> str:
    if OK in (one, other):
        return other if one == OK else one
    return min(one, other, key=_WORST_FIRST.index)
