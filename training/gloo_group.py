"""A process group that can be given up: formed through a store, waited for in slices.

torch cannot break a gloo operation that hangs: it goes on until its own timeout, owns its tensor
meanwhile, and whoever drops the last reference to its group waits for it. So a wait looks at a flag
every few milliseconds, and a group that is given up is parked with its operation until that has
ended (measured with torch 2.13).
"""

import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from nemesis.training.nccl_lane import Lane

T = TypeVar("T")
SLICE: Final = timedelta(milliseconds=5)
FORM_S: Final = 300.0
"""A member whose process starts anew imports its libraries first; of who will not come a plan
tells, long before."""
OPERATION_S: Final = 1_800.0
"""torch's own default; what hangs is given up by plan, long before."""


END_S: Final = 5.0
"""A member that is so far behind the last step of the others was stopped, and a plan tells of it;
else it is at the end too, and does what comes after its loop."""
END_PAUSE_S_MAX: Final = 0.2
"""Between two questions to the store, which thousands may ask."""


class GivenUpError(Exception):
    """What was waited for is not to be waited for any more."""


class DoneAgainError(GivenUpError):
    """The members are settled already, and their step is to be done again."""


class BrokenGroupError(Exception):
    """The group does not work: a peer is gone, or it did not come in time."""


