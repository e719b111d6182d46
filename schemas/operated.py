"""What people did: each with name and reason."""

from functools import cached_property
from typing import Annotated, Final

import msgspec

from nemesis.schemas.node_ranges import NODES_MAX, count_nodes, parse_nodes
from nemesis.schemas.observed import Count, Index, Ns

Described = dict[str, int | str | bool | tuple[int | str, ...]]
"""A handful of numbers and words by name."""
RANKS_PER_NODE_MAX: Final = 1024
"""Far above any node's GPUs; readers list the ranks of a node, and a slip must not fill memory."""


class Operation(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True):
    """What every act of a person starts with."""

    at_ns: Ns
    by: str
    """Who."""
    reason: str


class ProcessorActivated(Operation, kw_only=True, frozen=True):
    """From here on conclusions of this processor come from this version with these settings."""

    name: str
    version: Count
    settings: msgspec.Raw = msgspec.Raw(b"{}")
    """A JSON object; its keys are the processor's own."""


class PolicyApplied(Operation, kw_only=True, frozen=True):
    """What the healer may do. The newest one holds, whole."""

    policy: msgspec.Raw
    """A JSON object, see nemesis.schemas.policy."""


class JobSubmitted(Operation, kw_only=True, frozen=True, dict=True):
    """A job and where it runs: rank r on node r // ranks_per_node, its GPU r % ranks_per_node.

    One without nodes says in `spec` what it needs, and waits for the scheduler (job_placed).
    """

    job: str
    nodes: tuple[str, ...]
    """In node_ranges form, for example `n[00001-12500]`; `node_names` has each of them."""
    ranks_per_node: Annotated[int, msgspec.Meta(ge=1, le=RANKS_PER_NODE_MAX)] = 8
    spares: tuple[str, ...] = ()
    tp: Index = 1
    pp: Index = 1
    cp: Index = 1
    ep: Index = 1
    """Parallel degrees; the rest of the world is data parallel."""
    world_min: Index = 1
    on_log_loss: str = "wait"
    """wait, restart or shrink: what agents do when the log is away for longer than the grace."""
    grace_ns: Ns = 30_000_000_000
    spec: str = ""
    """What it needs, for example `TP8_NVL18+PP4_IB2`; docs/scheduling.md has the language."""
    gpu_count: Index = 0
    """That it is to have; 0: as many as the degrees of `spec` say."""
    model: Described = {}
    """What its model is made of, by the fields of nemesis.processors.parallelism.model."""
    settings: Described = {}
    """What it sets beside its degrees: `seq`, `recompute` and others."""
    team: str = ""
    """Whose share of the cluster it takes; "": that of `by`."""
    priority: Annotated[int, msgspec.Meta(ge=-1000, le=1000)] = 0
    """Higher ones are placed first; jobs of one priority by what their teams had."""
    runtime_ns: Ns = 0
    """How long it is expected to run at most; 0: nobody says."""

    @property
    def waits(self) -> bool:
        """Somebody has yet to say where it runs."""
        return not self.nodes and bool(self.spec)

    def __post_init__(self) -> None:
        """Refuse more nodes than anybody has.

        Raises:
            ValueError: more than NODES_MAX.
        """
        if (count := count_nodes(self.nodes)) > NODES_MAX:
            raise ValueError(f"a job of {count} nodes, at most {NODES_MAX} are read")

    @cached_property
    def node_names(self) -> tuple[str, ...]:
        """Every node, in the order of the ranks."""
        return parse_nodes(self.nodes)


class JobEnded(Operation, kw_only=True, frozen=True):
    """The job is over; its ranks are nobody's concern."""

    job: str
    requeued: bool = False
    """It gives its nodes back and waits for others, as it was submitted."""


class DecisionApproved(Operation, kw_only=True, frozen=True):
    """A person lets a waiting decision go ahead."""

    decision: str


class DecisionVetoed(Operation, kw_only=True, frozen=True):
    """A person forbids a decision."""

    decision: str


class PauseSet(Operation, kw_only=True, frozen=True):
    """NEMESIS decides but does not act on a scope, or acts again."""

    scope: str
    """ALL, or a component such as job/llama or node/n012."""
    paused: bool


class NodeProtected(Operation, kw_only=True, frozen=True):
    """A node that NEMESIS must leave alone, or no longer."""

    node: str
    protected: bool


class BreakerReset(Operation, kw_only=True, frozen=True):
    """A person lets a tripped blast-radius limit go."""

    limit: str


class NoteAdded(Operation, kw_only=True, frozen=True):
    """A remark of a person on an incident."""

    incident: str
    text: str
