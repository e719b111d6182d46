"""Promises of `nemesis check`: one line and a status that monitoring understands."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nemesis.cli.check import judge
from nemesis.cli.check_formats import Finding, shown
from nemesis.streams import pulse
from nemesis.streams.server import Server, state_folder
from nemesis.views.standing import Standing, Status
from tests.cells import until

SECOND_NS = 1_000_000_000


def told(*options: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "nemesis.cli", "check", *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout


def standing(**changes: Any) -> Status:
    fields: dict[str, Any] = {
        "cell": "c",
        "first_seq": 1,
        "last_seq": 9,
        "used_bytes": 1,
        "limit_bytes": 100,
        "fill_ppm": 10_000,
        "log_time_ns": SECOND_NS,
        "clock_age_ns": SECOND_NS,
        "clock_behind_ns": 0,
        "processors": [lagging(0)],
        "copies": [],
    }
    return Status(**(fields | changes))


def lagging(seconds: int) -> Standing:
    return Standing(name="healer", version=1, in_seq=9, lag_seq=0, lag_ns=seconds * SECOND_NS)


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, "ok"),
        ({"clock_age_ns": 6 * SECOND_NS}, "critical"),
        ({"clock_age_ns": None}, "critical"),
        ({"fill_ppm": 800_000}, "warning"),
        ({"fill_ppm": 900_000}, "critical"),
        ({"processors": [lagging(0), lagging(10)]}, "warning"),
        ({"processors": [lagging(60)]}, "critical"),
        ({"processors": []}, "critical"),
    ],
)
def test_the_worst_of_clock_fill_and_lag_is_told(changes: dict[str, Any], state: str) -> None:
    states = [each.state for each in judge(standing(**changes))]
    assert max(states, key=["ok", "warning", "critical"].index) == state


def test_each_monitoring_system_gets_its_own_words() -> None:
    found = judge(standing(processors=[lagging(12)]))
    assert shown(found, "text") == "WARNING - healer 12.0 s behind"
    assert shown(found, "nagios") == (
        "NEMESIS WARNING - healer 12.0 s behind"
        " | 'clock'=1.000s;;5 'fill'=1.000%;80;90 'lag_healer'=12.000s;10;60"
    )
    samples = {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
        for line in shown(found, "prometheus").splitlines()
        if not line.startswith("#")
    }
    assert samples == {
        "nemesis_check_state": 1,
        'nemesis_check_seconds{name="clock"}': 1,
        'nemesis_check_seconds{name="lag_healer"}': 12,
        'nemesis_check_ratio{name="fill"}': 0.01,
    }
    document = json.loads(shown(found, "json"))
    assert [each["state"] for each in document["findings"]] == ["ok", "ok", "warning"]


def test_no_word_of_a_log_ends_the_words_and_begins_measures() -> None:
    broken = [Finding("critical", "odd | name=1")]
    assert shown(broken, "nagios") == "NEMESIS CRITICAL - odd / name=1"


def test_a_cell_that_does_not_run_is_unknown(tmp_path: Path) -> None:
    status, line = told()
    assert status == 3
    assert line.startswith("UNKNOWN - no server of cell 'local' runs here")


def test_a_server_that_does_not_answer_is_critical() -> None:
    status, line = told("--server", "nats://127.0.0.1:1")
    assert status == 2
    assert line.startswith("CRITICAL - ")


def test_a_machine_without_parts_is_unknown() -> None:
    assert told("--here") == (3, "UNKNOWN - no part of cell 'local' runs on this machine\n")


@contextmanager
def part(name: str, *, connected: bool, age_s: float) -> Iterator[None]:
    folder = pulse.pulses_folder(state_folder("local"))
    folder.mkdir(parents=True)
    path = folder / f"{name}.json"
    word = "true" if connected else "false"
    path.write_text(f'{{"part":"{name}","pid":{os.getpid()},"connected":{word}}}')
    then_s = time.time() - age_s
    os.utime(path, (then_s, then_s))
    yield


@pytest.mark.parametrize(
    ("connected", "age_s", "status", "says"),
    [
        (True, 0.0, 0, "OK - clock"),
        (False, 0.0, 2, "CRITICAL - clock: does not reach its log"),
        (True, 3600.0, 2, "CRITICAL - clock not heard of for 36"),
    ],
)
def test_a_part_that_hangs_or_lost_its_log_is_critical(
    connected: bool, age_s: float, status: int, says: str
) -> None:
    with part("clock", connected=connected, age_s=age_s):
        found, line = told("--here")
    assert found == status
    assert line.startswith(says)


def test_a_file_that_is_no_pulse_hides_no_other_part() -> None:
    with part("clock", connected=True, age_s=0.0):
        (pulse.pulses_folder(state_folder("local")) / "other.json").write_bytes(b"\xff{")
        assert told("--here")[0] == 0


@pytest.mark.server
def test_a_clock_ticks_says_that_it_lives_and_leaves_nothing() -> None:
    async def main() -> None:
        async with Server("local") as server:
            clock = subprocess.Popen(  # noqa: ASYNC220
                [sys.executable, "-m", "nemesis.cli", "clock", "--quiet"], stderr=subprocess.DEVNULL
            )
            try:
                async with await server.connect("reader") as log:

                    async def ticked() -> bool:
                        return await log.last("nemesis.telemetry.clock.tick") is not None

                    await until(ticked, "a tick")
                    folder = pulse.pulses_folder(state_folder("local"))
                    await until(lambda: any(folder.glob("*.json")), "a pulse")
                status, line = await asyncio.to_thread(told, "--here", "--json")
                assert (status, json.loads(line)["state"]) == (0, "ok")
                status, line = await asyncio.to_thread(told)
                assert status == 2
                assert "no processor has a position" in line
            finally:
                clock.terminate()
                assert await asyncio.to_thread(clock.wait, 30) == 0
            assert not any(folder.glob("*"))

    asyncio.run(main())
