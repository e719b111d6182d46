"""Which kernel messages are answered at once, without waiting for what else is printed."""

from nemesis.processors.attribution.findings import MEMORY_LOST, OFF_BUS
from nemesis.processors.attribution.incidents import Clue, Incident
from nemesis.processors.attribution.kernel_messages import KernelMessage
from nemesis.processors.attribution.kernel_rules import DOUBLE_BIT_XID


def is_first(incident: Incident, clue: Clue | None) -> bool:
    """Whether no other message as grave is about this device: what names it must not wait."""
    if clue is None:
        return False
    same = (
        each.node == clue.node and each.message.device == clue.message.device
        for each in incident.clues
        if each.level == clue.level
    )
    return sum(same) == 1


def is_certain(message: KernelMessage, level: int) -> bool:
    """Whether no context can change the verdict: a GPU off the bus, memory that is lost."""
    return level in (OFF_BUS, MEMORY_LOST) and message.code != DOUBLE_BIT_XID
