"""The page in a real browser for tests and benches: a log made by hand, a server, Chromium."""

import os
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import pytest
from aiohttp import web
from playwright.async_api import Browser, async_playwright

from nemesis.schemas.facts import Record
from nemesis.views.dashboard.board import Board
from nemesis.views.dashboard.hub import Hub
from nemesis.views.dashboard.replays import Replays
from nemesis.views.dashboard.web import application

_NAMES: Final = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")


def find_chromium() -> str | None:
    """The system's Chromium, if there is one."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


def chromium_path() -> str:
    """The system's Chromium; the test is skipped without one."""
    path = find_chromium()
    if path is None:
        pytest.skip("no Chromium on this machine (Debian: apt install chromium)")
    return path


def hub_of(records: Sequence[Record]) -> Hub:
    """A hub whose log is read."""
    hub = Hub(Board(cell="lab", where=" --cell lab"))
    for record in records:
        hub.board.see(record)
    hub.ready = hub.connected = True
    return hub


@asynccontextmanager
async def page_server(hub: Hub) -> AsyncIterator[str]:
    """The address of the page while it is served."""
    runner = web.AppRunner(
        application(hub, None, Replays(), names=[]), access_log=None, shutdown_timeout=0.1
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def chromium(*arguments: str) -> AsyncIterator[Browser]:
    """A headless browser."""
    flags = ["--no-sandbox"] if os.getuid() == 0 else []  # Chromium refuses its sandbox to root
    async with AsyncExitStack() as stack:
        playwright = await stack.enter_async_context(async_playwright())
        browser = await playwright.chromium.launch(
            executable_path=chromium_path(), args=[*flags, *arguments]
        )
        stack.push_async_callback(browser.close)
        yield browser
