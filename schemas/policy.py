"""What the healer may do: the payload of `policy_applied`. The newest one holds, whole.

Everything has a default that cannot hurt: decide and record, act on nothing.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

from nemesis.schemas.codes import FAULT_CLASSES, SIGNATURES, Action
from nemesis.schemas.decided import Mode
from nemesis.schemas.errors import MalformedFactError
from nemesis.schemas.observed import Count, Ns

SECOND_NS: Final = 1_000_000_000
REGROUPING: Final[tuple[Action, ...]] = (
    "reinit_communicator",
    "restart_rank",
    "shrink",
    "swap_node",
    "restart_job",
    "drain_node",
)
"""Actions that give a job a new membership, after a hold."""


MODES: Final[tuple[Mode, ...]] = ("shadow", "approve", "act")
"""From nothing to everything."""
YEAR_NS: Final = 365 * 86_400 * SECOND_NS
CELL_LIMITS: Final = ("nodes_out_max", "nodes_out_share_max_ppm")
"""Limits on all jobs of a cell together."""
JOB_LIMITS: Final = ("recoveries_max", "shrinks_max")
"""Limits on each job by itself."""
LIMITS: Final = (*CELL_LIMITS, *JOB_LIMITS)
"""Blast-radius limits. One that was reached is a tripped breaker, and stays so, whatever time
passes, until a person resets it."""


class Step(
    msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True, forbid_unknown_fields=True
):
    """One step of a playbook: an action, and what must hold for it besides what is safe anyway."""

    action: Action
    spares_min: Count = 0
    """So many spare nodes of the job can take over."""
    world_min: Count = 0
    """So many ranks go on after it."""
    ranks_lost_max: Count | None = None
    """At most so many ranks of the job are lost."""
    nodes_out_max: Count | None = None
    """At most so many nodes of the cell are out of work after it."""


Playbook: TypeAlias = tuple[Action | Step, ...]
"""Steps, preferred first; an action alone is a step without conditions."""
PREDICTED_ACT: Final = "predicted.act"
PREDICTED_WATCH: Final = "predicted.watch"
PREDICTED_WORTH: Final = "predicted.worth"
PLAYBOOK_NAMES: Final = (
    *FAULT_CLASSES,
    *(f"{each}/{signature}" for each in FAULT_CLASSES for signature in SIGNATURES if signature),
    PREDICTED_ACT,
    PREDICTED_WATCH,
    PREDICTED_WORTH,
)
"""A class, a class with a signature, or how likely a failure is that has not come yet."""


class Policy(
    msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True, forbid_unknown_fields=True
):
    """One policy. A field that is not known is refused: a misspelt limit would be no limit."""

    mode: Mode = "shadow"
    """For every action that `mode_by_action` does not name, and for holding a job."""
    mode_by_action: Mapping[Action, Mode] = {}
    protected_nodes: tuple[str, ...] = ()
    """Nodes that are left alone, whatever happens, besides those protected by hand."""
    world_min: Count = 1
    """No job goes on with fewer ranks, even if it would accept to."""
    nodes_out_max: Count = 4
    """Nodes taken out of work within `nodes_out_window_ns`."""
    nodes_out_window_ns: Ns = 600 * SECOND_NS
    nodes_out_share_max_ppm: Count = 250_000
    """Nodes out at one time, of all known nodes; one is always allowed. Half of a cluster in five
    minutes is where NVSentinel's breaker trips: github.com/NVIDIA/NVSentinel."""
    shrinks_max: Count = 4
    """Shrinks of one job within `shrinks_window_ns`."""
    shrinks_window_ns: Ns = 3600 * SECOND_NS
    recoveries_max: Count = 8
    """Recoveries of one job within `shrinks_window_ns`: more is a job that makes no progress."""
    gather_ns: Ns = 50_000_000
    """Exits of one fault arrive within this of each other."""
    silence_wait_ns: Ns = 1_500_000_000
    """How long a verdict, and the answer of a silent node, are waited for."""
    doubt_wait_ns: Ns = 10 * SECOND_NS
    """How long a verdict is waited for where ranks of several nodes ended: nodes seldom fail
    together, mostly their ranks gave up on something that is named a few polls later."""
    hold_timeout_ns: Ns = 5 * SECOND_NS
    """A hold that nobody reported on is not waited for any longer."""
    decision_timeout_ns: Ns = 60 * SECOND_NS
    """An unanswered decision expires."""
    approval_timeout_ns: Ns = 900 * SECOND_NS
    """A decision that waits for a person expires."""
    forecast_mode: Mode = "shadow"
    """How far a move may go that no tier of certainty asks for, only its costs; never farther than
    its action may."""
    forecast_missed_ns: Ns = 180 * SECOND_NS
    """A failure that nobody foresaw stops a job for so long: noticing, restarting, lost steps."""
    forecast_foreseen_ns: Ns = 5 * SECOND_NS
    """A move at the end of a step does."""
    forecast_test_ns: Ns = 4 * 3600 * SECOND_NS
    """The node that was left is tested for so long before it works again."""
    forecast_moves_max: Count = 5
    """Moves by cost in the cell within `forecast_window_ns`, right and needless ones; beyond them
    they are advice. Five a week of 16,384 GPUs are 0.44 in 10,000 GPU-days."""
    forecast_window_ns: Ns = 7 * 86_400 * SECOND_NS
    playbooks: Mapping[str, Playbook] = {}
    """Steps per class, in place of the built-in ones. `gpu.memory` replaces all of that class,
    `gpu.memory/ecc_contained` only those with that signature; `predicted.act` and
    `predicted.watch` are for parts that are likely to fail, `predicted.worth` for those that are
    not, and cheaper to leave all the same."""

    @property
    def acts(self) -> bool:
        """Whether anything at all may be done, with or without a person's word."""
        return {self.mode, *self.mode_by_action.values()} != {"shadow"}

    def validate(self) -> tuple[str, ...]:
        """One sentence for each rule that this policy breaks."""
        broken = [
            f"{name} must be above 0: without time nothing can be answered."
            for name in ("silence_wait_ns", "decision_timeout_ns", "approval_timeout_ns")
            if getattr(self, name) == 0
        ]
        broken += [
            f"{name} must be above 0: a limit on no time never limits."
            for name in ("nodes_out_window_ns", "shrinks_window_ns", "forecast_window_ns")
            if getattr(self, name) == 0
        ]
        broken += [
            f"{name} must be at most a year: a deadline has to fit into a fact."
            for name in type(self).__struct_fields__
            if name.endswith("_ns") and getattr(self, name) > YEAR_NS
        ]
        if self.gather_ns > self.silence_wait_ns:
            broken.append("gather_ns must not be above silence_wait_ns, which includes it.")
        if self.doubt_wait_ns < self.silence_wait_ns:
            broken.append("doubt_wait_ns must not be below silence_wait_ns.")
        if self.hold_timeout_ns < self.silence_wait_ns:
            broken.append("hold_timeout_ns must not be below silence_wait_ns.")
        if self.nodes_out_share_max_ppm > 1_000_000:
            broken.append("nodes_out_share_max_ppm must be at most 1000000, the whole cluster.")
        if self.world_min == 0:
            broken.append("world_min must be at least 1: a job of no ranks is none.")
        if self.forecast_foreseen_ns >= self.forecast_missed_ns:
            broken.append(
                "forecast_foreseen_ns must be below forecast_missed_ns, or none is worth it."
            )
        broken += [
            f"mode_by_action.{action} must not be shadow while mode is act:"
            " a job would be held and left so."
            for action in REGROUPING
            if self.mode == "act" and self.mode_of(action) == "shadow"
        ]
        for name, steps in self.playbooks.items():
            if name not in PLAYBOOK_NAMES:
                broken.append(f"playbooks.{name[:60]} is no fault class.")
            if not steps:
                broken.append(f"playbooks.{name[:60]} must name at least one action.")
        return tuple(broken)

    def mode_of(self, action: Action, *, by_cost: bool = False) -> Mode:
        """How far an action may go; `by_cost`: only its costs speak for it."""
        own = self.mode_by_action.get(action, self.mode)
        if by_cost and MODES.index(self.forecast_mode) < MODES.index(own):
            return self.forecast_mode
        return own

    def worth_ppm(self, nodes_count: int) -> int:
        """The chance from which on a job of so many nodes is expected to save by a move.

        A failure costs nodes x missed, a move nodes x foreseen, and a needless one the test of a
        node besides. So it is where p x missed = p x foreseen + (1 - p) x (foreseen + test),
        rounded up: a small job, whose stop costs less than the test, hardly ever moves.
        """
        needless = nodes_count * self.forecast_foreseen_ns + self.forecast_test_ns
        missed = nodes_count * self.forecast_missed_ns + self.forecast_test_ns
        return -(-1_000_000 * needless // missed)


_decoder: Final = msgspec.json.Decoder(Policy)


def decode_policy(document: bytes) -> Policy:
    """The policy in a JSON object.

    Raises:
        MalformedFactError: not a policy, or one that breaks a rule; names each.
    """
    try:
        policy = _decoder.decode(document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedFactError(f"policy: {error}") from error
    broken = policy.validate()
    if broken:
        raise MalformedFactError(f"policy: {' '.join(broken)}")
    return policy
