"""Tensors of one type as one, with a number of the agreement behind them."""

from collections.abc import Sequence
from typing import Any


def flattened(torch: Any, tensors: Sequence[Any], number: int) -> Any:
    """A fresh tensor: an operation that was given up still writes into its own."""
    kind = tensors[0] if tensors else torch.zeros(1)
    behind = kind.new_full((1,), number)
    return torch.cat([*(each.reshape(-1) for each in tensors), behind])


def put_back(flat: Any, tensors: Sequence[Any]) -> None:
    """What the flat one holds, to where it came from."""
    at = 0
    for each in tensors:
        each.copy_(flat[at : at + each.numel()].view_as(each))
        at += each.numel()


def reduce_alone(torch: Any, tensors: Sequence[Any], group: Any) -> None:
    """Put the mean over a group of torch's into these, if there is one; None: the default one."""
    dist = torch.distributed
    if dist.is_initialized() and dist.get_world_size(group) > 1:
        for each in tensors:
            dist.all_reduce(each, group=group)
            each.div_(dist.get_world_size(group))


def place_alone(torch: Any) -> tuple[int, int]:
    """Position and size of torch's default group, if there is one."""
    dist = torch.distributed
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
