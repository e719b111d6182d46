"""All rules of the type checker in one table, in the order in which they are asked.

A later phase is asked only where all earlier ones found no error: it may rely on them.
"""

from collections.abc import Callable, Iterator
from typing import Final, Literal, NamedTuple

from nemesis.processors.parallelism import (
    arithmetic_rules,
    capacity_rules,
    fabric_rules,
    memory_rules,
    shape_rules,
)
from nemesis.processors.parallelism.case import Case, Finding

Phase = Literal["names", "product", "arithmetic", "shape", "memory", "fabric", "capacity"]
Severity = Literal["error", "warning", "both"]
Check = Callable[[Case], Iterator[Finding]]
MEGATRON: Final = "Megatron-LM"
TORCHTITAN: Final = "torchtitan"


class Rule(NamedTuple):
    """One rule: what it says, how bad a breach is, where it is from."""

    code: str
    phase: Phase
    severity: Severity
    says: str
    source: str
    check: Check
    by_size: bool = False
    """More nodes of the same kind may lift it."""
    by_class: bool = False
    """The class of the GPUs is all that it needs of a cluster."""


RULES: Final = (
    Rule(
        "W4",
        "names",
        "error",
        "each dim is named once, the order names all of them",
        MEGATRON,
        arithmetic_rules.w4,
    ),
    Rule(
        "W1",
        "product",
        "error",
        "TP·CP·PP·DP(·DPR) is the number of GPUs",
        f"{MEGATRON} parallel_state, {TORCHTITAN} ParallelDims",
        arithmetic_rules.w1,
    ),
    Rule(
        "W2",
        "arithmetic",
        "error",
        "ETP·EP fits into the ranks of a stage",
        MEGATRON,
        arithmetic_rules.w2,
    ),
    Rule(
        "W3",
        "arithmetic",
        "error",
        "EP divides TP·CP·DP / ETP",
        f"{MEGATRON}, {TORCHTITAN}",
        arithmetic_rules.w3,
    ),
    Rule(
        "W4",
        "arithmetic",
        "error",
        "with experts PP is outermost, or experts have DP replicas",
        MEGATRON,
        arithmetic_rules.w4_experts,
    ),
    Rule("B2", "arithmetic", "error", "DP is at most gbs / mbs", MEGATRON, arithmetic_rules.b2),
    Rule(
        "B1",
        "arithmetic",
        "both",
        "gbs is a multiple of DP·mbs; a warning: fewer microbatches than stages",
        MEGATRON,
        arithmetic_rules.b1,
    ),
    Rule("S1", "shape", "error", "TP divides the heads", MEGATRON, shape_rules.s1),
    Rule(
        "S2",
        "shape",
        "error",
        "TP divides the key-value heads or is a multiple of them",
        MEGATRON,
        shape_rules.s2,
    ),
    Rule(
        "S3",
        "shape",
        "error",
        "heads divide the width, TP divides the feed-forward",
        MEGATRON,
        shape_rules.s3,
    ),
    Rule(
        "S4",
        "shape",
        "both",
        "PP divides the layers, or stages are listed; a warning: only with "
        "embedding and loss counted",
        MEGATRON,
        shape_rules.s4,
    ),
    Rule(
        "S5",
        "shape",
        "error",
        "PP·v divides the layers, and v needs PP > 1",
        MEGATRON,
        shape_rules.s5,
    ),
    Rule(
        "S6",
        "shape",
        "error",
        "an interleaved pipeline has at least PP microbatches, in whole groups",
        MEGATRON,
        shape_rules.s6,
    ),
    Rule(
        "S7",
        "shape",
        "error",
        "2·CP divides the sequence, with sp TP too",
        MEGATRON,
        shape_rules.s7,
    ),
    Rule(
        "S8",
        "shape",
        "error",
        "EP divides the experts, of a model that has some",
        MEGATRON,
        shape_rules.s8,
    ),
    Rule(
        "S9", "shape", "error", "sp goes with TP > 1; TP with EP needs sp", MEGATRON, shape_rules.s9
    ),
    Rule(
        "M1",
        "memory",
        "error",
        "weights, gradients and optimizer fit",
        f"{MEGATRON} docs",
        memory_rules.m1,
        by_class=True,
    ),
    Rule(
        "M2",
        "memory",
        "error",
        "they fit together with activations",
        "arXiv 2205.05198",
        memory_rules.m2,
        by_class=True,
    ),
    Rule(
        "M3",
        "memory",
        "both",
        "they leave 5 % and 2 GiB; a warning: less than 6 GiB, or only with recomputation",
        "assumed",
        memory_rules.m3,
        by_class=True,
    ),
    Rule(
        "F1",
        "fabric",
        "error",
        "a group that asks for NVL fits into an NVLink domain",
        "",
        fabric_rules.f1,
    ),
    Rule(
        "F2",
        "fabric",
        "error",
        "GPUs have that many NVLinks",
        "nvidia-smi topo -m",
        fabric_rules.f2,
        by_class=True,
    ),
    Rule(
        "F4",
        "fabric",
        "error",
        "the network is of that kind, with that many rails",
        "",
        fabric_rules.f4,
    ),
    Rule(
        "F6",
        "fabric",
        "error",
        "there is such a tier, wide enough",
        "",
        fabric_rules.f6,
        by_size=True,
    ),
    Rule(
        "F7",
        "fabric",
        "error",
        "SHARP for one communicator at most",
        "NVIDIA SHARP docs",
        fabric_rules.f7,
    ),
    Rule("F3", "fabric", "warning", "units fill an NVLink domain", "", fabric_rules.f3),
    Rule(
        "F5",
        "fabric",
        "warning",
        "experts exchange tokens inside an NVLink domain",
        "NVIDIA guidance",
        fabric_rules.f5,
    ),
    Rule(
        "G1",
        "capacity",
        "both",
        "a replica has GPUs of one class; a warning: replicas of several",
        "",
        capacity_rules.g1,
        by_size=True,
    ),
    Rule(
        "C1",
        "capacity",
        "error",
        "domains have room for all units, and spare nodes beside them",
        "",
        capacity_rules.c1,
        by_size=True,
    ),
    Rule(
        "C2",
        "capacity",
        "error",
        "so have the switches of a tier that is asked for",
        "",
        capacity_rules.c2,
        by_size=True,
    ),
)
"""28 codes; W4 is asked twice, for it speaks of names first and of numbers later."""

BY_SIZE: Final = frozenset(rule.code for rule in RULES if rule.by_size)
