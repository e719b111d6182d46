"""The latest state, given by one member of a group to those who have another."""

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nemesis.training.gloo_group import BrokenGroupError, Group
from nemesis.training.membership import State


def hand_over(
    torch: Any,
    things: Sequence[Any],
    group: Group,
    root: int,
    *,
    takes: bool,
    given_up: Callable[[], bool],
) -> None:
    """Everybody calls it; who `takes` has the state of the one at position `root` afterwards.

    The state lies in memory beside the older one until it is whole.

    Raises:
        BrokenGroupError, GivenUpError: everybody has what it had.
    """
    packed = io.BytesIO()
    gives = group.position == root
    if gives:
        torch.save([each.state_dict() for each in things], packed)
    size = torch.tensor([packed.getbuffer().nbytes], dtype=torch.int64)
    group.broadcast(size, root, given_up)
    body = torch.zeros(int(size), dtype=torch.uint8)
    if gives:
        body.copy_(torch.frombuffer(packed.getbuffer(), dtype=torch.uint8))
    group.broadcast(body, root, given_up)
    if takes:
        # the giver's GPU is not this rank's
        given = io.BytesIO(body.numpy().tobytes())
        states = torch.load(given, map_location="cpu", weights_only=True)
        for thing, state in zip(things, states, strict=True):
            thing.load_state_dict(state)


def giver_of(states: Mapping[int, State], newest: State) -> int | None:
    """Which of those who have one part of the model gives its state; None where all have it.

    Raises:
        BrokenGroupError: none of them has the latest.
    """
    if newest not in states.values():
        raise BrokenGroupError("nobody is left who has this part of the latest state")
    if set(states.values()) == {newest}:
        return None
    return min(rank for rank, state in states.items() if state == newest)
