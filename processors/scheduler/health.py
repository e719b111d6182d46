"""Which nodes a job may be put on: what is at fault, was lately, or is likely to be soon.

Three answers. *Barred*: a part of it is blamed by an incident that is open, a failure of it is
likely (bands watch and act, as the healer reads them), or a person protects it. *Doubtful*: it was
at fault and is on probation, or has a chance on record of failing; such a node is a spare at best.
All others are sound. A node that has booted since it was blamed was mended or exchanged: what was
said of it before holds no more, but it is on probation.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

from nemesis.processors.topology.told import NodePart
from nemesis.schemas.components import node_of
from nemesis.schemas.inferred import FailurePredicted, FaultAttributed, IncidentClosed
from nemesis.schemas.observed import InventoryReported
from nemesis.schemas.operated import JobSubmitted, NodeProtected

INCIDENTS_MAX: Final = 4096
"""Open at a time; far above a bad day of 12,500 nodes. The oldest is forgotten."""
_OF_PROGRAMS: Final = ("rank", "process", "program", "job")
"""Culprits that say nothing against the node they ran on."""


class Health(msgspec.Struct, array_like=True):
    """What is known against nodes."""

    blamed: dict[str, tuple[str, ...]] = {}
    """By open incident, the nodes with a part at fault."""
    likely: dict[str, str] = {}
    """By incident of a failure that is likely, its node."""
    recorded: dict[str, str] = {}
    """By incident of a failure that has a chance, its node."""
    protected: tuple[str, ...] = ()
    probation: dict[str, int] = {}
    """By node, log time until which it is on probation."""
    boots: dict[str, str] = {}

    def barred(self) -> Mapping[str, str]:
        """By node that no job may have, why not."""
        found = dict.fromkeys(self.protected, "protected by hand")
        found |= {node: f"a failure is likely ({name})" for name, node in self.likely.items()}
        for incident, nodes in self.blamed.items():
            found |= dict.fromkeys(nodes, f"at fault in {incident}")
        return found

    def doubtful(self) -> Mapping[str, str]:
        """By node that is a spare at best, why."""
        found = {node: f"may fail ({name})" for name, node in self.recorded.items()}
        return found | dict.fromkeys(self.probation, "on probation")

    def take_verdict(self, verdict: FaultAttributed, nodes: Collection[str]) -> bool:
        """A verdict blames these nodes in place of those before; whether that is news."""
        before = self.blamed.pop(verdict.incident, ())
        if nodes:
            self.blamed[verdict.incident] = tuple(sorted(nodes))
            while len(self.blamed) > INCIDENTS_MAX:
                del self.blamed[next(iter(self.blamed))]
        return self.blamed.get(verdict.incident, ()) != before

    def take_prediction(self, predicted: FailurePredicted) -> bool:
        """A part is likely to fail, or no longer; whether that is news."""
        name, node = predicted.incident, node_of(predicted.component)
        before = (self.likely.pop(name, None), self.recorded.pop(name, None))
        if node and predicted.band in ("watch", "act"):
            self.likely[name] = node
        elif node and predicted.band == "record" and predicted.probability_ppm:
            self.recorded[name] = node
        for each in (self.likely, self.recorded):
            while len(each) > INCIDENTS_MAX:
                del each[next(iter(each))]
        return (self.likely.get(name), self.recorded.get(name)) != before

    def take_protection(self, said: NodeProtected) -> bool:
        """A person protects a node, or no longer; always news."""
        names = {*self.protected, said.node} if said.protected else {*self.protected} - {said.node}
        self.protected = tuple(sorted(names))
        return True

    def close(self, closed: IncidentClosed, until_ns: int) -> bool:
        """An incident is over: nodes that it blamed are on probation; whether there are any."""
        names = (closed.incident, *closed.members)
        nodes = [node for name in names for node in self.blamed.pop(name, ())]
        self.probation |= dict.fromkeys(nodes, until_ns)
        return bool(nodes)

    def take_boot(self, told: InventoryReported, until_ns: int) -> bool:
        """A node that was blamed and has booted since is on probation; whether it is one."""
        before, self.boots[told.node] = self.boots.get(told.node, ""), told.boot_id
        if not before or before == told.boot_id:
            return False
        named = [name for name, nodes in self.blamed.items() if told.node in nodes]
        for name in named:
            rest = tuple(node for node in self.blamed[name] if node != told.node)
            if rest:
                self.blamed[name] = rest
            else:
                del self.blamed[name]
        if named:
            self.probation[told.node] = until_ns
        return bool(named)

    def pass_time(self, now_ns: int) -> bool:
        """Whose probation is over is sound; whether anybody's is."""
        over = [node for node, until_ns in self.probation.items() if until_ns <= now_ns]
        for node in over:
            del self.probation[node]
        return bool(over)


def blamed_nodes(
    verdict: FaultAttributed, told: Mapping[str, NodePart], jobs: Mapping[str, JobSubmitted]
) -> set[str]:
    """The nodes that a verdict says something against."""
    found: set[str] = set()
    for culprit in verdict.culprits:
        node = node_of(culprit.id)
        if culprit.kind in _OF_PROGRAMS:
            continue
        if node:
            found.add(node)
        elif culprit.kind == "switch":
            found |= {name for name, part in told.items() if culprit.id in part.leaves}
        elif culprit.kind == "rack":
            rack = culprit.id.partition("/")[2]
            found |= {name for name, part in told.items() if part.rack == rack}
        elif culprit.kind == "port" and verdict.jobs:
            found |= _nodes_of_ranks(jobs.get(verdict.jobs[0]), verdict.ranks)
    return found


def _nodes_of_ranks(job: JobSubmitted | None, ranks: Iterable[int]) -> set[str]:
    """A port serves the nodes whose ranks are named with it."""
    if job is None:
        return set()
    names = job.node_names
    places = {rank // job.ranks_per_node for rank in ranks}
    return {names[at] for at in places if at < len(names)}
