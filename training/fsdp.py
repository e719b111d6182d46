"""torch's FSDP2 inside a replica: its collectives over the members' groups, quiet where they end.

`fully_shard` divides a replica's parameters among its ranks; a lost rank takes its replica along,
and the hook makes the mean over replicas. FSDP gathers and scatters in the middle of passes, where
an error would leave its states half way. So what breaks in a step is kept (`failure`), the pass
goes on over zeros to its end, and the step is not applied.

What torch does with sharded tensors by itself (norms, `full_tensor`) finds its group by a name of
the mesh's; in each epoch that name is given to the members' group.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from nemesis.schemas.layout import Degrees
from nemesis.training.gloo_group import BrokenGroupError, GivenUpError, Group
from nemesis.training.shard_state import ShardState
from nemesis.training.stateful import Stateful
from nemesis.training.torch_group import process_group


class ShardsError(Exception):
    """A module is sharded in a way that cannot be tied."""


class Shards:
    """One sharded module and the ranks of its replica."""

    def __init__(
        self,
        torch: Any,
        module: Any,
        *,
        given_up: Callable[[], bool],
        is_open: Callable[[], bool],
    ) -> None:
        """Tie a module that has not trained yet.

        `is_open`: whether a step is under way that may still be given up.
        """
        self._torch: Final[Any] = torch
        self._given_up: Final = given_up
        self._is_open: Final = is_open
        self._mesh: Final = mesh_of(module)
        self._group: Any = None
        self.failure: Exception | None = None
        """Why the current step is not to be applied."""
        for each in module.modules():
            if isinstance(each, torch.distributed.fsdp.FSDPModule):
                each.set_custom_all_gather(Gathering(self))
                each.set_custom_reduce_scatter(Scattering(self))

    def regroup(self, group: Group) -> None:
        """Gather and scatter among these members from now on."""
        # a wait outside of a step has nothing that could be done again
        self._group = process_group(
            self._torch, group, lambda: self._is_open() and self._given_up()
        )
        (name,) = self._mesh._dim_group_names
        registry = self._torch._C._distributed_c10d
        registry._unregister_process_group(name)
        registry._register_process_group(name, self._group)
        self.begin()

    def begin(self) -> None:
        """A new step starts."""
        self.failure = None

    def act(self, operation: str, output: Any, *given: Any, torchs_own: Any) -> None:
        """Do an operation over the members; in a step of theirs its output is zeros if it broke.

        Raises:
            BrokenGroupError: a peer is gone, and no step is under way that could be done again.
        """
        group = torchs_own if self._group is None else self._group
        failure = self.failure
        if failure is None:
            try:
                if self._group is not None and self._is_open() and self._given_up():
                    raise GivenUpError
                getattr(group, operation)(output, *given).wait()
                return
            except (BrokenGroupError, GivenUpError) as error:
                failure = error
        if not self._is_open():
            raise failure
        self.failure = failure
        output.zero_()


class Comm:
    """What FSDP takes for one of its collectives."""

    def __init__(self, shards: Shards) -> None:
        self.shards: Final = shards

    def allocate(self, size: Sequence[int], *, dtype: Any, device: Any) -> Any:
        """Memory for it."""
        return self.shards._torch.empty(*size, dtype=dtype, device=device)


class Gathering(Comm):
    """All parts of some parameters from all ranks of the replica."""

    def __call__(
        self, output_tensor: Any, input_tensor: Any, group: Any, async_op: bool = False
    ) -> None:
        """Done when it returns, whatever is asked."""
        self.shards.act("_allgather_base", output_tensor, input_tensor, torchs_own=group)


class Scattering(Comm):
    """The mean gradients of a rank's own parts."""

    def __call__(
        self, output_tensor: Any, input_tensor: Any, group: Any, op: Any, async_op: bool = False
    ) -> None:
        """Done when it returns, whatever is asked."""
        options = self.shards._torch.distributed.ReduceScatterOptions()
        options.reduceOp = op
        self.shards.act(
            "_reduce_scatter_base", output_tensor, input_tensor, options, torchs_own=group
        )


def mesh_of(module: Any) -> Any:
    """Over which a module's parameters are divided."""
    return next(each.device_mesh for each in module.parameters() if hasattr(each, "device_mesh"))


def sharded_among(things: Iterable[Any]) -> Any:
    """The sharded module among some things; None where there is none.

    Raises:
        ShardsError: there are two.
    """
    fsdp = sys.modules.get("torch.distributed.fsdp")  # who does not use it has not loaded it
    sharded = [each for each in things if fsdp and isinstance(each, fsdp.FSDPModule)]
    if len(sharded) > 1:
        raise ShardsError("nemesis.attach: one sharded module can be tied, not two")
    return sharded[0] if sharded else None


def parts_of(torch: Any, things: tuple[Stateful, ...], degrees: Degrees) -> tuple[Stateful, ...]:
    """Things of which this rank has a part, each with a state that a peer of it can take.

    Raises:
        ShardsError: the module is not divided among the ranks of one replica.
    """
    module = sharded_among(things)
    if module is None:
        return things
    mesh = mesh_of(module)
    if mesh.ndim > 1:
        raise ShardsError(
            "nemesis.attach: fully_shard was given a mesh with replicas, and torch would wait for"
            ' those that are lost; give it the shards alone, as in mesh=mesh["shard"]'
        )
    if mesh.size() != degrees.ep:
        raise ShardsError(
            f"nemesis.attach: fully_shard divides the module among {mesh.size()} ranks: say"
            f" ep={mesh.size()} here and of the job, not ep={degrees.ep}"
        )
    return tuple(ShardState(torch, each, mesh) for each in things)


def replicas_alone(torch: Any, things: Iterable[Any], degrees: Degrees) -> Any:
    """Of a process that trains alone: torch's group of those who have the same parts, if any."""
    if sharded_among(things) is None:
        return None
    dist = torch.distributed
    world = dist.get_world_size()
    among = {degrees.groups_of(rank, world)["edp"] for rank in range(world)}
    return dist.new_subgroups_by_enumeration(sorted(map(list, among)))[0]
