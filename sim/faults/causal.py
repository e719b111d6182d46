"""Why a fault looks as it does, and what proves it: the causal chain, and the evidence to expect.

Both are part of the ledger. A chain says what caused what, from the root to the loudest symptom.
Evidence says which fact of which producer shows it; whether it was really delivered is decided by
reading the log (sim/truth/evidence.py), before any processor runs.
"""

from typing import Literal

import msgspec

Shows = Literal[
    "said",
    "rises",
    "at_least",
    "at_most",
    "unreadable",
    "differs",
    "above_others",
    "below_others",
    "silent",
]
"""How a fact shows something: a line with these words; a counter that rises by `value` over its
first reading; a reading that reaches or falls to `value`; one that cannot be taken; what differs
from all others of its kind; what is `value` per mille above or below the others' median, round for
round of a job's steps; nobody speaks."""

Told = Literal[
    "kernel",
    "log",
    "sample",
    "device_state",
    "fabric",
    "process",
    "collective",
    "setting",
    "spool",
]
"""Tokens of telemetry facts that can hold evidence."""


class Cause(msgspec.Struct, frozen=True):
    """One link of a chain: what happened to a component, because of the links before it."""

    component: str
    effect: str
    after_ns: int
    """From the fault's begin."""


class Expected(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that the log must show if everything that was emitted arrives."""

    told: Told
    by: str
    """The node, or the switch's collector, that tells it."""
    component: str
    """Of what it speaks."""
    sign: str
    """The words of a line; `block.channel` of a sample or a state; a field of a port, of an exit,
    of a flight recorder or of the operation that it is in; `name=value` of a setting."""
    shows: Shows = "said"
    value: int = 0
    row: int = -1
    """The device's row in a sample's block, or the rank."""
    after_ns: int = 0
    """From the fault's begin."""
    decisive: bool = True
    """Names the culprit; what is not decisive only fits in."""
    explains: bool = False
    """Says why a rank is slow, and so proves something only where the log shows that it is."""
