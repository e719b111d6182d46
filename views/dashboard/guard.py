"""What keeps other pages and other machines out: the Host that is asked for, and strict headers.

There is no sign-in. On loopback the danger is a web page of somebody else in the same browser: it
cannot read our answers unless it makes the browser believe that we are its own host (DNS
rebinding). So a request must name an address or a name that we know: a page that was loaded from
an address can be no other's. github.com/OWASP/CheatSheetSeries, cheatsheets.
"""

import ipaddress
from collections.abc import Iterable
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from nemesis.schemas.errors import NemesisError

CSP: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS: Final = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}
_LOOPBACK_NAMES: Final = frozenset({"localhost", "localhost.localdomain"})


class ExposedError(NemesisError):
    """The page would be open to others, and nobody said that it may be."""

    exit_code = 4


def check_bind(address: str, *, exposed: bool, shows: str = "every fact of the log") -> None:
    """Refuse to listen beyond this machine unless that is meant.

    Raises:
        ExposedError: the address is not loopback and `exposed` was not said.
    """
    try:
        loopback = ipaddress.ip_address(address).is_loopback
    except ValueError:
        loopback = address in _LOOPBACK_NAMES
    if not loopback and not exposed:
        raise ExposedError(
            f"--bind {address} lets everybody who reaches this port read {shows},"
            " without signing in and unencrypted",
            hint="add --expose if a proxy in front of it signs people in, or use an SSH tunnel",
        )


def may_ask_for(host: str, names: Iterable[str]) -> bool:
    """Whether a Host header names this server: an address, a loopback name, or one we were told."""
    name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
    if name.startswith("[") and name.endswith("]"):
        name = name[1:-1]
    if name.casefold() in _LOOPBACK_NAMES or name.casefold() in {n.casefold() for n in names}:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def guard(names: Iterable[str]) -> Middleware:
    """A middleware that turns others away and sets the headers; `names`: further host names."""
    known = tuple(names)

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not may_ask_for(request.host, known):
            return web.Response(
                status=421, text="this server does not go by that name; see --host\n"
            )
        if request.method not in ("GET", "HEAD") and not _from_ourselves(request):
            return web.Response(status=403, text="only the page itself may send a file\n")
        return await handler(request)

    return check


async def set_headers(request: web.Request, response: web.StreamResponse) -> None:
    """On every answer, also on refusals."""
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    # a page of one release must not run with a script of the one before
    response.headers.setdefault("Cache-Control", "no-cache")


def _from_ourselves(request: web.Request) -> bool:
    """A browser states the origin of every request that is not a plain look-up."""
    origin = request.headers.get("Origin", "")
    return origin.partition("://")[2] == request.host
