"""Which incident a reading of a GPU or a host belongs to, and when one is opened for it.

A counter of errors alone is nobody's fault; a GPU that cannot be read any more, a row that could
not be replaced or waits for it, a host's error beyond correction, and an NVLink that is in trouble
again are faults of their own.
"""

from collections.abc import Sequence
from typing import Final

from nemesis.processors.attribution.counters import ANSWERS, UNREADABLE, Risen
from nemesis.processors.attribution.findings import Proof
from nemesis.processors.attribution.host_signs import UNCORRECTED
from nemesis.processors.attribution.incidents import Incident, Support
from nemesis.processors.attribution.nvlink_signs import TRAINED, TRAINED_OFTEN, Trained
from nemesis.processors.attribution.open_incidents import HOLD_NS
from nemesis.processors.attribution.own_ends import CAUSES, is_elsewhere, take_apart
from nemesis.processors.attribution.sample_batch import Stack
from nemesis.processors.attribution.state import State
from nemesis.schemas import components
from nemesis.schemas.facts import Fact

_ALONE: Final = frozenset({UNREADABLE, "remap_failed", "remap_pending", UNCORRECTED, TRAINED_OFTEN})
_AGAIN: Final = frozenset({"nvlink_replay_count", TRAINED})
"""One of them once is nothing."""


def take_gpu_signs(state: State, gpus: Stack) -> None:
    """What changed of the GPUs' readings."""
    for risen in state.counters.risen(gpus):
        node = risen.fact.key
        places = state.inventory.gpus.get(node, [])
        if risen.row < len(places):
            _take(state, node, components.gpu(node, places[risen.row]), risen)


def take_host_signs(state: State, hosts: Stack) -> None:
    """What changed of the hosts' counters."""
    for fact, support in state.host_counters.risen(hosts):
        _keep(state, fact, support)


def take_nvlinks(state: State, fact: Fact, trained: Sequence[Trained]) -> None:
    """Which NVLinks were trained anew, as a reading of devices shows."""
    places = state.inventory.gpus.get(fact.key, [])
    for row, name, says in trained:
        if row < len(places):
            gpu = components.gpu(fact.key, places[row])
            _keep(state, fact, Support(gpu, Proof(fact.id, fact.seq, says), name))


def gather(state: State, incident: Incident, node: str) -> None:
    """Give an incident on a node what its GPUs showed in the last seconds."""
    if any(each[1] == node for each in state.supports):
        for _, at, support in state.supports:
            if at == node:
                incident.take_support(support)
        state.supports = [each for each in state.supports if each[1] != node]


def _take(state: State, node: str, gpu: str, risen: Risen) -> None:
    fact, now_ns = risen.fact, risen.fact.log_time_ns
    incident = state.incidents.on_node(node, now_ns)
    if risen.name == ANSWERS:
        state.supports = [e for e in state.supports if not _is_mute(e[2], gpu)]
        if incident is not None and any(_is_mute(each, gpu) for each in incident.supports):
            incident.supports = [each for each in incident.supports if not _is_mute(each, gpu)]
            incident.due_ns = incident.due_ns or now_ns + HOLD_NS
        return
    _keep(state, fact, Support(gpu, Proof(fact.id, fact.seq, risen.says), risen.name))


def _keep(state: State, fact: Fact, support: Support) -> None:
    node, now_ns = fact.key, fact.log_time_ns
    incident = state.incidents.on_node(node, now_ns)
    again = support.name in _AGAIN and any(
        each.component == support.component and each.name in _AGAIN for _, _, each in state.supports
    )
    if incident is not None and _is_apart(incident, support, node):
        incident = None
    if incident is None and not fact.late:
        incident = take_apart(state, node, support, fact.id)
    if incident is None and (support.name in _ALONE or again) and not fact.late:
        incident = state.incidents.open(f"{fact.id} {support.component}", now_ns, late=False)
        incident.nodes.append(node)
        gather(state, incident, node)
    if incident is None:
        state.supports.append((now_ns, node, support))
    elif incident.take_support(support):
        incident.due_ns = incident.due_ns or now_ns + HOLD_NS


def _is_apart(incident: Incident, support: Support, node: str) -> bool:
    """Whether a reading is of another fault than what is known of its node."""
    known = incident.concerns(node, support.component.rpartition("/")[2]) or any(
        each.component == support.component for each in incident.supports
    )
    if incident.recovered and not known:
        return True
    alone = support.name in _ALONE | _AGAIN and incident.is_of_network()
    return alone or (support.name in CAUSES and is_elsewhere(incident, node))


def _is_mute(support: Support, gpu: str) -> bool:
    return support.component == gpu and support.name == UNREADABLE
