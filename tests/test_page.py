"""Promises of the page in a real browser: found by keyboard, heard by all, bounded, harmless."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pytest
from aiohttp import web
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, expect

from nemesis.schemas import operated
from nemesis.views.dashboard.hub import Hub
from nemesis.views.dashboard.replays import Replays
from nemesis.views.dashboard.web import application
from tests.page_log import busy, cluster, goodput, waiting
from tests.page_server import chromium, chromium_path, hub_of, page_server
from tests.replay_logs import Log
from tests.test_dashboard_board import verdict

RECORDING = Path(__file__).parent / "recordings" / "gpu-off-bus.ndjson.zst"
PATIENCE_MS = 30_000
Body = Callable[[Page, str], Awaitable[None]]


class Look(Protocol):
    """Opens the page of a hub and looks at it."""

    def __call__(self, hub: Hub, body: Body, **options: Any) -> None: ...


@pytest.fixture(scope="module")
def look() -> Iterator[Look]:
    """Looks at the page of a hub; one browser for all."""
    chromium_path()
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        browser = runner.run(stack.enter_async_context(chromium()))

        def look(hub: Hub, body: Body, **options: Any) -> None:
            async def run() -> None:
                async with page_server(hub) as url, opened(browser, url, **options) as page:
                    await body(page, url)

            runner.run(run())

        yield look
        runner.run(stack.aclose())


@asynccontextmanager
async def opened(browser: Browser, url: str, **options: Any) -> AsyncIterator[Page]:
    """The page, once it has drawn its first document; no script of it may have failed."""
    context = await browser.new_context(viewport={"width": 1440, "height": 1000}, **options)
    page = await context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    expect.set_options(timeout=PATIENCE_MS)
    failures: list[str] = []
    asked: list[str] = []
    page.on("pageerror", lambda error: failures.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    await page.goto(url)
    await expect(page.locator("#pulse")).not_to_be_empty()
    yield page
    assert failures == []
    origin = url.partition("?")[0]
    assert [each for each in asked if not each.startswith((origin, "data:"))] == []
    await context.close()


def small_log() -> Log:
    """Sixteen nodes, an incident with evidence, a decision that waits, half an hour of goodput."""
    log = Log()
    log.tick()
    cluster(log, 16)
    goodput(log, "llama", 5)
    evidence = [{"fact": "n0002/kernel/1/1", "says": "Xid 79", "text": "NVRM: Xid 79, gone"}]
    culprits = [{"kind": "gpu", "id": "gpu/n0002/0000:43:00.0"}]
    log.event(verdict(evidence=evidence, culprits=culprits), key="i-1")
    waiting(log, 1, "i-1")
    log.tick()
    return log


def say(hub: Hub, log: Log, data: Any, key: str) -> None:
    """One more fact, which all browsers are told of."""
    log.event(data, key=key)
    hub.board.see(log.records[-1])
    hub.publish()


async def press(page: Page, keys: str) -> None:
    """Keys one after the other."""
    for key in keys.split():
        await page.keyboard.press(key)


async def serious_faults(page: Page) -> list[str]:
    """What axe finds that keeps somebody out."""
    found = await Axe().run(page)
    return [
        f"{fault['id']}: {fault['help']} {[node['html'][:120] for node in fault['nodes'][:3]]}"
        for fault in found.response["violations"]
        if fault["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_keeps_anybody_out(look: Look, scheme: str) -> None:
    async def body(page: Page, url: str) -> None:
        assert await serious_faults(page) == []
        await press(page, "?")
        assert await serious_faults(page) == []
        await press(page, "Escape g m n Enter")
        await expect(page.locator("#fact-dialog table")).to_be_visible()
        assert await serious_faults(page) == []
        await press(page, "Escape g i Enter")
        for tab in ("story", "timeline", "facts"):
            await page.locator(f"#tab-{tab}").click()
            await expect(page.locator(f"#tab-{tab}")).to_have_attribute("aria-current", "page")
            assert await serious_faults(page) == []

    look(hub_of(small_log().records), body, color_scheme=scheme)


def test_which_node_which_line_and_what_was_done_by_keyboard_in_a_large_cluster(look: Look) -> None:
    async def body(page: Page, url: str) -> None:
        await press(page, "g i Enter")
        await expect(page.locator("#which")).to_be_focused()
        node = (await page.locator("#which").inner_text()).split("/")[1]
        assert node.startswith("n0")
        await press(page, "e")
        await expect(page.locator("#evidence")).to_be_focused()
        await expect(page.locator("blockquote").first).to_be_in_viewport()
        await expect(page.locator("blockquote").first).to_contain_text("NVRM: Xid (PCI:")
        await press(page, "d")
        await expect(page.locator("#done")).to_be_focused()
        await expect(page.locator(".deeds")).to_contain_text("recovery decided")
        await press(page, "Escape")
        assert "incident=" not in page.url
        assert await page.evaluate("document.activeElement.closest('#incidents') !== null")

    look(hub_of(busy(nodes_count=1000, events_count=20_000)), body)


def test_words_of_others_are_words(look: Look) -> None:
    log = small_log()
    hostile = "<img src=x onerror=window.broken=1><script>window.broken=1</script>\u202etxt\x1b[31m"
    log.event(
        verdict("i-2", reason=hostile, evidence=[{"fact": "f", "says": hostile, "text": hostile}]),
        key="i-2",
    )
    log.event(
        operated.NoteAdded(at_ns=1, by="eve", reason="", text=hostile, incident="i-2"), key="eve"
    )

    async def body(page: Page, url: str) -> None:
        await expect(page.locator("#feed")).to_contain_text("<img src=x onerror")
        await page.goto(f"{url}?incident=i-2")
        for tab in ("story", "timeline", "facts"):
            await page.locator(f"#tab-{tab}").click()
            await expect(page.locator(".incident")).to_contain_text("<script>window.broken=1")
            assert "\u202e" not in await page.locator(".incident").inner_text()
        assert await page.locator("main img, main script").count() == 0
        assert await page.evaluate("window.broken") is None

    look(hub_of(log.records), body)


def test_the_feed_follows_pauses_and_stays_small(look: Look) -> None:
    log = small_log()
    hub = hub_of(log.records)

    async def pour(first: int, count: int) -> None:
        for number in range(first, first + count):
            text = f"note number {number}"
            note = operated.NoteAdded(at_ns=1, by="ann", reason="", text=text, incident="")
            say(hub, log, note, "ann")
            await asyncio.sleep(0.001)

    async def body(page: Page, url: str) -> None:
        await pour(0, 600)
        newest = page.locator("#feed li").first
        await expect(newest).to_contain_text("note number 599")
        await press(page, "f")
        await expect(page.locator("#follow")).to_have_attribute("aria-pressed", "false")
        await pour(600, 150)
        await expect(page.locator("#fresh")).to_have_text("150 new")
        await expect(newest).to_contain_text("note number 599")
        await press(page, "f")
        await expect(newest).to_contain_text("note number 749")
        await press(page, "/")
        await page.keyboard.type("number 123")
        await expect(page.locator("#feed li")).to_have_count(1)
        await page.locator("#filter").fill("")
        await press(page, "Escape g f End")
        assert await page.locator("#feed li").count() < 60, "only what is in view is in the page"

    look(hub, body)


def test_a_new_verdict_is_said_aloud_and_marked_on_the_map(look: Look) -> None:
    log = small_log()
    hub = hub_of(log.records)

    async def body(page: Page, url: str) -> None:
        culprits = [{"kind": "gpu", "id": "gpu/n0005/0000:1b:00.0"}]
        say(hub, log, verdict("i-9", culprits=culprits), "i-9")
        await expect(page.locator("#announcer")).to_contain_text("New verdict: gpu/n0005/0000:1b")
        await expect(page.locator("#unwell")).to_contain_text("gpu/n0005/0000:1b:00.0")
        await press(page, "g m n n")
        await expect(page.locator("#map-here")).to_contain_text("n0005")
        await expect(page.locator("#map-here")).to_contain_text("GPU 0 at fault")

    look(hub, body)


def test_a_server_that_was_away_is_noticed_and_what_was_missed_comes() -> None:
    log = small_log()
    hub = hub_of(log.records)
    chromium_path()

    async def run() -> None:
        async def up(port: int) -> web.AppRunner:
            app = application(hub, None, Replays(), names=[])
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", port, reuse_address=True).start()
            return runner

        runner = await up(0)
        port = runner.addresses[0][1]
        async with chromium() as browser, opened(browser, f"http://127.0.0.1:{port}/") as page:
            await expect(page.locator("#incidents li")).to_have_count(1)
            await runner.cleanup()
            await expect(page.locator("#alarms")).to_contain_text("does not answer")
            say(hub, log, verdict("i-3"), "i-3")
            runner = await up(port)
            await expect(page.locator("#incidents li")).to_have_count(2)
            await expect(page.locator("#alarms")).not_to_contain_text("does not answer")
        await runner.cleanup()

    asyncio.run(run())


def test_a_recording_is_dropped_verified_and_scrubbed(look: Look) -> None:
    async def body(page: Page, url: str) -> None:
        await page.locator("#file").set_input_files(RECORDING)
        await expect(page.locator(".proof")).to_contain_text("drawn again and equal")
        await expect(page.locator("#incidents li a")).to_have_count(1)
        await expect(page.locator("#cell")).to_have_text(RECORDING.name)
        await page.locator("#moment").focus()
        await press(page, "Home")
        await expect(page.locator("#incidents li a")).to_have_count(0)
        for _ in range(40):
            await press(page, "]")
        await expect(page.locator("#incidents li a")).to_have_count(1)
        shared = page.url
        await page.goto(shared)
        await expect(page.locator(".proof")).to_contain_text("drawn again and equal")
        await page.locator(".leave").click()
        await expect(page.locator("#cell")).to_have_text("lab")
        assert "replay=" not in page.url

    look(hub_of(small_log().records), body)


def test_a_file_that_is_no_recording_is_refused_in_words(look: Look, tmp_path: Path) -> None:
    (tmp_path / "x.ndjson").write_text("garbage\n")

    async def body(page: Page, url: str) -> None:
        await page.locator("#file").set_input_files(tmp_path / "x.ndjson")
        await expect(page.locator("#replay")).to_contain_text("expected the header of a recording")

    look(hub_of(small_log().records), body)


def test_the_command_that_approves_is_copied_and_nothing_is_sent(look: Look) -> None:
    async def body(page: Page, url: str) -> None:
        sent: list[str] = []
        page.on("request", lambda request: sent.append(request.method))
        await press(page, "c")
        await expect(page.locator(".approve .copy").first).to_have_text("Copied")
        copied = await page.evaluate("navigator.clipboard.readText()")
        assert copied == "nemesis approve llama/1 --cell lab --reason 'seen'"
        assert set(sent) <= {"GET"}

    permissions = ["clipboard-read", "clipboard-write"]
    look(hub_of(small_log().records), body, permissions=permissions)


def test_the_address_is_the_view(look: Look) -> None:
    async def body(page: Page, url: str) -> None:
        await press(page, "g i Enter 2")
        await expect(page.locator(".timeline svg")).to_be_visible()
        there = page.url
        await page.goto("about:blank")
        await page.goto(there)
        await expect(page.locator(".timeline svg")).to_be_visible()
        await expect(page.locator("#which")).to_have_text("gpu/n0002/0000:43:00.0")

    look(hub_of(small_log().records), body)


def test_the_facts_of_an_incident_can_be_taken_along(look: Look) -> None:
    async def body(page: Page, url: str) -> None:
        await press(page, "g i Enter 3")
        await expect(page.locator(".facts")).to_contain_text("nemesis incident i-1 --cell lab")
        async with page.expect_download() as downloading:
            await page.locator(".facts a[download]").click()
        path = await (await downloading.value).path()
        assert msgspec.json.decode(path.read_bytes())["culprits"] == ["gpu/n0002/0000:43:00.0"]

    look(hub_of(small_log().records), body)


def test_the_chart_is_loaded_when_it_is_wanted(look: Look) -> None:
    async def body(page: Page, url: str) -> None:
        loaded = "performance.getEntriesByName(location.origin + '/vendor/charts.js').length"
        assert await page.evaluate(loaded) == 0
        await page.locator(".over-time summary").click()
        await expect(page.locator(".chart .main-svg").first).to_be_visible()
        assert await page.evaluate(loaded) == 1

    look(hub_of(small_log().records), body)


def test_a_hundred_thousand_gpus_are_drawn(look: Look) -> None:
    async def body(page: Page, url: str) -> None:
        await expect(page.locator("#figures")).to_contain_text("100,000")
        label = await page.locator("#map").get_attribute("aria-label")
        assert label is not None
        assert label.startswith("12,500 nodes, 100,000 GPUs")
        await press(page, "g m n")
        await expect(page.locator("#map-here")).to_contain_text("GPU")

    look(hub_of(busy(nodes_count=12_500, events_count=500)), body)
