"""Promises of `docker compose up`: a decision within the minute, least privilege, nothing left.

Needs a container engine: the one that `docker` reaches, or one that can be made here. Without,
the test is skipped. `make compose-test` runs it, in the order of this file: the first test brings
everything up.
"""

import asyncio
import json
import os
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from nemesis.streams.connection import Connection, Login
from nemesis.streams.errors import UndeliverableError
from tests.cells import until
from tests.conftest import ROOT

pytestmark = [pytest.mark.compose, pytest.mark.timeout(900)]

ENGINE_MAKER = ROOT.parent / "shared" / "tools" / "docker-here"
PROJECT = f"nemesis-test-{os.getpid()}"
DECISION_PATIENCE_S = 180.0
KILLED = ("healer", "job-actor")
PARTS = (
    "clock",
    "intake",
    "attribution",
    "healer",
    "job-actor",
    "archivist",
    "simulator",
)
FORBIDDEN = (
    "nemesis.events.>",
    "nemesis.telemetry.>",
    "nemesis.cursor.>",
    "nemesis.plan.*",
    "nemesis.report.>",
    "nemesis.truth.>",
    "$JS.API.>",
    "$KV.>",
    "$SYS.>",
    "_INBOX.>",
    ">",
)


@pytest.fixture(scope="module")
def engine() -> Iterator[dict[str, str]]:
    """The environment in which `docker` reaches an engine; one that was made is ended again."""
    if _answers({}):
        yield {}
        return
    if not ENGINE_MAKER.exists() or os.geteuid() != 0:
        pytest.skip("no container engine answers, and none can be made here")
    was_up = _answers(_made())
    subprocess.run([ENGINE_MAKER, "up"], check=True, capture_output=True, timeout=600)
    yield _made()
    if not was_up:
        subprocess.run([ENGINE_MAKER, "down"], check=True, capture_output=True, timeout=120)


def _made() -> dict[str, str]:
    lines = subprocess.check_output([ENGINE_MAKER, "env"], text=True).splitlines()
    return dict(line.removeprefix("export ").split("=", 1) for line in lines)


