"""That a part lives and reaches its log: one small file a part, written anew each second, and a
line on standard error when the log goes away and when it is back.

Why: a service manager or a container's health check must tell a part that hangs from one that
works, without a credential of its own and without asking the log. Processors say more of
themselves (`status.py`); this is for every other part.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from nemesis.schemas.tokens import token_of
from nemesis.streams.replacing import replace_file
from nemesis.streams.side_by_side import first_error

PERIOD_S: Final = 1.0
STALE_S: Final = 10.0
"""A part that was not heard of for so long hangs: ten periods, also on a machine under load."""
AWAY_LOOKS: Final = 3
"""A server that restarts is back before as many looks."""
_log: Final = logging.getLogger(__name__)


class Pulse(msgspec.Struct, frozen=True, kw_only=True):
    """What a part last said of itself."""

    part: str
    pid: int
    connected: bool
    """Whether it reaches the log."""


def pulses_folder(cell_folder: Path) -> Path:
    """Where the parts of a cell on this machine say that they live."""
    return cell_folder / "pulses"


async def keep(folder: Path, part: str, is_connected: Callable[[], bool]) -> None:
    """Say so each second, until cancelled; a disk that takes no file stops no part."""
    path, away_looks = folder / f"{token_of(part)}.json", 0
    try:
        while True:
            pulse = Pulse(part=part, pid=os.getpid(), connected=is_connected())
            with suppress(OSError):
                _write(path, pulse)
            if pulse.connected and away_looks >= AWAY_LOOKS:
                _log.warning("%s: the log is back", part)
            away_looks = 0 if pulse.connected else away_looks + 1
            if away_looks == AWAY_LOOKS:
                _log.warning("%s: the log is away; it goes on when that is back", part)
            await asyncio.sleep(PERIOD_S)
    finally:
        path.unlink(missing_ok=True)


def _write(path: Path, pulse: Pulse) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(path, msgspec.json.encode(pulse))


async def beside(
    work: Coroutine[None, None, object], folder: Path, part: str, is_connected: Callable[[], bool]
) -> None:
    """Run a part's work and say meanwhile that it lives; it ends with its own first error."""
    pulse = asyncio.create_task(keep(folder, part, is_connected))
    try:
        await work
    except BaseExceptionGroup as group:  # of a part whose tasks run side by side: what came first
        raise first_error(group) from None
    finally:
        pulse.cancel()
        await asyncio.gather(pulse, return_exceptions=True)
