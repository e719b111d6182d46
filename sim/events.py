"""Events of the log as anybody may read them, for the score and for who watches."""

from nemesis.schemas.errors import MalformedFactError, UnknownFactError
from nemesis.schemas.facts import Fact, Record, decode_conclusion, split_subject


def fact_of(record: Record, at_ns: int) -> Fact | None:
    """The event in a record, seen at `at_ns`; None where it is of a release that is not ours."""
    _, token, key = split_subject(record.subject)
    try:
        event, data = decode_conclusion(token, record.payload)
    except (MalformedFactError, UnknownFactError):
        return None
    return Fact(
        seq=record.seq,
        kind=token,
        key=key,
        id=event.id,
        at_ns=at_ns,
        log_time_ns=data.at_ns,
        late=False,
        data=data,
        job=event.job,
        cause=event.causes,
    )
