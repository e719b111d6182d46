"""The stream of changes to one browser, as server-sent events.

Changes are gathered for a quarter of a second, so that 200 events a second are four messages. A
browser that reads slowly gets fewer and larger ones: what it has not read is not queued. Each
message's id is the version of the page behind it, so a browser that comes back says where it was.
html.spec.whatwg.org/multipage/server-sent-events.html.
"""

import asyncio
from typing import Final

from aiohttp import web

from nemesis.views.dashboard.hub import Hub

GATHER_S: Final = 0.25
BEAT_S: Final = 10.0  # proxies close what is silent for a minute
RETRY_MS: Final = 1000
BROWSERS_MAX: Final = 64


class Streams:
    """Every browser that listens."""

    def __init__(self, hub: Hub) -> None:
        self._hub: Final = hub
        self._tasks: Final[set[asyncio.Task[None]]] = set()

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Send changes until the browser leaves."""
        if len(self._tasks) >= BROWSERS_MAX:
            return web.Response(status=503, text="too many browsers look at this page\n")
        response = web.StreamResponse(
            headers={
                "Content-Type": "text/event-stream",
                "Cache-Control": "no-store",
                "X-Accel-Buffering": "no",  # a proxy must not gather what we gathered
            }
        )
        await response.prepare(request)
        where = request.headers.get("Last-Event-ID") or request.query.get("since", "")
        task = asyncio.create_task(self._send(response, where))
        self._tasks.add(task)
        try:
            await asyncio.shield(task)
        except (ConnectionError, asyncio.CancelledError):
            pass  # the browser left, or we do
        finally:
            task.cancel()
            self._tasks.discard(task)
        return response

    async def close(self) -> None:
        """End every stream: browsers come back when there is somebody again."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _send(self, response: web.StreamResponse, where: str) -> None:
        hub = self._hub
        run, version = _parsed(where)
        await response.write(f"retry: {RETRY_MS}\n\n".encode())
        while True:
            if run != hub.run:
                run, version = hub.run, hub.board.version
                message = b'{"layout":true}'
            elif await hub.wait(run, version, BEAT_S):
                await asyncio.sleep(GATHER_S)
                if run != hub.run:
                    continue
                version, message = hub.board.version, hub.changes(version)
            else:
                await response.write(b": beat\n\n")
                continue
            await response.write(b"id: %s-%d\ndata: %s\n\n" % (run.encode(), version, message))


def _parsed(where: str) -> tuple[str, int]:
    """(run, version) of an event's id; a run that never was, where it is none."""
    run, _, version = where[:64].partition("-")
    return (run, int(version)) if version.isascii() and version.isdecimal() else ("", 0)
