"""Promises of the supervisor: what ends is started again, later each time; nothing outlives it."""

import asyncio
import logging
import os
import re
import sys
from collections.abc import Sequence

import pytest

from nemesis.streams import supervisor
from nemesis.streams.supervisor import Supervisor

PATIENCE_S = 60.0
ENDS = (sys.executable, "-c", "raise SystemExit(7)")
STAYS = ("sleep", "600")


def waits(caplog: pytest.LogCaptureFixture) -> list[float]:
    """After which pauses it started a child again, in seconds."""
    said = [each.getMessage() for each in caplog.records]
    return [float(match[1]) for each in said if (match := re.search(r"again in ([\d.]+) s", each))]


def watched(command: Sequence[str], ends_count: int, *, wait_s_max: float) -> None:
    """Run one child until it has ended so often."""

    async def main() -> None:
        async with (
            asyncio.timeout(PATIENCE_S),
            Supervisor({"it": command}, wait_s_max=wait_s_max) as kept,
        ):
            while kept.restart_counts["it"] < ends_count:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.01)

    asyncio.run(main())


def test_what_ends_at_once_again_and_again_is_started_later_each_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    watched(ENDS, 4, wait_s_max=1.0)
    assert waits(caplog) == [0.4, 0.8, 1.0]  # the longest wait is said once
    assert "it ended with 7" in caplog.records[0].getMessage()


def test_what_lived_well_is_started_soon(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(supervisor, "LIVED_WELL_S", 0.0)
    watched(ENDS, 3, wait_s_max=1.0)
    assert waits(caplog) == [0.2, 0.2, 0.2]


def test_nothing_outlives_it() -> None:
    async def main() -> list[int]:
        async with asyncio.timeout(PATIENCE_S), Supervisor({"a": STAYS, "b": STAYS}) as kept:
            while kept.pid("a") is None or kept.pid("b") is None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            return [pid for name in "ab" if (pid := kept.pid(name)) is not None]

    pids = asyncio.run(main())
    assert len(pids) == 2
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
