"""What the healer decided. A decision is not a command: an actor reads it and answers with facts.

Every decision about a job carries `job_revision`, the sequence of the last decided or done fact
of that job that its maker had read. Where another one lies between, the decision is void.
"""

from typing import Annotated, Literal

import msgspec

from nemesis.schemas.codes import Action
from nemesis.schemas.inferred import Inference
from nemesis.schemas.observed import Count, Index, Ns
from nemesis.schemas.plans import Placement, StateSource

Mode = Literal["shadow", "approve", "act"]


class Decision(Inference, kw_only=True, frozen=True):
    """What every decision starts with."""

    decision: str
    """Its name: `<job>/<number>` or `<node>/<number>`, counted by the healer."""
    incident: str
    mode: Mode
    """shadow: recorded, not to be acted upon; approve: waits for a person; act: to be applied."""
    deadline_ns: Ns
    """Log time after which another actor may claim it, and after which it is of no use."""
    job: str = ""
    job_revision: Count = 0
    """Sequence of the last decided or done fact read about the job, or of its submission."""


class QuiesceDecided(Decision, kw_only=True, frozen=True):
    """Hold the survivors of a job at their last common state; fence what is dead."""

    epoch: Count
    """The job's membership epoch that the hold applies to."""
    dead_ranks: tuple[Index, ...] = ()


class RecoveryDecided(Decision, kw_only=True, frozen=True):
    """The smallest safe recovery that is enough."""

    action: Action
    target: str
    """The component that it acts on."""
    epoch: Count = 0
    """The job's membership epoch after it, where the action changes membership."""
    members: str = ""
    """Ranks that go on, in rank_ranges form, named by their rank at submission."""
    removed_ranks: tuple[Index, ...] = ()
    joined_nodes: tuple[str, ...] = ()
    rungs_refused: tuple[str, ...] = ()
    """Cheaper rungs and why each was not taken, `action: why`."""
    world: Count = 0
    """How many members."""
    started: str = ""
    """Members whose process is to be started anew, in rank_ranges form."""
    state_from: StateSource = "memory"
    """Where the started ones take their state from."""
    placements: tuple[Placement, ...] = ()
    """Where members run, all that moved since the submission."""
    nodes_out: tuple[str, ...] = ()
    """Nodes with a part at fault that no longer work for the job after it."""
    by_cost: bool = False
    """Nothing failed and nothing is likely to: only what a failure would cost speaks for it."""
    checkpoint: str = ""
    """Path of the latest checkpoint that the job told of, where ranks are started from it."""
    checkpoint_step: Annotated[int, msgspec.Meta(ge=-1, le=2**63 - 1)] = -1
    """After which step that was written; -1: the job told of none."""


class RecoveryWithheld(Inference, kw_only=True, frozen=True):
    """A recovery was due and policy forbade it: a person must look."""

    incident: str
    action: Action
    target: str
    job: str = ""
    limit: str = ""
    """What stands in the way: a limit that was reached, such as `nodes_out_max`, and holds until it
    is reset; or paused, vetoed, no_rung, expired (nobody approved `decision` in time), unanswered
    (nobody carried it out)."""
    rungs_refused: tuple[str, ...] = ()
    decision: str = ""
    """The decision that nobody carried out in time, where that is why."""


class PolicyRefused(Inference, kw_only=True, frozen=True):
    """A policy that breaks a rule was not taken; the one before it holds."""

    broken: str
