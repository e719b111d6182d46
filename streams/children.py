"""Child processes that do not outlive us."""

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from typing import Final

_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h


def die_with_parent() -> Callable[[], None] | None:
    """For `preexec_fn`: the child gets SIGTERM when the parent's thread ends, however it ends.

    None where the system has no such thing; there a killed parent leaves its children.
    """
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    parent = os.getpid()

    def set_death_signal() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:  # it died between fork and here
            os._exit(1)

    return set_death_signal
