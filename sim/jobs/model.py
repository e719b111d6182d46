"""A job as a cluster file describes it."""

from typing import Literal

import msgspec


class JobModel(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """One data-parallel job; the cluster gives it the next `nodes` nodes."""

    name: str
    nodes: int
    world_min: int
    step_ms: int
    allreduce_ms: int
    checkpoint_steps: int
    stall_steps: int
    shrink_ms: int
    start_ms: int
    on_log_loss: Literal["wait", "restart", "shrink"]
    grace_s: float
    tp: int = 1
    cp: int = 1
    pp: int = 1
    ep: int = 1
    """Parallel degrees; the rest of the world is data parallel."""
    timeout_s: float = 600.0
    """After which the watchdogs of its process groups fire: torch.distributed's default."""
    microbatches: int = 4
    """Of a step, through the pipeline."""
    chunks: int = 1
    """Of the model that a pipeline stage holds; above 1 its schedule interleaves."""

    save_ms: int = 0
    """How long all ranks stand every `checkpoint_steps` to save; 0: they save beside their work."""
    spec: str = ""
    """What it needs, as `nemesis submit` takes it: the scheduler says which nodes; "": the next."""

    @property
    def step_ns(self) -> int:
        """How long a healthy step takes, the spread of its ranks left out."""
        return (self.step_ms + self.allreduce_ms) * 1_000_000

    @property
    def stall_ns(self) -> int:
        """How long no healthy step takes."""
        return self.stall_steps * self.step_ns
