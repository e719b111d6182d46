"""A store for groups to meet in, as a process of its own: `python -m nemesis.training.store HOST`.

It outlives the agent that started it, so that an agent may be started anew beside a healthy job,
and ends when nobody has held the agent's lock for a minute. Prints its port. A signal empties it:
who starts a job anew meets under the names that torch's own groups had before.
"""

import fcntl
import importlib
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any, Final

EMPTY: Final = signal.SIGHUP
ALONE_S: Final = 60.0
LOOK_S: Final = 1.0


def is_held(lock: Path) -> bool:
    """Whether a process holds this lock file."""
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return lock.exists()
    return False


def main() -> None:
    """Serve until the agent is gone for good."""
    host, lock = sys.argv[1], Path(sys.argv[2])
    dist: Any = importlib.import_module("torch.distributed")
    store = dist.TCPStore(host, 0, None, is_master=True, wait_for_workers=False)

    def empty(number: int, frame: FrameType | None) -> None:
        for key in store.list_keys():
            store.delete_key(key)

    signal.signal(EMPTY, empty)
    sys.stdout.write(f"{store.port}\n")
    sys.stdout.flush()
    alone_s = 0.0
    while alone_s < ALONE_S:
        time.sleep(LOOK_S)
        alone_s = 0.0 if is_held(lock) else alone_s + LOOK_S


if __name__ == "__main__":
    main()
