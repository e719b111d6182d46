"""What the exporter answers: /metrics, /readyz, /healthz."""

from typing import Final

from aiohttp import web

from nemesis.views.exporter.exposition import page
from nemesis.views.exporter.live import Live

LIVE: Final = web.AppKey("live", Live)


def application(live: Live) -> web.Application:
    """A server of the series that `live` feeds."""
    app = web.Application()
    app[LIVE] = live
    app.router.add_get("/metrics", _metrics)
    app.router.add_get("/healthz", _healthz)
    app.router.add_get("/readyz", _readyz)
    return app


async def _metrics(request: web.Request) -> web.Response:
    live = request.app[LIVE]
    if not live.counted:
        # half-read counts would look like thousands of events at once
        return web.Response(status=503, text="the log's past is still being counted\n")
    content_type, text = page(live.series, request.headers.get("Accept", ""))
    return web.Response(body=text, headers={"Content-Type": content_type})


async def _healthz(request: web.Request) -> web.Response:
    return web.Response(text="ok\n")


async def _readyz(request: web.Request) -> web.Response:
    live = request.app[LIVE]
    if live.counted and live.reachable:
        return web.Response(text="ok\n")
    why = "the log does not answer" if live.counted else "the log's past is still being counted"
    return web.Response(status=503, text=f"{why}\n")
