"""Posts events to a URL: CloudEvents in structured mode, signed. The body is the log's own."""

import time
from collections.abc import Callable
from typing import Final

from nemesis.actors.sink import signing
from nemesis.actors.sink.delivery import Event
from nemesis.actors.sink.posting import Poster

CONTENT_TYPE: Final = "application/cloudevents+json; charset=utf-8"


class Webhook(Poster):
    """One URL; `async with`."""

    def __init__(self, url: str, secret: bytes, now_s: Callable[[], float] = time.time) -> None:
        super().__init__()
        self._url: Final = url
        self._secret: Final = secret
        self._now_s: Final = now_s

    async def deliver(self, event: Event) -> None:
        """Post it.

        Raises: as `post`.
        """
        signed = signing.headers(self._secret, event.id, int(self._now_s()), event.body)
        await self.post(self._url, event.body, {"Content-Type": CONTENT_TYPE, **signed})
