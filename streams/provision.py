"""Streams and stores of a cell: made where missing, compared where present, never changed.

A log that lost its retention or its guard against deletion is no log; so a difference is told
field by field and a person decides.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from nemesis.streams.connection import Connection, without_password
from nemesis.streams.errors import LogFullError, NoStreamsError, ProvisionError
from nemesis.streams.permissions import BLOBS, INCIDENTS, STATE, STREAM, TRUTH

DAY_S: Final = 24 * 3600
LIMIT_BYTES: Final = 8 * 2**30
STORE_LIMIT_BYTES: Final = 2**30
_NS: Final = 1_000_000_000
# the server accepts no less (server/stream.go); we are exactly once by position, not by id
_DUPLICATE_WINDOW_NS: Final = 100_000_000
_NOT_FOUND: Final = 10059
_NO_STORAGE: Final = frozenset({10023, 10028, 10047, 10049})


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much a cell keeps and how often."""

    log_bytes: int = LIMIT_BYTES
    store_bytes: int = STORE_LIMIT_BYTES
    """Of each of the four other streams."""
    replicas: int = 1


class Drift(msgspec.Struct, frozen=True):
    """One field of one stream that is not as wanted."""

    stream: str
    field: str
    wanted: Any
    found: Any

    def __str__(self) -> str:
        return f"{self.stream}.{self.field}: wanted {self.wanted!r}, found {self.found!r}"


class Provisioned(msgspec.Struct, frozen=True):
    """What was made and what differs."""

    created: tuple[str, ...]
    drift: tuple[Drift, ...]
    missing: tuple[str, ...] = ()
    """Not there, and not made because nobody asked."""


def wanted_streams(limits: Limits) -> list[dict[str, Any]]:
    """The configuration of every stream of a cell, as the JetStream API spells it."""
    common = {
        "storage": "file",
        "retention": "limits",
        "discard": "new",
        "num_replicas": limits.replicas,
        "max_msgs": -1,
        "max_msgs_per_subject": -1,
        "max_msg_size": -1,
        "duplicate_window": _DUPLICATE_WINDOW_NS,
        "allow_direct": True,
        "allow_atomic": True,
        "deny_delete": True,
        "deny_purge": True,
    }
    log = {
        "name": STREAM,
        "subjects": ["nemesis.telemetry.>", "nemesis.events.>", "nemesis.cursor.>"],
        # never by age: at a restart the server drops what is older than max_age even if it is to
        # be kept for ever, and a longer TTL counts no more than max_age (2.15.1, decision 0002)
        "max_age": 0,
        "max_bytes": limits.log_bytes,
        "allow_msg_ttl": True,
        # `nemesis.events.>` is refused with a destination of another number of tokens
        "republish": {"src": "nemesis.events.*.*", "dest": "nemesis.events"},
    }
    truth = {
        "name": TRUTH,
        "subjects": ["nemesis.truth.>"],
        "max_age": 0,
        "max_bytes": limits.store_bytes,
        "allow_msg_ttl": False,
    }
    stores = [
        {
            "name": f"OBJ_{bucket}",
            "subjects": [f"$O.{bucket}.C.>", f"$O.{bucket}.M.>"],
            "max_age": age_s * _NS,
            "max_bytes": limits.store_bytes,
            "allow_msg_ttl": False,
        }
        for bucket, age_s in ((BLOBS, 30 * DAY_S), (STATE, 7 * DAY_S), (INCIDENTS, 0))
    ]
    return [common | own for own in (log, truth, *stores)]


async def provision(
    connection: Connection, limits: Limits | None = None, *, create: bool = True
) -> Provisioned:
    """Create what is missing, unless told not to; compare what is there.

    Raises:
        ProvisionError: the server refuses a stream.
        LogFullError: there is no room for the byte limits.
        LogUnavailableError, UndeliverableError: no answer, or not permitted.
    """
    created: list[str] = []
    drift: list[Drift] = []
    missing: list[str] = []
    for wanted in wanted_streams(limits or Limits()):
        name = wanted["name"]
        info = await _api(connection, f"STREAM.INFO.{name}")
        error = info.get("error")
        if error is None:
            drift += _drift(name, wanted, info["config"])
        elif error.get("err_code") == _NOT_FOUND and not create:
            missing.append(name)
        elif error.get("err_code") == _NOT_FOUND:
            made = await _api(connection, f"STREAM.CREATE.{name}", wanted)
            _check(name, made.get("error"))
            created.append(name)
            drift += _drift(name, wanted, made["config"])
        else:
            _check(name, error)
    return Provisioned(tuple(created), tuple(drift), tuple(missing))


async def require_streams(connection: Connection, url: str) -> None:
    """See that there is a log to read or write, for people who named a server.

    Raises:
        NoStreamsError: the server at this URL has none.
        LogUnavailableError: no answer.
    """
    info = await _api(connection, f"STREAM.INFO.{STREAM}")
    if info.get("error", {}).get("err_code") == _NOT_FOUND:
        raise NoStreamsError(
            f"no NEMESIS streams at {without_password(url)}",
            hint="make them with `nemesis provision`",
        )


def _drift(name: str, wanted: Mapping[str, Any], found: Mapping[str, Any]) -> list[Drift]:
    # the server leaves out what is zero or false
    return [
        Drift(name, field, value, found.get(field))
        for field, value in wanted.items()
        if (found.get(field) or None) != (value or None)
    ]


def _check(name: str, error: Mapping[str, Any] | None) -> None:
    if error is None:
        return
    what = f"stream {name}: {error.get('description')} ({error.get('err_code')})"
    if error.get("err_code") in _NO_STORAGE:
        raise LogFullError(what, hint="lower the byte limits or free the disk")
    raise ProvisionError(what)


async def _api(connection: Connection, call: str, body: Any = None) -> dict[str, Any]:
    payload = b"" if body is None else msgspec.json.encode(body)
    answer = await connection.request(f"$JS.API.{call}", payload)
    decoded: dict[str, Any] = msgspec.json.decode(answer.data)
    return decoded