def _answers(environment: dict[str, str]) -> bool:
    try:
        asked = subprocess.run(
            ["docker", "compose", "version"],
            env=os.environ | environment,
            capture_output=True,
            check=False,
            timeout=30,
        )
        listed = subprocess.run(
            ["docker", "info"],
            env=os.environ | environment,
            capture_output=True,
            check=False,
            timeout=30,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0 and listed.returncode == 0


class Stack:
    """The services of one `docker compose up`, on ports of their own."""

    def __init__(self, engine: dict[str, str]) -> None:
        ports = ("NATS", "WEBSOCKET", "DASHBOARD")
        self._environment = (
            os.environ
            | engine
            | {f"NEMESIS_{port}_PORT": "0" for port in ports}
            | {"NEMESIS_EVERY_S": "30"}
        )

    def docker(self, *words: str, limit_s: float = 120.0) -> str:
        done = subprocess.run(
            ["docker", *words],
            cwd=ROOT,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=limit_s,
        )
        assert done.returncode == 0, f"docker {' '.join(words)}: {done.stderr[-3000:]}"
        return done.stdout

    def compose(self, *words: str, limit_s: float = 120.0) -> str:
        return self.docker("compose", "-p", PROJECT, *words, limit_s=limit_s)

    def container(self, service: str) -> dict[str, Any]:
        found: list[dict[str, Any]] = json.loads(
            self.docker("inspect", self.compose("ps", "-q", service).strip())
        )
        return found[0]

    def address(self, service: str, port: int) -> str:
        return self.compose("port", service, str(port)).strip()

    def logs(self) -> str:
        return self.compose("logs", "--no-color", "--tail", "40")


@pytest.fixture(scope="module")
def stack(engine: dict[str, str]) -> Iterator[Stack]:
    """Everything up; everything down again, volumes too."""
    stack = Stack(engine)
    stack.compose("build", limit_s=600)
    try:
        yield stack
    finally:
        stack.compose("down", "-v", "--timeout", "5", limit_s=120)
        left = stack.docker("ps", "-aq", "--filter", f"label=com.docker.compose.project={PROJECT}")
        assert not left.strip()


@asynccontextmanager
async def browser(stack: Stack, folder: Path) -> AsyncIterator[Connection]:
    """Signed in as a page is: by WebSocket, with the browser's credential."""
    seed = folder / "browser.nk"
    seed.write_text(
        stack.compose(
            "run", "--rm", "--no-deps", "-T", "-u", "0", "--entrypoint", "cat", "seeds",
            "/seeds/browser/browser.nk",
        )
    )  # fmt: skip
    login = Login("browser", seed_path=seed)
    connection = await Connection.open(f"nats://{stack.address('nats', 4222)}", login, name="page")
    try:
        yield connection
    finally:
        await connection.close()


async def heard(events: "asyncio.Queue[dict[str, Any]]", holds: Callable[[Any], bool]) -> Any:
    """The first event for which this holds."""
    async with asyncio.timeout(DECISION_PATIENCE_S):
        while True:
            event = await events.get()
            if holds(event):
                return event


def recovered(event: dict[str, Any]) -> bool:
    done: bool = event["type"] == "dev.nemesis.attempt_completed.v1"
    return done and "goes on" in event["data"]["reason"]


def test_a_page_sees_the_decision_and_recovery_outlives_killed_services(
    stack: Stack, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    began_s = time.monotonic()
    stack.compose("up", "-d", "--wait", "--wait-timeout", "180", limit_s=240)

    async def look() -> float:
        events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        async with browser(stack, tmp_path) as page:

            async def take(message: Any) -> None:
                events.put_nowait(json.loads(message.data))

            await page.subscribe("nemesis.events", take)
            decided = "dev.nemesis.recovery_decided.v1"
            decision = await heard(events, lambda event: event["type"] == decided)
            seen_s = time.monotonic() - began_s
            assert decision["data"]["mode"] == "act"
            await heard(events, recovered)
            for service in KILLED:
                stack.compose("exec", "-T", service, "sh", "-c", "kill -9 -1")
            again = await heard(events, recovered)
            assert again["data"]["decision"] != decision["data"]["decision"]
        return seen_s

    try:
        seen_s = asyncio.run(look())
    except (TimeoutError, AssertionError):
        pytest.fail(stack.logs())
    with capsys.disabled():
        print(f"\ncompose: up to the decision on nemesis.events in {seen_s:.1f} s")
    for service in KILLED:
        assert stack.container(service)["RestartCount"] >= 1


def test_the_browser_reads_nothing_but_events_and_writes_nothing(
    stack: Stack, tmp_path: Path
) -> None:
    async def look() -> None:
        async with browser(stack, tmp_path) as page:
            for subject in FORBIDDEN:
                page.errors.clear()
                await page.client.subscribe(subject)
                await until(lambda: refused(page), f"{subject} is refused")
            for subject in ("nemesis.events", "nemesis.events.policy_applied.policy", "x"):
                with pytest.raises(UndeliverableError):
                    await page.request(subject, b"{}")

    asyncio.run(look())


def refused(page: Connection) -> bool:
    return any("permissions violation" in each.lower() for each in page.errors)


@pytest.mark.parametrize("service", PARTS)
def test_a_service_is_nobody_and_cannot_read_the_seeds_of_another(
    stack: Stack, service: str
) -> None:
    assert stack.compose("exec", "-T", service, "id", "-u").strip() not in {"", "0"}
    for other in {"healer", "attribution", "simulator"} - {service}:
        listed = stack.compose("exec", "-T", service, "sh", "-c", f"ls /seeds/{other} 2>&1; true")
        assert "Permission denied" in listed
