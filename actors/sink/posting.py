"""Posts bodies to web addresses, not redirected, and says what an answer means.

408, 425, 429 and 5xx, and no answer at all, pass: try again, as late as Retry-After asks.
Everything else is meant.
"""

import ipaddress
from collections.abc import Mapping
from typing import Final, Self
from urllib.parse import urlsplit

import aiohttp

from nemesis.actors.sink.delivery import PassingError, RefusedError
from nemesis.schemas.errors import NemesisError

TIMEOUT_S: Final = 10.0
RETRY_AFTER_S_MAX: Final = 300.0
ANSWER_BYTES_MAX: Final = 64 << 10
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


class Poster:
    """Connections to web addresses; `async with`."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_S))
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None
        await self._session.close()

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> bytes:
        """Post it; the beginning of the answer.

        Raises:
            PassingError: not taken now.
            RefusedError: not taken, and will not be.
        """
        assert self._session is not None
        try:
            async with self._session.post(
                url, data=body, headers=headers, allow_redirects=False
            ) as answer:
                status, after = answer.status, answer.headers.get("Retry-After", "")
                said = await answer.content.read(ANSWER_BYTES_MAX)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise PassingError(f"{type(error).__name__}: {error}"[:200]) from error
        except ValueError as error:  # an id with a line break, of somebody who writes what he likes
            raise RefusedError(f"no such header can be sent: {error}"[:200]) from error
        if 200 <= status < 300:
            return said
        if status in _PASSING or status >= 500:
            wait_s = min(float(after), RETRY_AFTER_S_MAX) if after.isdecimal() else 0.0
            raise PassingError(f"status {status}", wait_s=wait_s)
        raise RefusedError(f"status {status}")
