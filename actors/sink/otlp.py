"""Sends events to an OpenTelemetry collector as log records: OTLP over HTTP, JSON encoding.

Written by the protocol's specification (github.com/open-telemetry/opentelemetry-proto,
docs/specification.md, "OTLP/HTTP"; the encoding is stable since 1.0), because the SDK would bring
batching, threads and a clock of its own between the log and the collector. Names of attributes are
the semantic conventions' for CloudEvents. What is told of an endpoint and its headers comes from
the variables that every exporter of theirs reads. Metrics are the exporter's: a collector scrapes.
"""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from nemesis import __version__
from nemesis.actors.sink.delivery import Event, RefusedError
from nemesis.actors.sink.posting import Poster
from nemesis.actors.sink.severity import level_of
from nemesis.schemas.errors import NemesisError

PATH: Final = "/v1/logs"
_SEVERITIES: Final[Mapping[int, tuple[int, str]]] = {
    logging.INFO: (9, "INFO"),
    logging.WARNING: (13, "WARN"),
    logging.ERROR: (17, "ERROR"),
    logging.CRITICAL: (21, "FATAL"),
}
_RESOURCE: Final = {"service.name": "nemesis", "service.version": __version__}
_NAMED: Final = ("incident", "decision", "job", "fault_class", "action", "outcome")
"""Fields of facts that become attributes, where a fact has them."""


class _Partial(msgspec.Struct, frozen=True, rename="camel"):
    rejected_log_records: int = 0
    error_message: str = ""


class _Answer(msgspec.Struct, frozen=True, rename="camel"):
    partial_success: _Partial = _Partial()


class Otlp(Poster):
    """One collector; `async with`."""

    def __init__(
        self,
        endpoint: str,
        headers: Mapping[str, str],
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """`endpoint`: without /v1/logs."""
        super().__init__()
        self._url: Final = endpoint.rstrip("/") + PATH
        self._headers: Final = {**headers, "Content-Type": "application/json"}
        self._now_ns: Final = now_ns

    async def deliver(self, event: Event) -> None:
        """Send it.

        Raises: as `post`, and RefusedError where the collector took the request and not the record.
        """
        body = msgspec.json.encode(request_of(event, self._now_ns()))
        said = await self.post(self._url, body, self._headers)
        try:
            # 64-bit numbers are strings in the protocol's JSON
            answer = msgspec.json.decode(said or b"{}", type=_Answer, strict=False)
        except msgspec.DecodeError:
            return  # it took it, and answers in protobuf or not at all
        if answer.partial_success.rejected_log_records:
            raise RefusedError(f"rejected: {answer.partial_success.error_message}"[:200])


def headers_in(text: str) -> dict[str, str]:
    """What OTEL_EXPORTER_OTLP_HEADERS says: `name=value,...`, percent-encoded.

    Raises:
        NemesisError: not of that form.
    """
    pairs = [each.partition("=") for each in text.split(",") if each.strip()]
    if not all(name.strip() and equals for name, equals, _ in pairs):
        raise NemesisError(
            "OTEL_EXPORTER_OTLP_HEADERS is not of the form name=value,name=value",
            hint="encode commas and spaces of values as %2C and %20",
        )
    return {name.strip(): unquote(value.strip()) for name, _, value in pairs}


def request_of(event: Event, now_ns: int) -> dict[str, Any]:
    """An ExportLogsServiceRequest of one record."""
    told = msgspec.json.decode(event.body)
    data = told.get("data", {})
    number, word = _SEVERITIES[level_of(event.fact)]
    attributes = {
        "cloudevents.event_id": event.id,
        "cloudevents.event_source": told.get("source", ""),
        "cloudevents.event_type": told.get("type", ""),
        "cloudevents.event_subject": event.key,
        **{f"nemesis.{name}": data[name] for name in _NAMED if isinstance(data.get(name), str)},
    }
    record = {
        "timeUnixNano": str(data.get("at_ns", now_ns)),
        "observedTimeUnixNano": str(now_ns),
        "severityNumber": number,
        "severityText": word,
        "eventName": told.get("type", ""),
        "body": {"stringValue": str(data.get("reason") or data.get("text") or event.fact)},
        "attributes": _pairs(attributes),
    }
    scope = {"scope": {"name": "nemesis", "version": __version__}, "logRecords": [record]}
    return {"resourceLogs": [{"resource": {"attributes": _pairs(_RESOURCE)}, "scopeLogs": [scope]}]}


def _pairs(values: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"key": key, "value": {"stringValue": text}} for key, text in values.items()]
