"""States whose tensors are divided among ranks, as plain tensors and back.

A DTensor names the ranks among which it is divided; a peer of another replica has the same part
among others. So the part alone is given, with what it is a part of.
"""

from collections.abc import Callable
from typing import Any, Final

from nemesis.training.stateful import Stateful

SHARD: Final = "nemesis.shard"


class ShardState:
    """A thing of which this rank has a part: `state_dict` without ranks' names."""

    def __init__(self, torch: Any, thing: Stateful, mesh: Any) -> None:
        """`mesh`: the ranks of this replica."""
        self._torch: Final[Any] = torch
        self._thing: Final = thing
        self._mesh: Final = mesh

    def state_dict(self) -> Any:
        """What this rank has of it."""
        return self._mapped(self._thing.state_dict(), self._packed)

    def load_state_dict(self, state_dict: Any) -> Any:
        """Have what a rank with the same part of it had."""
        return self._thing.load_state_dict(self._mapped(state_dict, self._unpacked))

    def _mapped(self, state: Any, change: Callable[[Any], Any]) -> Any:
        tree: Any = self._torch.utils._pytree
        return tree.tree_map(
            change, state, is_leaf=lambda each: isinstance(each, dict) and SHARD in each
        )

    def _packed(self, leaf: Any) -> Any:
        if not isinstance(leaf, self._torch.distributed.tensor.DTensor):
            return leaf
        (placement,) = leaf.placements
        dim = placement.dim if placement.is_shard() else None
        return {SHARD: leaf.to_local(), "dim": dim, "shape": [*leaf.shape], "stride": leaf.stride()}

    def _unpacked(self, leaf: Any) -> Any:
        if not isinstance(leaf, dict):
            return leaf
        tensor: Any = self._torch.distributed.tensor
        dim = leaf["dim"]
        return tensor.DTensor.from_local(
            leaf[SHARD],
            self._mesh,
            [tensor.Replicate() if dim is None else tensor.Shard(dim)],
            run_check=False,
            shape=self._torch.Size(leaf["shape"]),
            stride=tuple(leaf["stride"]),
        )
