"""Posts events to a URL: CloudEvents in structured mode, signed, not redirected.

The body is the event as the log holds it. What a refusal means: 408, 425, 429 and 5xx, and no
answer at all, pass, so it is tried again, as late as Retry-After asks; everything else is meant.
"""

import ipaddress
import time
from collections.abc import Callable
from typing import Final, Self
from urllib.parse import urlsplit

import aiohttp

from nemesis.actors.sink import signing
from nemesis.actors.sink.delivery import Event, PassingError, RefusedError
from nemesis.schemas.errors import NemesisError

TIMEOUT_S: Final = 10.0
RETRY_AFTER_S_MAX: Final = 300.0
CONTENT_TYPE: Final = "application/cloudevents+json; charset=utf-8"
_PASSING: Final = frozenset({408, 425, 429})


class UnsafeUrlError(NemesisError):
    """Events would cross a network in the clear."""

    exit_code = 4


def check_url(url: str) -> None:
    """Refuse what is no web address, and a network in the clear.

    Raises:
        UnsafeUrlError: plain http to another machine.
        NemesisError: not a URL of http or https.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise NemesisError(f"not a web address: {url[:80]!r}", hint="like https://host/path")
    if parts.scheme == "http" and not _is_here(parts.hostname):
        raise UnsafeUrlError(
            f"{parts.hostname} would get events unencrypted", hint="name it with https://"
        )


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Webhook:
    """One URL; `async with`."""

    def __init__(self, url: str, secret: bytes, now_s: Callable[[], float] = time.time) -> None:
        self._url: Final = url
        self._secret: Final = secret
        self._now_s: Final = now_s
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        self._session = aiohttp.ClientSession(timeout=timeout)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None
        await self._session.close()

    async def deliver(self, event: Event) -> None:
        """Post it.

        Raises:
            PassingError: not taken now.
            RefusedError: not taken, and will not be.
        """
        assert self._session is not None
        signed = signing.headers(self._secret, event.id, int(self._now_s()), event.body)
        headers = {"Content-Type": CONTENT_TYPE, **signed}
        try:
            async with self._session.post(
                self._url, data=event.body, headers=headers, allow_redirects=False
            ) as answer:
                status, after = answer.status, answer.headers.get("Retry-After", "")
        except (aiohttp.ClientError, TimeoutError) as error:
            raise PassingError(f"{type(error).__name__}: {error}"[:200]) from error
        if 200 <= status < 300:
            return
        if status in _PASSING or status >= 500:
            wait_s = min(float(after), RETRY_AFTER_S_MAX) if after.isdecimal() else 0.0
            raise PassingError(f"status {status}", wait_s=wait_s)
        raise RefusedError(f"status {status}")
