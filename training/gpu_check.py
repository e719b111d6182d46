"""What NCCL really does on the GPUs of this machine: `scripts/gpu-check`.

With one GPU: a communicator, revoke, abort. With two: a shrink by the one that is left, and its
time. Where torch sees them: what the hook does, with a rank a GPU. Prints a table. Exit code: 0 all
went well, 1 something failed, 3 no GPU or no library here.
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from nemesis.training.gpu_lanes import lane_checks
from nemesis.training.nccl_library import Communicator, Library, NcclError
from nemesis.training.nccl_shrink import RebuildError, shrunk
from nemesis.training.nccl_versions import calls_of, way_of

NOTHING_HERE: Final = 3
DEADLINE_S: Final = 10.0
DEVICES: Final = Path("/dev")


class Whole(NamedTuple):
    """Two ranks, one of which leaves."""

    communicator: Communicator
    members: tuple[int, ...] = (0, 1)


def gpu_count() -> int:
    """GPUs whose device files are here."""
    return len(list(DEVICES.glob("nvidia[0-9]*")))


def main() -> int:
    """Check, print, and give the exit code."""
    count = gpu_count()
    if not count:
        sys.stdout.write("gpu-check: no GPU here, nothing was checked\n")
        return NOTHING_HERE
    try:
        library = Library(os.environ.get("NEMESIS_NCCL", "libnccl.so.2"))
    except OSError as error:
        sys.stdout.write(f"gpu-check: {error}; NEMESIS_NCCL names a libnccl.so.2\n")
        return NOTHING_HERE
    named = ".".join(map(str, library.version))
    way = way_of(library.version, "shrink", library.symbols)
    sys.stdout.write(f"{count} GPUs, NCCL {named}: {', '.join(calls_of(library.version))}\n")
    sys.stdout.write(f"a shrink goes by {way.by}{': ' + way.why if way.why else ''}\n\n")
    checks = [("init, abort", lambda: _abort(library))]
    if "revoke" in calls_of(library.version):
        checks.append(("init, revoke, abort", lambda: _revoke(library)))
    if count > 1 and way.by == "nccl":
        checks.append(("shrink 2 to 1, abort the parent", lambda: _shrink(library)))
    checks += lane_checks()
    good = [_row(name, check) for name, check in checks]
    return 0 if all(good) else 1


def _row(name: str, check: Callable[[], None]) -> bool:
    begun = time.perf_counter()
    try:
        check()
        said = "ok"
    except NcclError as error:
        said = str(error)
    sys.stdout.write(f"{name:<34} {(time.perf_counter() - begun) * 1e3:8.1f} ms  {said}\n")
    return said == "ok"


def _abort(library: Library) -> None:
    library.all_on([0])[0].abort()


def _revoke(library: Library) -> None:
    one = library.all_on([0])[0]
    one.revoke(DEADLINE_S)
    one.abort()


def _shrink(library: Library) -> None:
    left, lost = library.all_on([0, 1])
    try:
        made = shrunk(
            {"world": Whole(left)},
            frozenset({1}),
            version=library.version,
            symbols=library.symbols,
            is_well=lambda: True,
            all_say=lambda step, said: said,
            deadline_s=DEADLINE_S,
        )
    except RebuildError as error:
        raise NcclError(str(error)) from error
    lost.abort()
    child = made["world"]
    assert child is not None, "it lost a member"
    child.abort()


if __name__ == "__main__":
    sys.exit(main())
