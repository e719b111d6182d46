"""torch's DistributedDataParallel over the members: a communication hook, and a new group an epoch.

DDP hands over its buckets of gradients while the backward pass goes on and waits for all of them at
its end. Each is divided by the number of members and summed, as DDP does it by itself; the first
carries the number of the agreement with it. A step counts when its last bucket is back: the
membership hears of it before DDP does, so a backward pass that ended without an error has been
applied by the protocol.

Sums are made in tensors of their own: one that is given up is still written to by gloo, and DDP
uses its buckets again.
"""

import threading
from collections.abc import Callable, Iterable
from typing import Any, Final

from nemesis.training.gloo_group import BrokenGroupError, GivenUpError, Group
from nemesis.training.torch_group import failed_future, process_group


class WrappedAlreadyError(Exception):
    """A module that DDP wraps cannot be tied."""


class Buckets:
    """One DDP module and the reductions of its current step."""

    def __init__(
        self,
        torch: Any,
        module: Any,
        *,
        given_up: Callable[[], bool],
        waiting: Callable[[], int],
        concluded: Callable[[int], bool],
    ) -> None:
        """Tie a module that has not trained yet.

        `waiting`: this rank's number in the agreement; `concluded`: hears the sum of all, and says
        whether the step may be applied.

        Raises:
            WrappedAlreadyError: it has a communication hook.
        """
        self._torch: Final[Any] = torch
        self._module: Final[Any] = module
        self._given_up: Final = given_up
        self._waiting: Final = waiting
        self._concluded: Final = concluded
        self._lock: Final = threading.Lock()
        self._group: Group | None = None
        self._open: list[Any] = []
        self._sum: Any = None
        self._is_last_out = False
        self.failure: Exception | None = None
        """Why the current step is not to be applied."""
        self.is_reduced = False
        """Whether the current step has its gradients."""
        try:
            module.register_comm_hook(None, lambda state, bucket: self._reduce(bucket))
        except (RuntimeError, ValueError) as error:
            said = str(error).partition("\n")[0]
            raise WrappedAlreadyError(
                f"nemesis.attach: DDP takes no communication hook here ({said}); it has to be"
                " attached before the first step, and without a hook of its own"
            ) from error

    def regroup(self, group: Group) -> None:
        """Reduce over these members from now on."""
        self._group = group
        self._module._update_process_group(process_group(self._torch, group, self._given_up))
        self.begin()

    def begin(self) -> None:
        """A new step starts."""
        with self._lock:
            self._open, self._sum, self.failure = [], None, None
            self._is_last_out = self.is_reduced = False

    def give_up(self) -> None:
        """Let the backward pass end now."""
        with self._lock:
            self._fail(GivenUpError())

    def _reduce(self, bucket: Any) -> Any:
        torch, group = self._torch, self._group
        assert group is not None, "DDP before the first membership"
        if self.is_reduced:
            return failed_future(
                torch, RuntimeError("a step has one backward pass that reduces: no_sync in others")
            )
        given = bucket.buffer()
        is_first = bucket.index() == 0
        flat = given.new_empty(given.numel() + is_first)
        torch.mul(given, 1 / len(group.members), out=flat[: given.numel()])
        if is_first:
            flat[-1] = self._waiting()
        result = torch.futures.Future(devices=[given.device] if given.is_cuda else None)
        with self._lock:
            if self._given_up():
                self._fail(GivenUpError())
            if self.failure is not None:
                return failed_future(torch, self.failure)
            self._open.append(result)
            self._is_last_out = bucket.is_last()
            if is_first:
                self._sum = flat[-1:]
        try:
            work = group.started(lambda: group.backend_of(flat).allreduce([flat]))
        except (BrokenGroupError, GivenUpError) as error:
            with self._lock:
                self._fail(error)
            return result
        work.get_future().then(lambda done: self._done(done, result, flat[: given.numel()]))
        return result

    def _done(self, done: Any, result: Any, reduced: Any) -> None:
        """In a thread of torch: one bucket is back, or broke."""
        with self._lock:
            if not any(each is result for each in self._open):
                return
            try:
                done.wait()
            except RuntimeError as error:
                self._fail(BrokenGroupError(str(error).partition("\n")[0]))
                return
            if len(self._open) == 1 and self._is_last_out:
                waiting = int(self._sum.item() != 0)
                # what was aborted meanwhile has ended too, with any number
                is_aborted = self._group is not None and self._group.is_aborted
                if is_aborted or not self._concluded(waiting):
                    self._fail(GivenUpError())
                    return
                self.is_reduced = True
            self._open = [each for each in self._open if each is not result]
            result.set_result(reduced)

    def _fail(self, error: Exception) -> None:
        """Nothing of this step counts; its lock is held."""
        if self.is_reduced:
            return
        self.failure = self.failure or error
        for each in self._open:
            each.set_exception(self.failure)
        self._open = []


def tied(torch: Any, things: Iterable[Any], **calls: Any) -> Buckets | None:
    """The DDP module among some things, tied; None where there is none.

    Raises:
        WrappedAlreadyError: there are two, or it has a communication hook.
    """
    wrapper = torch.nn.parallel.DistributedDataParallel
    wrapped = [each for each in things if isinstance(each, wrapper)]
    if len(wrapped) > 1:
        raise WrappedAlreadyError("nemesis.attach: one DDP module can be tied, not two")
    return Buckets(torch, wrapped[0], **calls) if wrapped else None
