"""The page in headless Chromium: first paint, the three tasks, frames and memory at 200 events/s.

1,000 nodes and 20,000 events, synthetic, folded into the server's board; the browser is real. Time
of a task is what the page took to answer, measured, and what a person takes for its keys, by the
keystroke-level model (Card, Moran, Newell 1980: 0.28 s a key, 1.35 s to decide or to read).
`python -m tests.bench.page --minutes 60` looks at memory for an hour.
"""

import argparse
import asyncio
import os
import random
import resource
import time
from collections.abc import Iterator
from itertools import count, islice
from typing import Any, Final

from playwright.async_api import Browser, CDPSession, Page

from nemesis.schemas import operated
from nemesis.schemas.facts import Record
from nemesis.views.dashboard.hub import Hub
from tests.bench.row import AtMost, Row, median
from tests.page_log import busy, chatter, incident
from tests.page_server import chromium, find_chromium, hub_of, page_server
from tests.replay_logs import Log

NODES_COUNT: Final = 1000
EVENTS_COUNT: Final = 20_000
RATE_PER_S: Final = 200
REPETITIONS: Final = 5
FRAMES_S: Final = 15
KEY_S: Final = 0.28
THINK_S: Final = 1.35
LATE_MS: Final = 50  # two frames are missed at 60 a second, and most people see it
TASKS: Final = (
    ("which node", "g i Enter", "document.activeElement?.id === 'which'"),
    ("which line proves it", "e", "document.activeElement?.id === 'evidence'"),
    ("what was done", "d", "document.activeElement?.id === 'done'"),
)
_FRAMES: Final = """
window.frames_ms = [];
(function next(before) {
  requestAnimationFrame((now) => {
    if (before) window.frames_ms.push(now - before);
    next(now);
  });
})(0);
"""


async def measure(minutes: float = 0.5) -> list[Row]:
    """All rows; `minutes`: how long memory is looked at."""
    if find_chromium() is None:
        print("UI  no Chromium here: the page is not measured")
        return []
    records = busy(nodes_count=NODES_COUNT, events_count=EVENTS_COUNT)
    hub = hub_of(records)
    async with page_server(hub) as url, chromium("--enable-precise-memory-info") as browser:
        rows = await _painting(browser, url)
        page = await browser.new_page(viewport={"width": 1440, "height": 1000})
        await page.goto(url)
        await _until(page, "document.querySelector('#incidents a') !== null")
        rows += await _tasks(page)
        rows += await _under_load(page, hub, records, minutes)
    return rows


async def _painting(browser: Browser, url: str) -> list[Row]:
    first_s, whole_s = [], []
    for _ in range(REPETITIONS):
        context = await browser.new_context(viewport={"width": 1440, "height": 1000})
        page = await context.new_page()
        began_s = time.monotonic()
        await page.goto(url)
        await _until(page, "document.querySelector('#incidents a') !== null")
        whole_s.append(time.monotonic() - began_s)
        paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
        await _until(page, f"({paint}) > 0")
        first_s.append(await page.evaluate(paint) / 1000)
        await context.close()
    how = f"{NODES_COUNT} nodes, {EVENTS_COUNT} events, synthetic; headless Chromium, median of 5"
    return [
        Row("UI", "first paint", median(first_s), "s", how, AtMost(1.0)),
        Row("UI", "cluster and incidents shown", median(whole_s), "s", how, AtMost(1.0)),
    ]


async def _tasks(page: Page) -> list[Row]:
    rows = []
    for name, keys, holds in TASKS:
        pressed = keys.split()
        began_s = time.monotonic()
        for key in pressed:
            await page.keyboard.press(key)
        await _until(page, holds)
        answered_s = time.monotonic() - began_s
        steps_s = len(pressed) * KEY_S + 2 * THINK_S
        how = f"keys {keys}; {steps_s:.1f} s by the keystroke-level model, the rest measured"
        rows.append(Row("UI", name, steps_s + answered_s, "s", how, AtMost(10.0)))
    await page.keyboard.press("Escape")
    return rows


async def _under_load(page: Page, hub: Hub, records: list[Record], minutes: float) -> list[Row]:
    session = await page.context.new_cdp_session(page)
    pouring = asyncio.create_task(_pour(hub, records))
    try:
        await page.evaluate(_FRAMES)
        await asyncio.sleep(FRAMES_S)
        frames_ms: list[float] = await page.evaluate("window.frames_ms.splice(0)")
        late_percent = 100 * sum(ms > LATE_MS for ms in frames_ms) / len(frames_ms)
        await page.evaluate("window.frames_ms = { push() {} }")
        half_s = minutes * 30
        await asyncio.sleep(half_s)
        middle_mib, server_middle_mib = await _heap_mib(session), _server_mib()
        await asyncio.sleep(half_s)
        end_mib, server_end_mib = await _heap_mib(session), _server_mib()
        behind = hub.board.version - await page.evaluate(
            "import('/static/store.js').then(({ state }) => state.version)"
        )
    finally:
        pouring.cancel()
    at = f"at {RATE_PER_S} events/s"
    how = f"{at}, after {minutes:g} min; before the second half {middle_mib:.1f}"
    served = f"the server's peak; before the second half {server_middle_mib:.0f}"
    return [
        Row("UI", f"frames later than {LATE_MS} ms", late_percent, "%", at, AtMost(1.0)),
        Row("UI", "heap of the page", end_mib, "MiB", how, AtMost(64)),
        Row("UI", "memory of server and bench", server_end_mib, "MiB", served),
        Row("UI", "versions behind at the end", behind, "", at, AtMost(2 * RATE_PER_S)),
    ]


async def _pour(hub: Hub, records: list[Record]) -> None:
    """Notes at a steady rate, and an incident now and then, for ever."""
    log, rng = Log(), random.Random(1)
    names = sorted(node[0] for node in hub.board.document()["nodes"])
    first_seq = records[-1].seq
    texts: Iterator[str] = chatter()
    batch = RATE_PER_S // 20
    for number in count():
        for said in islice(texts, batch):
            note = operated.NoteAdded(at_ns=1, by="ann", reason="", text=said, incident="")
            log.event(note, key=rng.choice(names))
        if number % 100 == 0:
            incident(log, rng, names, 1000 + number)
        if number % 20 == 0:
            log.tick()
        for record in log.records:
            hub.board.see(Record(first_seq, record.subject, record.stored_ns, record.payload))
            first_seq += 1
        log.records.clear()
        hub.publish()
        await asyncio.sleep(1 / 20)


async def _until(page: Page, holds: str) -> None:
    """Wait for a condition; the page forbids playwright's own way, which compiles text."""
    while not await page.evaluate(holds):  # noqa: ASYNC110  # a browser wakes nobody
        await asyncio.sleep(0.005)


async def _heap_mib(session: CDPSession) -> float:
    await session.send("HeapProfiler.collectGarbage")
    used: dict[str, Any] = await session.send("Runtime.getHeapUsage")
    return float(used["usedSize"]) / 2**20


def _server_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def main() -> None:
    """Print the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    minutes = parser.parse_args().minutes
    print(f"load before: {os.getloadavg()[0]:.2f}")
    for row in asyncio.run(measure(minutes)):
        goal = str(row.goal) if row.goal else ""
        print(f"{row.what:34}{row.value:10.4g} {row.unit:5}{goal:>8} {row.verdict:7} {row.how}")


if __name__ == "__main__":
    main()
