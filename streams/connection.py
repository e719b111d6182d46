"""One connection to the server that comes back for ever.

Why: nats-py gives up after 60 attempts, leaves requests hanging when the server dies, and tells a
refused publish only to an error callback. Here a request ends at once with what happened: an
answer, a refusal, or the loss of the connection (then its outcome is unknown).
Tried on nats-py 2.16.
"""

import asyncio
import re
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Final, Self

from nats import errors as nats_errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.nuid import NUID
from nkeys import NkeysError

from nemesis.streams.credentials import seed_path, warn_if_open
from nemesis.streams.errors import (
    LogUnavailableError,
    UndeliverableError,
    WrongCredentialsError,
)
from nemesis.streams.permissions import inbox_of, user_of

REQUEST_TIMEOUT_S: Final = 5.0
CONNECT_TIMEOUT_S: Final = 10.0
RECONNECT_WAIT_S: Final = 0.1  # between 0.05 and 0.5 s: a restarted server is back within a second
PING_INTERVAL_S: Final = 5  # a silent peer (power cut, cable) is noticed after two of them
SIGN_IN_REFUSALS_MAX: Final = 5  # in a row; a server that reads its configuration refuses once
ERRORS_KEPT: Final = 100
_REFUSED: Final = re.compile(r"permissions violation for publish to \"([^\"]+)\"")

_USERINFO: Final = re.compile(r"(?<=//)[^/]*@|^[^/]*@")


class Login:
    """How to sign in: a seed file, a credentials file, user and password, or nothing."""

    __slots__ = ("creds_path", "password", "seed_path", "user", "username")

    def __init__(
        self,
        user: str,
        *,
        seed_path: Path | None = None,
        creds_path: Path | None = None,
        username: str = "",
        password: str = "",
    ) -> None:
        self.user: Final = user
        """Our own name for it: makes the private inbox."""
        self.seed_path: Final = seed_path
        self.creds_path: Final = creds_path
        self.username: Final = username
        self.password: Final = password


def login_of(folder: Path, role: str) -> Login:
    """How a role signs in whose seed lies in a folder of seeds.

    Raises:
        BadNameError: no such role.
    """
    return Login(user_of(role), seed_path=seed_path(folder, role))


def without_password(url: str) -> str:
    """A server's URL as it may be shown and recorded."""
    return _USERINFO.sub("", url)


