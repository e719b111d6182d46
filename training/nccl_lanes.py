"""From the lanes of one epoch's groups to those of the next: by NCCL's own shrink, or made anew.

Shrunk where all members come from one same epoch whose lanes are whole, as they are at a boundary,
and some of its members left; the order is that of `nccl_shrink`. Else, after a rank that died or
hangs, all lanes were aborted as soon as the plan came, and each group makes its own anew under its
own name in the store. Where two ranks share a GPU, or one has none, nobody has lanes and gloo
carries everything. Votes go over the group of everybody, which is gloo's.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from nemesis.schemas.layout import KINDS, Kind
from nemesis.training.gloo_group import OPERATION_S, Grounds, Group
from nemesis.training.groups import Groups
from nemesis.training.nccl_lane import Lane
from nemesis.training.nccl_library import Library
from nemesis.training.nccl_shrink import RebuildError, shrunk
from nemesis.training.nccl_versions import Version

GLOO_ALONE: Final = "NEMESIS_GLOO"
"""Set to 1 on all ranks: gradients go over gloo, wherever they lie."""
WATCHDOG: Final[Mapping[str, str]] = {
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
    "TORCH_NCCL_ENABLE_MONITORING": "0",
}
"""Of a group of ours, torch's own watchdog must not end the process: a plan says what happens."""


class Nccl(NamedTuple):
    """What the library can."""

    version: Version = (0, 0, 0)
    symbols: frozenset[str] = frozenset()


class OldPart(NamedTuple):
    """A group of the old epoch, as `shrunk` takes it."""

    members: tuple[int, ...]
    communicator: Lane


class Lanes:
    """Makes the lanes of each epoch of one rank."""

    def __init__(
        self,
        torch: Any,
        grounds: Grounds,
        *,
        device: Any,
        identity: int,
        make: Callable[[Any, int, int], Any],
        nccl: Callable[[], Nccl],
    ) -> None:
        """`device`: of the tensors; None for no lanes.

        `identity`: of its GPU, another one for each in the world, -1 for none; `make`: a backend of
        a store, a position and a size; `nccl`: asked before a shrink.
        """
        self._torch: Final[Any] = torch
        self._grounds: Final = grounds
        self._device: Final[Any] = device
        self._identity: Final = identity
        self._make: Final = make
        self._nccl: Final = nccl

    def lay(
        self, old: Groups | None, old_epoch: int, new: Groups, given_up: Callable[[], bool]
    ) -> None:
        """Give each group of an epoch its lane; all members call it. `old`: that they come from.

        Raises:
            BrokenGroupError: somebody is gone, or NCCL refuses.
            GivenUpError: `given_up` became true.
        """
        lanes = _lanes_of(old)
        is_whole = bool(lanes) and not any(each.communicator.is_aborted for each in lanes.values())
        told = new.world.gather([old_epoch if is_whole else -1, self._identity], given_up)
        try:
            epochs, identities = zip(*told, strict=True)
            if -1 in identities or len(set(identities)) < len(identities):
                return
            children: dict[Kind, Lane] = {}
            came = set(old.world.members) if old is not None else set[int]()
            lost = frozenset(came.difference(new.world.members))
            if set(epochs) == {old_epoch} and is_whole and lost and came >= set(new.world.members):
                children = self._shrunk(lanes, lost, new, given_up)
            self._put(new, children, given_up)
        finally:
            for each in lanes.values():
                each.communicator.abort_soon()

    def _shrunk(
        self,
        lanes: Mapping[Kind, OldPart],
        lost: frozenset[int],
        new: Groups,
        given_up: Callable[[], bool],
    ) -> dict[Kind, Lane]:
        def all_say(step: str, said: bool) -> bool:
            return all(each == [1] for each in new.world.gather([int(said)], given_up))

        nccl = self._nccl()
        try:
            made = shrunk(
                lanes,
                lost,
                version=nccl.version,
                symbols=nccl.symbols - {"ncclCommRevoke"},
                is_well=self._is_well,
                all_say=all_say,
            )
        except RebuildError:
            return {}
        return {kind: each for kind, each in made.items() if each is not None}

    def _put(self, new: Groups, children: dict[Kind, Lane], given_up: Callable[[], bool]) -> None:
        try:
            for kind, group in _named(new).items():
                if len(group.members) > 1:
                    child = children.pop(kind, None)
                    group.lane = child or self._made(group, given_up)
        finally:
            for each in children.values():
                each.abort_soon()

    def _made(self, group: Group, given_up: Callable[[], bool]) -> Lane:
        begun: list[Lane] = []
        is_left = False

        def make() -> Lane:
            prefix = self._torch.distributed.PrefixStore("nccl", group.store)
            lane = Lane(self._make(prefix, group.position, len(group.members)), self._device.type)
            begun.append(lane)
            first = self._torch.zeros(1, device=self._device)
            lane.allreduce([first]).wait()
            first.item()
            if is_left:
                lane.abort()
            return lane

        try:
            return self._grounds.awaited(make, given_up)
        except Exception:
            is_left = True
            for each in begun:
                each.abort_soon()
            raise

    def _is_well(self) -> bool:
        return bool(self._torch.ones(2, device=self._device).sum().item() == 2)


def _named(groups: Groups) -> dict[Kind, Group]:
    """Each group once, by the first of its kinds."""
    found: dict[Kind, Group] = {}
    for kind in KINDS:
        if all(groups[kind] is not each for each in found.values()):
            found[kind] = groups[kind]
    return found


def _lanes_of(groups: Groups | None) -> dict[Kind, OldPart]:
    if groups is None:
        return {}
    return {
        kind: OldPart(group.members, group.lane)
        for kind, group in _named(groups).items()
        if group.lane is not None
    }


def lanes_on(torch: Any, grounds: Grounds, things: tuple[Any, ...]) -> Lanes:
    """Over NCCL, where what is trained lies on a GPU."""
    tensors = [
        each for thing in things if hasattr(thing, "parameters") for each in thing.parameters()
    ]
    device = next((each.device for each in tensors if each.is_cuda), None)
    is_on = device is not None and torch.distributed.is_nccl_available()
    if not is_on or os.environ.get(GLOO_ALONE) == "1":
        device = None
    return Lanes(
        torch,
        grounds,
        device=device,
        identity=-1 if device is None else _identity(torch, device),
        make=partial(nccl_backend, torch, device),
        nccl=nccl_here,
    )


def _identity(torch: Any, device: Any) -> int:
    uuid = str(torch.cuda.get_device_properties(device).uuid)
    return int.from_bytes(blake2b(uuid.encode(), digest_size=7).digest())


def nccl_backend(torch: Any, device: Any, store: Any, position: int, size: int) -> Any:
    """torch's ProcessGroupNCCL on a GPU, which ends no process by itself."""
    torch.cuda.set_device(device)
    dist = torch.distributed
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = timedelta(seconds=OPERATION_S)
    with _environment(WATCHDOG):
        return dist.ProcessGroupNCCL(store, position, size, options)


def nccl_here() -> Nccl:
    """Of the libnccl that torch has loaded, or the system has; nothing where there is none."""
    try:
        library = Library()
    except OSError:
        return Nccl()
    return Nccl(library.version, library.symbols)


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
