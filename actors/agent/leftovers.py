"""What a `nemesis run` that was killed leaves on its node: ranks, and the folder of its sockets.

Its ranks have nobody left who serves them, and hold the GPUs. So each run writes down where it
works, in the folder of the node's one agent, and whoever comes next there ends what was left. The
processes are those of the roster in that folder: one that only has a number of theirs is spared.
"""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from nemesis.actors.agent.ranks import END_S
from nemesis.actors.agent.roster import PLAN, ROSTER, Roster
from nemesis.schemas.rank_ranges import format_ranks
from nemesis.streams.replacing import replace_file

NOTE: Final = "run.json"
LIFE: Final = "life.json"
"""In the folder of an agent and a job: which life of the job it serves."""
_PREFIX: Final = "nemesis-"
_LOOK_S: Final = 0.02


@contextmanager
def noted_folder(own: Path) -> Iterator[Path]:
    """A folder for one start of a run, short enough for sockets; noted in `own` while it is."""
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as folder:
        note = own / NOTE
        replace_file(note, msgspec.json.encode(folder))
        try:
            yield Path(folder)
        finally:
            note.unlink(missing_ok=True)


def end_leftovers(own: Path, say: Callable[[str], None]) -> None:
    """End what an earlier run of this node left, and wait until it has ended."""
    note = own / NOTE
    try:
        folder = Path(msgspec.json.decode(note.read_bytes(), type=str))
    except (OSError, msgspec.DecodeError):
        return
    if numbers := _end_ranks(folder):
        say(f"rank {numbers} of a run that was killed lived on here, and was ended")
    if folder.name.startswith(_PREFIX):
        shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        note.unlink()


def forget_earlier(folder: Path, life: int, say: Callable[[str], None]) -> None:
    """Let nothing stand of an earlier life of a job: neither its plan, which would be taken for
    later than those to come, nor its ranks. `life`: the present one, 0 where nobody says."""
    note = folder / LIFE
    if not life:
        return
    try:
        before = msgspec.json.decode(note.read_bytes(), type=int)
    except (OSError, msgspec.DecodeError):
        before = 0
    if before and before != life:
        numbers = _end_ranks(folder)
        ended = f"; rank {numbers} of it lived on here, and was ended" if numbers else ""
        say(f"the job has begun again since, the plan of before is forgotten{ended}")
        for name in (PLAN, ROSTER):
            (folder / name).unlink(missing_ok=True)
    if before != life:
        replace_file(note, msgspec.json.encode(life))


def _end_ranks(folder: Path) -> str:
    """End the ranks of a roster, and wait until they have; those that there were."""
    lives = Roster(folder / ROSTER).lives
    left = [life for life in lives if life.is_there]
    for life in lives:
        life.end()
    until_s = time.monotonic() + END_S
    while any(life.is_there for life in left) and time.monotonic() < until_s:
        time.sleep(_LOOK_S)
    return format_ranks(life.rank for life in left) if left else ""
