"""libnccl by ctypes: which calls it has, and a communicator whose calls are made as documented.

Loading it and asking its version needs no GPU; a communicator does. Source: nccl.h of 2.32.3 and
docs/userguide/source/api/comms.rst (github.com/NVIDIA/nccl).
"""

import ctypes
import time
from collections.abc import Callable, Sequence
from typing import Final

from nemesis.training.nccl_versions import SYMBOLS, Version, version_of

SUCCESS: Final = 0
IN_PROGRESS: Final = 7
ABORT: Final = 1
"""NCCL_SHRINK_ABORT: stop what is under way in the parent first."""
POLL_S: Final = 0.001


class NcclError(Exception):
    """A call failed; says which, and what the library says."""


class Library:
    """One libnccl.

    Raises:
        OSError: there is none under that name.
    """

    def __init__(self, path: str = "libnccl.so.2") -> None:
        self._library: Final = ctypes.CDLL(path)
        self._library.ncclGetErrorString.restype = ctypes.c_char_p
        code = ctypes.c_int()
        self.call("ncclGetVersion", ctypes.byref(code))
        self.version: Final[Version] = version_of(code.value)
        self.symbols: Final = frozenset(
            name
            for names in SYMBOLS.values()
            for name in names
            if getattr(self._library, name, None) is not None
        )

    def call(self, name: str, *arguments: object) -> int:
        """Call a function; SUCCESS or IN_PROGRESS.

        Raises:
            NcclError: anything else came back.
        """
        code = int(getattr(self._library, name)(*arguments))
        if code not in (SUCCESS, IN_PROGRESS):
            said = self._library.ncclGetErrorString(ctypes.c_int(code)).decode()
            raise NcclError(f"{name}: {said} ({code})")
        return code

    def all_on(self, devices: Sequence[int]) -> list["Communicator"]:
        """A communicator over some GPUs of this process, rank by rank.

        Raises:
            NcclError: it cannot be had; without a GPU always.
        """
        made = (ctypes.c_void_p * len(devices))()
        self.call("ncclCommInitAll", made, len(devices), (ctypes.c_int * len(devices))(*devices))
        return [Communicator(self, each) for each in made]


class Communicator:
    """One rank of a communicator; after `abort` it is nothing."""

    def __init__(self, library: Library, pointer: int | None) -> None:
        self._library: Final = library
        self._pointer = pointer

    def revoke(self, deadline_s: float) -> None:
        """Stop what is under way, and keep what it has; shrink and abort may follow.

        Raises:
            NcclError: it failed, or has not ended in time.
        """
        self._library.call("ncclCommRevoke", self._live(), 0)
        self._until_done(deadline_s)

    def shrink(self, excluded: Sequence[int]) -> "Communicator":
        """A communicator without some ranks; every other rank calls it too. May never return.

        Raises:
            NcclError: it failed.
        """
        child = ctypes.c_void_p()
        ranks = (ctypes.c_int * len(excluded))(*excluded)
        parent = self._live()
        self._library.call(
            "ncclCommShrink", parent, ranks, len(excluded), ctypes.byref(child), None, ABORT
        )
        return Communicator(self._library, child.value)

    def abort(self) -> None:
        """Free it, whatever is under way.

        Raises:
            NcclError: it failed.
        """
        pointer, self._pointer = self._pointer, None
        if pointer is not None:
            self._library.call("ncclCommAbort", ctypes.c_void_p(pointer))

    def _live(self) -> ctypes.c_void_p:
        # NCCL reads through a null pointer in some calls
        if self._pointer is None:
            raise NcclError("the communicator was aborted")
        return ctypes.c_void_p(self._pointer)

    def _until_done(self, deadline_s: float, now: Callable[[], float] = time.monotonic) -> None:
        code, end = ctypes.c_int(IN_PROGRESS), now() + deadline_s
        while code.value == IN_PROGRESS:
            self._library.call("ncclCommGetAsyncError", self._live(), ctypes.byref(code))
            if code.value == IN_PROGRESS and now() > end:
                raise NcclError(f"still in progress after {deadline_s} s")
            time.sleep(POLL_S)
        if code.value != SUCCESS:
            raise NcclError(f"ncclCommGetAsyncError: {code.value}")