class Connection:
    """A connection of one user; use `open` to make one."""

    def __init__(self, client: Client, login: Login) -> None:
        self.client: Final = client
        self.user: Final = login.user
        self.errors: Final[deque[str]] = deque(maxlen=ERRORS_KEPT)
        """The last errors that the client met, oldest first."""
        self.lost_count = 0
        """How often the connection broke."""
        self.refused_count = 0
        """Publishes and subscriptions that the server did not permit."""
        self.wakes: Final[set[asyncio.Event]] = set()
        """Set whenever the connection is back, for readers that must start over."""
        self.inbox_prefix: Final = inbox_of(login.user)
        self._replies = ""
        self._ids: Final = NUID()
        self._numbers: Final = count(1)
        self._waiting: Final[dict[str, asyncio.Future[Msg]]] = {}
        self._by_subject: Final[dict[str, set[asyncio.Future[Msg]]]] = {}
        self._sign_in_refused: Final[asyncio.Future[None]] = asyncio.Future()
        self._refusals_count = 0
        self._closing: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls, url: str, login: Login, *, name: str, timeout_s: float = CONNECT_TIMEOUT_S
    ) -> Self:
        """Connect and stay connected; `url`: of one server, or of several with commas between.

        Raises:
            WrongCredentialsError: the server refuses the sign-in, or the seed cannot be read.
            LogUnavailableError: no server answers within timeout_s.
        """
        if (secret := login.seed_path or login.creds_path) is not None:
            warn_if_open(secret)
        client = Client()
        self = cls(client, login)
        connecting = asyncio.ensure_future(self._connect(url, login, name))
        try:
            done, _ = await asyncio.wait(
                {connecting, self._sign_in_refused},
                timeout=timeout_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if connecting in done:
                await connecting
                return self
        except (OSError, ValueError, NkeysError) as error:
            place = str(login.seed_path or login.creds_path or login.user)
            why = (error.strerror if isinstance(error, OSError) else None) or str(error)
            what = why if place in why else f"{place}: {why}"
            raise WrongCredentialsError(
                f"credentials of {login.user}: {what}",
                hint="name the folder of this cell's seeds with --credentials",
            ) from error
        except nats_errors.Error as error:
            self.errors.append(str(error))
        await _end(connecting)
        await self.close()
        if self._sign_in_refused.done():
            raise WrongCredentialsError(
                f"{without_password(url)} does not accept {login.user}",
                hint="take the credentials of this cell, or reload the server after adding a node",
            )
        last = self.errors[-1] if self.errors else "no answer"
        raise LogUnavailableError(
            f"no NATS server at {without_password(url)} within {timeout_s:g} s: {last}",
            hint="see that it runs and the URL is right; `nemesis serve` starts a cell here",
        )

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
        also: Collection[str] = (),
    ) -> Msg:
        """Send and wait for the answer.

        `also`: subjects published just before, whose refusal is the refusal of this request.

        Raises:
            LogUnavailableError: no answer in time, nobody there, or the connection broke.
            UndeliverableError: not permitted, or larger than the server takes.
        """
        number = str(next(self._numbers))
        future: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()
        subjects = {subject.lower(), *(each.lower() for each in also)}
        self._waiting[number] = future
        for each in subjects:
            self._by_subject.setdefault(each, set()).add(future)
        try:
            reply = f"{self._replies}.{number}"
            await self.publish(subject, payload, headers=headers, reply=reply)
            async with asyncio.timeout(timeout_s):
                answer = await future
        except TimeoutError:
            raise LogUnavailableError(f"no answer on {subject} within {timeout_s:g} s") from None
        finally:
            del self._waiting[number]
            for each in subjects:
                if futures := self._by_subject.get(each):
                    futures.discard(future)
                    if not futures:
                        del self._by_subject[each]
        if (answer.headers or {}).get("Status") == "503":
            raise LogUnavailableError(f"nobody answers on {subject}")
        return answer

    async def publish(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        headers: Mapping[str, str] | None = None,
        reply: str = "",
    ) -> None:
        """Send without waiting; what comes of it, if anything, is told to `reply`.

        Raises:
            LogUnavailableError: not connected.
            UndeliverableError: larger than the server takes, or not a subject.
        """
        if not self.client.is_connected:
            # nats-py would keep up to 2 MiB and send it whenever: stale batches
            raise LogUnavailableError("not connected to the log")
        try:
            await self.client.publish(
                subject, payload, reply=reply, headers=dict(headers) if headers else None
            )
        except nats_errors.MaxPayloadError as error:
            raise UndeliverableError(
                f"{subject}: {len(payload)} bytes, the server takes {self.client.max_payload}"
            ) from error
        except nats_errors.BadSubjectError as error:
            raise UndeliverableError(f"not a subject: {subject[:120]!r}") from error
        except nats_errors.Error as error:
            raise LogUnavailableError(f"{subject}: {error}") from error

    async def subscribe(
        self, subject: str, callback: Callable[[Msg], Awaitable[None]]
    ) -> Subscription:
        """Hand every message that somebody published on a subject to `callback`, in order.

        What JetStream delivers is dropped: whoever may create a consumer may let the server
        deliver any record of the log to any subject, past the permissions for publishing, and a
        record must not pass for a plan or a report (tried on nats-server 2.15.1). Such messages
        are told by their reply subject, which the server sets, or by being a status.

        Raises:
            LogUnavailableError: not connected.
        """

        async def published(msg: Msg) -> None:
            if not msg.reply.startswith("$JS.") and "Status" not in (msg.headers or {}):
                await callback(msg)

        return await self.receive(subject, published)

    async def receive(self, inbox: str, callback: Callable[[Msg], Awaitable[None]]) -> Subscription:
        """Hand everything that arrives in an inbox to `callback`, in order, however many wait.

        Raises:
            LogUnavailableError: not connected.
        """
        try:
            return await self.client.subscribe(
                inbox, cb=callback, pending_msgs_limit=0, pending_bytes_limit=0
            )
        except nats_errors.Error as error:
            raise LogUnavailableError(f"{inbox}: {error}") from error

    async def unsubscribe(self, subscription: Subscription) -> None:
        """Take no more messages; nothing is left to do where the connection is closed."""
        with suppress(nats_errors.Error):
            await subscription.unsubscribe()

    def new_id(self) -> str:
        """A name that nobody else has and nobody can guess."""
        return self._ids.next().decode()

    async def flush(self) -> None:
        """Wait until the server has seen everything sent so far.

        Raises:
            LogUnavailableError: it did not answer.
        """
        if not self.client.is_connected:
            raise LogUnavailableError("not connected to the log")
        try:
            # nats-py's flush sends its ping ahead of what still waits to be sent
            await self.client._flush_pending(force_flush=True)
            await self.client.flush(timeout=5)
        except (nats_errors.Error, TimeoutError) as error:
            raise LogUnavailableError(f"the server does not answer: {error}") from error

    async def close(self) -> None:
        """Leave for good; what waits fails."""
        self._fail_waiting("the connection was closed")
        while True:
            await self.client.close()
            if (reconnecting := self.client._reconnection_task) is not None:
                # nats-py, closed while it reconnects, would sign in once more and stay
                await _end(reconnecting)
            if self.client.is_closed:
                return

    async def _connect(self, url: str, login: Login, name: str) -> None:
        await self.client.connect(
            url.split(","),
            name=name,
            nkeys_seed=str(login.seed_path) if login.seed_path else None,
            user_credentials=str(login.creds_path) if login.creds_path else None,
            user=login.username or None,
            password=login.password or None,
            inbox_prefix=self.inbox_prefix,
            error_cb=self._on_error,
            disconnected_cb=self._on_disconnected,
            reconnected_cb=self._on_reconnected,
            max_reconnect_attempts=-1,
            reconnect_time_wait=RECONNECT_WAIT_S,  # type: ignore[arg-type]  # any number
            ping_interval=PING_INTERVAL_S,
        )
        self._replies = self.client.new_inbox()
        await self.receive(f"{self._replies}.*", self._on_reply)

    async def _on_reply(self, msg: Msg) -> None:
        future = self._waiting.get(msg.subject.rpartition(".")[2])
        if future is not None and not future.done():
            future.set_result(msg)

    async def _on_error(self, error: Exception) -> None:
        text = str(error) or type(error).__name__
        self.errors.append(text)
        if isinstance(error, nats_errors.AuthorizationError) or "authorization" in text.lower():
            self._on_sign_in_refused()
        elif "permissions violation" in text:
            self.refused_count += 1
            if match := _REFUSED.search(text):
                for future in self._by_subject.get(match[1], ()):
                    if not future.done():
                        future.set_exception(
                            UndeliverableError(f"{self.user} may not publish to {match[1]}")
                        )

    def _on_sign_in_refused(self) -> None:
        """Once is enough for a first sign-in; later our seed may have been replaced for good."""
        if self.client._transport is not None and not self.client.is_connected:
            # nats-py forgets it, at each try one more
            self.client._transport.close()  # type: ignore[no-untyped-call]
        self._refusals_count += 1
        if not self._sign_in_refused.done():
            self._sign_in_refused.set_result(None)
        if self._replies and self._refusals_count == SIGN_IN_REFUSALS_MAX:
            self._closing = asyncio.create_task(self.close())

    async def _on_disconnected(self) -> None:
        self.lost_count += 1
        # nats-py would send it to whatever server comes back, before anybody has looked at its log
        self.client._pending.clear()
        self.client._pending_data_size = 0
        self._fail_waiting("the connection broke before the answer came")

    async def _on_reconnected(self) -> None:
        self._refusals_count = 0
        for wake in self.wakes:
            wake.set()

    def _fail_waiting(self, why: str) -> None:
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(LogUnavailableError(why))


async def _end(task: "asyncio.Task[None]") -> None:
    """Cancel a task of nats-py until it has ended, whatever comes of it.

    Once may not be enough: asyncio.wait_for of Python 3.11 loses a cancellation that comes when
    what it waited for is done (github.com/python/cpython/issues/86296).
    """
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=RECONNECT_WAIT_S)
    if not task.cancelled():
        task.exception()  # seen, so that asyncio does not complain
