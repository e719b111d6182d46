"""Asks the model over the Messages API and brings a whole answer back, or says why there is none.

The client library speaks the protocol; how often it is tried, how long is waited and what it may
cost is decided here, for its own retries know no budget. Sent again is what may go well the next
time: overload, a broken server, a cut connection, too many requests where the answer says when to
come back. Too many requests without that is a limit on spending: nothing changes by asking again.
"""

import asyncio
import ssl
from collections.abc import Sequence
from functools import lru_cache
from types import TracebackType
from typing import Any, Final, Self

import anthropic
import httpx2
import msgspec

from nemesis.actors.advisor.answer import Answer, CutError, Gathering
from nemesis.actors.advisor.budget import BYTES_A_TOKEN, Meter
from nemesis.actors.advisor.key import Key
from nemesis.actors.advisor.settings import Retries, Settings
from nemesis.schemas.errors import NemesisError
from nemesis.schemas.printable import one_line

WORDS_MAX: Final = 200
"""Of what a server says is wrong."""


class UnavailableError(NemesisError):
    """The model could not be asked; the message says why, without the key."""


@lru_cache(maxsize=1)
def _trusted() -> ssl.SSLContext:
    """Whom to trust, read once: it takes a twentieth of a second."""
    return httpx2.create_ssl_context()


class _AgainError(NemesisError):
    """It may go well the next time; `wait_s`: not before, where the server said so."""

    def __init__(self, message: str, wait_s: float = 0.0) -> None:
        super().__init__(message)
        self.wait_s: Final = wait_s


class Model:
    """One model behind one key."""

    def __init__(self, settings: Settings, key: Key, *, system: str, tools: list[Any]) -> None:
        self._settings: Final = settings
        self._key: Final = key
        retries = settings.retries
        # everything is said here: what the environment says of other programs is not for us
        self._client: Final = anthropic.AsyncAnthropic(
            api_key=key.reveal(),
            base_url=settings.base_url,
            max_retries=0,
            timeout=anthropic.Timeout(retries.silence_seconds, connect=retries.connect_seconds),
            http_client=anthropic.DefaultAsyncHttpxClient(verify=_trusted()),
        )
        self._fixed: Final[dict[str, Any]] = {
            "model": settings.model,
            "system": system,
            "tools": tools,
            "cache_control": {"type": "ephemeral"},
        }
        if settings.effort:
            self._fixed["output_config"] = {"effort": settings.effort}
        self._fixed_bytes: Final = len(msgspec.json.encode(self._fixed))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._client.close()

    async def ask(self, messages: Sequence[dict[str, Any]], meter: Meter) -> Answer:
        """The answer to a conversation.

        Raises:
            SpentError: it does not fit into the budget.
            TooLongError: it had to be cut.
            UnavailableError: there is none.
        """
        retries = self._settings.retries
        request_bytes = self._fixed_bytes + len(msgspec.json.encode(messages))
        for attempt in range(1, retries.tries_max + 1):
            tokens = meter.allow(request_bytes)
            try:
                return await self._once(messages, tokens, meter)
            except _AgainError as error:
                wait_s = max(error.wait_s, _backoff_s(retries, attempt))
                if attempt == retries.tries_max or wait_s > retries.wait_seconds_max:
                    raise UnavailableError(self._told(error.message)) from None
                await asyncio.sleep(wait_s)
        raise AssertionError("tries_max is at least 1")

    async def _once(self, messages: Sequence[dict[str, Any]], tokens: int, meter: Meter) -> Answer:
        gathering = Gathering(self._settings.budget.answer_chars_max)
        whole = False
        try:
            request: Any = {**self._fixed, "max_tokens": tokens, "messages": messages}
            async with await self._client.messages.create(**request, stream=True) as stream:
                async for event in stream:
                    gathering.take(event)
            answer = gathering.answer()
            whole = True
            return answer
        except anthropic.APIStatusError as error:
            raise self._refused(error) from None
        except (anthropic.APIConnectionError, httpx2.HTTPError) as error:
            raise _AgainError(f"no connection: {type(error).__name__}") from None
        except CutError as error:
            raise _AgainError(error.message) from None
        except ValueError as error:  # an event that is no JSON
            raise _AgainError(f"not the Messages API: {type(error).__name__}") from None
        finally:
            _charge(meter, gathering, whole=whole)

    def _refused(self, error: anthropic.APIStatusError) -> NemesisError:
        """What a status, or an error in the middle of a stream, means."""
        status = error.status_code
        kind, words = _error_in(error.body)
        told = self._told(f"{kind or f'status {status}'}: {words}")
        wait_s = _retry_after_s(error.response.headers.get("retry-after", ""))
        limited = kind == "rate_limit_error" or status == 429
        broken = kind in ("overloaded_error", "api_error") or status == 408 or status >= 500
        if (limited and wait_s is not None) or (broken and not limited):
            return _AgainError(told, wait_s or 0.0)
        return UnavailableError(told)

    def _told(self, words: str) -> str:
        return one_line(self._key.hide(words))[:WORDS_MAX]


def _charge(meter: Meter, gathering: Gathering, *, whole: bool) -> None:
    """A cut answer is counted by what arrived of it, where the count at its end is missing."""
    usage = gathering.usage
    seen = 0 if whole else -(-gathering.chars // BYTES_A_TOKEN)
    meter.charge(
        tokens_in=usage.tokens_in,
        tokens_out=max(usage.tokens_out, seen),
        cache_write=usage.cache_write,
        cache_read=usage.cache_read,
    )


def _backoff_s(retries: Retries, attempt: int) -> float:
    longest: float = retries.wait_seconds_max
    return min(longest, retries.first_wait_seconds * 2.0 ** (attempt - 1))


def _retry_after_s(said: str) -> float | None:
    """Seconds, None where it says none; a date is none to us."""
    try:
        seconds = float(said)
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None


def _error_in(body: object) -> tuple[str, str]:
    """(type, message) of an error's body."""
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict):
        return "", str(body)
    return str(error.get("type", "")), str(error.get("message", ""))
