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
from nemesis.actors.agent.roster import ROSTER, Roster
from nemesis.schemas.rank_ranges import format_ranks
from nemesis.streams.replacing import replace_file

NOTE: Final = "run.json"
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
    left = [life for life in Roster(folder / ROSTER).lives if life.is_there]
    for life in Roster(folder / ROSTER).lives:
        life.end()
    until_s = time.monotonic() + END_S
    while any(life.is_there for life in left) and time.monotonic() < until_s:
        time.sleep(_LOOK_S)
    if left:
        numbers = format_ranks([life.rank for life in left])
        say(f"rank {numbers} of a run that was killed lived on here, and was ended")
    if folder.name.startswith(_PREFIX):
        shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        note.unlink()
