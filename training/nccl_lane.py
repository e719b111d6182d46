"""NCCL beside a group of members: what carries its tensors that lie on a GPU. Never run on one.

torch waits for NCCL's operations on the GPU, without an end, and one that has a limit takes the
communicator along. So an operation is looked at every fraction of a millisecond, and whoever hears
that the group is given up aborts the communicator from a thread of its own: all that waits for it,
on the host or on the GPU, ends by that, with numbers that nobody may use.
"""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

from nemesis.training.nccl_library import NcclError

POLL_S: Final = 0.0002
SHRINK_ABORT: Final = 1
"""Stop what is under way in the parent first; as `ncclCommShrink` and torch name it."""


class Polled:
    """An operation of a lane, as `Group` waits for it."""

    def __init__(self, work: Any, lane: "Lane") -> None:
        self._work: Final[Any] = work
        self._lane: Final = lane

    def is_completed(self) -> bool:
        """Whether the GPU is done with it, or it failed."""
        return bool(self._work.is_completed())

    def wait(self, timeout: timedelta | None = None) -> None:
        """Look at it for so long; without a limit, once it is completed, use what it gave.

        Raises:
            RuntimeError: it failed, or its communicator was aborted.
        """
        if timeout is None:
            self._work.wait()
            if self._lane.is_aborted:
                raise RuntimeError("the communicator was aborted")
            return
        until_s = time.monotonic() + timeout.total_seconds()
        while not self.is_completed() and time.monotonic() < until_s:
            time.sleep(POLL_S)

    def get_future(self) -> Any:
        """torch's own."""
        return self._work.get_future()


class Lane:
    """One group's ProcessGroupNCCL; its operations are those of torch's backends."""

    def __init__(self, backend: Any, device_type: str) -> None:
        """`device_type`: of the tensors that it carries."""
        self.device_type: Final = device_type
        self.is_aborted = False
        self._backend: Final[Any] = backend
        self._lock: Final = threading.Lock()

    def __getattr__(self, operation: str) -> Callable[..., Polled]:
        start = getattr(self._backend, operation)

        def started(*given: Any, **named: Any) -> Polled:
            if self.is_aborted:
                raise RuntimeError("the communicator was aborted")
            return Polled(start(*given, **named), self)

        return started

    def name(self) -> str:
        """Of the backend."""
        return str(self._backend.name())

    def revoke(self, deadline_s: float) -> None:
        """Not to be had of torch; shrinking itself stops what is under way.

        Raises:
            NcclError: always.
        """
        raise NcclError("torch's ProcessGroupNCCL does not revoke")

    def shrink(self, excluded: Sequence[int]) -> "Lane":
        """One without some positions; all others call it too. May never return.

        Raises:
            RuntimeError: it failed, or was aborted before.
        """
        if self.is_aborted:
            raise RuntimeError("the communicator was aborted")
        return Lane(self._backend.shrink(sorted(excluded), SHRINK_ABORT, None), self.device_type)

    def abort(self) -> None:
        """End it, and all that waits for it; once. May take long where a GPU is gone."""
        with self._lock:
            is_aborted, self.is_aborted = self.is_aborted, True
        if not is_aborted:
            self._backend.abort()

    def abort_soon(self) -> None:
        """Abort it by a thread that nobody waits for."""
        if not self.is_aborted:
            # no thread starts any more at the end of a process, which ends it all the same
            with suppress(RuntimeError):
                threading.Thread(target=self.abort, daemon=True, name="nemesis-abort").start()
