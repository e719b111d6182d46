"""Which ends of ranks have their cause on their own node, whatever else their job suffers.

Why: while a switch pauses or a GPU elsewhere is dead, a host may run out of memory all the same; an
end that is taken for a consequence of the other fault hides its own. How: a reading of the very
node that says why a rank ended outweighs what is wrong elsewhere: the kernel's count of processes
that it killed for memory, or errors of the GPU that the rank ran on. Then the end is an incident of
its own, also if it was taken into another one before the reading came.
"""

from typing import Final

from nemesis.processors.attribution.host_signs import KILLED
from nemesis.processors.attribution.incidents import Exit, Incident, Support
from nemesis.processors.attribution.inventory import Inventory
from nemesis.processors.attribution.state import State
from nemesis.schemas import components

SIGKILL: Final = 9
UNCORRECTED: Final = ("dram_ue_count", "sram_ue_count")
CAUSES: Final = (KILLED, *UNCORRECTED)
"""Readings that say why a rank ended."""


def is_loss(exited: Exit) -> bool:
    """Whether a rank was killed, or gave up by itself: an abort may follow from others."""
    return exited.signal == SIGKILL or (exited.code > 0 and not exited.signal)


def has_own_cause(state: State, exited: Exit) -> bool:
    """Whether a reading of its node, of the last seconds, says why a rank ended."""
    return any(_explains(each, exited, state.inventory) for _, _, each in state.supports)


def is_elsewhere(incident: Incident, node: str) -> bool:
    """Whether an incident is about more than ends of ranks, and not about processes of a node.

    That its NIC is paused or its link is down says nothing of what ends a process there; a rank of
    it that is stuck may be stuck for that very reason.
    """
    others = incident.clues or incident.stuck or incident.silences or incident.told
    own = any(each.node == node for each in incident.clues) or any(
        components.node_of(each.component) == node for each in incident.supports
    )
    stuck = incident.stuck is not None and node in incident.nodes
    return bool(others or incident.supports) and not own and not stuck


def take_apart(state: State, node: str, support: Support, opened_by: str) -> Incident | None:
    """The incident of the ends that a reading explains, which nothing on their node has yet."""
    now_ns = state.log_time_ns
    for incident in list(state.incidents.open_ones):
        own = [each for each in incident.exits if _explains(support, each, state.inventory)]
        if incident.recovered or not own:
            continue
        if not is_elsewhere(incident, node):
            incident.take_nodes([node], now_ns)
            return incident
        incident.exits = [each for each in incident.exits if each not in own]
        incident.due_ns = incident.due_ns or now_ns
        opened = state.incidents.open(f"{opened_by} {support.component}", now_ns, late=False)
        opened.job, opened.exits = own[0].job, own
        opened.take_nodes([node], now_ns)
        return opened
    return None


def _explains(support: Support, exited: Exit, inventory: Inventory) -> bool:
    if support.name == KILLED:
        return support.component == components.node(exited.node) and is_loss(exited)
    gpu = inventory.gpu_of_rank(exited.job, exited.rank)
    return support.name in UNCORRECTED and support.component == gpu
