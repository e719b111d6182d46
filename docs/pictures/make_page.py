"""Draws docs/pictures/page.png: the page on a recording of `nemesis demo`, in headless Chromium.

python docs/pictures/make_page.py
"""

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
from playwright.async_api import async_playwright

HERE = Path(__file__).parent
RECORDING = HERE.parent.parent / "tests" / "recordings" / "gpu-off-bus.ndjson.zst"
COMMAND = ("dashboard", "--recording", str(RECORDING), "--port", "0", "--json")


async def draw(url: str) -> None:
    """The whole page as it stands at the end of the recording."""
    async with async_playwright() as playwright:
        flags = ["--no-sandbox"] if os.getuid() == 0 else []
        browser = await playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=flags
        )
        page = await browser.new_page(viewport={"width": 1280, "height": 860})
        await page.goto(url)
        await page.locator("#incidents a").wait_for()
        await page.locator("#map-scroll canvas").wait_for()
        await page.wait_for_timeout(500)
        await page.screenshot(path=HERE / "page.png")
        await browser.close()


def main() -> None:
    """Serve the recording, look at it, end the server."""
    server = subprocess.Popen(
        [sys.executable, "-m", "nemesis.cli", *COMMAND], stdout=subprocess.PIPE
    )
    try:
        assert server.stdout is not None
        asyncio.run(draw(msgspec.json.decode(server.stdout.readline())["url"]))
    finally:
        server.terminate()
        server.wait()


main()
