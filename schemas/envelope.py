"""CloudEvents 1.0, structured JSON: the envelope of everything under `nemesis.events`.

Field order is fixed by the struct, so equal facts are equal bytes. `cause` is a CloudEvents
extension and must be a string there: sequences separated by blanks.
github.com/cloudevents/spec, cloudevents/spec.md.
"""

from datetime import UTC, datetime
from typing import Annotated, Final

import msgspec

TYPE_PREFIX: Final = "dev.nemesis."
EVENT_BYTES_MAX: Final = 64 * 1024
Cause = Annotated[str, msgspec.Meta(pattern=r"^([0-9]{1,19}( [0-9]{1,19})*)?$")]


class Event(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True):
    """One event as it lies in the log."""

    specversion: str
    id: str
    source: str
    type: str
    subject: str
    time: str
    datacontenttype: str
    cause: Cause = ""
    job: str = ""
    data: msgspec.Raw = msgspec.Raw()

    @property
    def causes(self) -> tuple[int, ...]:
        """The sequences that this was drawn from."""
        return tuple(int(seq) for seq in self.cause.split())


def rfc3339(at_ns: int) -> str:
    """Nanoseconds since 1970 as RFC 3339 in UTC, to the millisecond, for people."""
    second, rest_ns = divmod(at_ns, 1_000_000_000)
    moment = datetime.fromtimestamp(second, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{rest_ns // 1_000_000:03d}Z"


_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(Event)


def encode_event(event: Event) -> bytes:
    """The event's bytes in the log."""
    return _encoder.encode(event)


def decode_event(payload: bytes) -> Event:
    """The event in these bytes; msgspec.DecodeError or ValidationError where there is none."""
    return _decoder.decode(payload)