class Group:
    """The members of one epoch, and one rank among them."""

    def __init__(
        self, torch: Any, backend: Any, members: tuple[int, ...], position: int, store: Any
    ) -> None:
        """`store`: of the group's name, in no member's process."""
        self.members: Final = members
        self.position: Final = position
        """Of this rank among them."""
        self.backend: Final[Any] = backend
        self.store: Final[Any] = store
        self.lane: Lane | None = None
        """For tensors on a GPU."""
        self._torch: Final[Any] = torch
        self.is_given_up = False
        """Whether all waits in it end now, whoever still waits."""
        self._pending: list[Any] = []

    def reduce(self, tensor: Any, given_up: Callable[[], bool]) -> None:
        """Sum a tensor over all members, in place; after an error it is nobody's any more.

        Raises:
            BrokenGroupError: a peer is gone.
            GivenUpError: `given_up` became true.
        """
        backend = self.backend_of(tensor)
        self.wait(self.started(lambda: backend.allreduce([tensor])), given_up)

    def gather(self, numbers: Sequence[int], given_up: Callable[[], bool]) -> list[list[int]]:
        """Some numbers of every member, in their order.

        Raises:
            As `reduce`.
        """
        torch = self._torch
        own = torch.tensor(numbers, dtype=torch.int64)
        every = [torch.zeros_like(own) for _ in self.members]
        self.wait(self.started(lambda: self.backend.allgather([every], [own])), given_up)
        return [each.tolist() for each in every]

    def broadcast(self, tensor: Any, root: int, given_up: Callable[[], bool]) -> None:
        """Give everybody what the member at a position has.

        Raises:
            As `reduce`.
        """
        options = self._torch.distributed.BroadcastOptions()
        options.rootRank = root
        self.wait(self.started(lambda: self.backend.broadcast([tensor], options)), given_up)

    def meet_at_end(self, given_up: Callable[[], bool]) -> None:
        """Wait until every member is here too, for at most END_S.

        Not by an operation of the group: a member that does another step would take it for its own.

        Raises:
            GivenUpError: `given_up` became true.
        """
        until_s, pause_s = time.monotonic() + END_S, SLICE.total_seconds()
        try:
            here_count = self.store.add("end", 1)
            while here_count < len(self.members) and time.monotonic() < until_s:
                if given_up():
                    raise GivenUpError
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, END_PAUSE_S_MAX)
                here_count = self.store.add("end", 0)
        except RuntimeError:
            return  # the store is gone: its node is at the end of its part

    def backend_of(self, tensor: Any) -> Any:
        """What carries a tensor, or an operation of none."""
        lane = self.lane
        if lane is not None and tensor is not None and tensor.device.type == lane.device_type:
            return lane
        return self.backend

    @property
    def is_aborted(self) -> bool:
        """Whether what its lane carried has ended with any numbers."""
        return self.lane is not None and self.lane.is_aborted

    def abort_lane(self) -> None:
        """Whoever waits for the GPU does so no longer; from any thread."""
        if self.lane is not None:
            self.lane.abort_soon()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way in it, so that dropping it waits for nothing."""
        return all(work.is_completed() for work in self._pending)

    def started(self, start: Callable[[], Any]) -> Any:
        """Start an operation of the backend; the group is kept as long as it is under way.

        Raises:
            BrokenGroupError: a peer is gone.
        """
        try:
            work = start()
        except RuntimeError as error:
            raise self._broken(error) from error
        self._pending = [each for each in self._pending if not each.is_completed()]
        self._pending.append(work)
        return work

    def _broken(self, error: Exception) -> BrokenGroupError | GivenUpError:
        """What breaks because its communicator was aborted was given up."""
        return GivenUpError() if self.is_aborted else BrokenGroupError(_said(error))

    def wait(self, work: Any, given_up: Callable[[], bool]) -> None:
        """Wait for it.

        Raises:
            As `reduce`.
        """
        while not work.is_completed():
            try:
                work.wait(SLICE)
            except RuntimeError as error:
                if not work.is_completed() and "timed out" not in str(error).lower():
                    raise self._broken(error) from error
            if (self.is_given_up or given_up()) and not work.is_completed():
                raise GivenUpError
        try:
            work.wait()
        except RuntimeError as error:
            raise self._broken(error) from error


class Grounds:
    """Where groups are formed, and where those rest that were given up."""

    def __init__(self, torch: Any, host: str) -> None:
        """`host`: the address of this node by which its peers reach it."""
        self._torch: Final[Any] = torch
        self._device: Final[Any] = torch.distributed.ProcessGroupGloo.create_device(hostname=host)
        self._parked: list[Group] = []
        self._to_make = self._maker()

    def form(
        self,
        name: str,
        members: tuple[int, ...],
        rank: int,
        *,
        store: str,
        given_up: Callable[[], bool],
    ) -> Group:
        """The group of a name, which is never used again, once all its members have come.

        Raises:
            BrokenGroupError: somebody did not come, or the name has other members.
            GivenUpError: `given_up` became true.
        """
        return self.awaited(lambda: self._made(name, members, rank, store), given_up)

    def awaited(self, make: Callable[[], T], given_up: Callable[[], bool]) -> T:
        """What a function makes, which may wait without an end but torch's timeout.

        Raises:
            BrokenGroupError: it raised a RuntimeError.
            GivenUpError: `given_up` became true; whatever it makes nobody has.
        """
        made: list[T] = []
        failed: list[Exception] = []
        done = threading.Event()

        def work() -> None:
            try:
                made.append(make())
            except RuntimeError as error:
                failed.append(error)
            finally:
                done.set()

        # in a thread that can be left behind
        self._to_make.put(work)
        while not done.wait(SLICE.total_seconds()):
            if given_up():
                self._to_make = self._maker()
                raise GivenUpError
        if failed:
            raise BrokenGroupError(_said(failed[0])) from failed[0]
        return made[0]

    def _maker(self) -> SimpleQueue[Callable[[], None]]:
        """What a thread does that is there before it is needed: from Python 3.12 on none starts
        any more once the main thread has ended, and a group may be formed after that."""
        to_make: SimpleQueue[Callable[[], None]] = SimpleQueue()

        def work() -> None:
            is_left_behind = False
            while not is_left_behind:
                to_make.get()()
                is_left_behind = self._to_make is not to_make

        threading.Thread(target=work, daemon=True, name="nemesis-groups").start()
        return to_make

    def _made(self, name: str, members: tuple[int, ...], rank: int, store: str) -> Group:
        dist = self._torch.distributed
        host, _, port = store.rpartition(":")
        timeout = timedelta(seconds=FORM_S)
        client = dist.TCPStore(host, int(port), None, False, timeout, wait_for_workers=False)
        named = ",".join(map(str, members))
        own = client.compare_set(f"{name}/members", "", named).decode()
        if own != named:
            raise RuntimeError(f"{name} has other members: {own}")
        options = dist.ProcessGroupGloo._Options()
        options._devices = [self._device]
        options._timeout = timeout
        options.group_name = name
        options.global_ranks_in_group = list(members)
        position = members.index(rank)
        prefix = dist.PrefixStore(name, client)
        backend = dist.ProcessGroupGloo(prefix, position, len(members), options)
        backend._set_default_timeout(timedelta(seconds=OPERATION_S))
        return Group(self._torch, backend, members, position, prefix)

    def park(self, group: Group) -> None:
        """Keep a group until nothing is under way in it."""
        group.is_given_up = True
        group.abort_lane()
        self._parked = [each for each in self._parked if not each.is_idle]
        self._parked.append(group)


def _said(error: Exception) -> str:
    """torch's first line: the rest is a stack of its own."""
    return str(error).partition("\n")[0]
