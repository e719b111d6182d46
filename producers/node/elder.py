"""Whether a producer that began earlier tells of this node, too: then the later one has to end.

Why: the locks of a machine do not reach into another network namespace, nor to another machine that
was given the same name, and two producers would tell everything twice. How: both write their
`coverage` under one subject. Once nothing of an earlier life waits here any more, whatever comes
there of a life that began before ours comes from somebody who lives.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from nemesis.producers.origin import Origin
from nemesis.schemas.errors import MalformedFactError
from nemesis.schemas.facts import Record, decode_observation, telemetry_subject
from nemesis.streams.errors import LogUnavailableError, UndeliverableError
from nemesis.streams.log import Log

KIND: Final = "coverage"
LOOK_S: Final = 60.0
"""As often as it is told at least."""


class Elder:
    """Compares what is in the log with what was there a look before."""

    def __init__(self, origin: Origin) -> None:
        self._origin: Final = origin
        self._known_seq = 0

    def lives(self, last: Record) -> bool:
        """Whether the newest coverage of this node shows one; asked when nothing waits here."""
        known_seq, self._known_seq = self._known_seq, last.seq
        began_ns = decode_observation(KIND, last.payload).start_ns
        return 0 < known_seq < last.seq and began_ns < self._origin.start_ns


async def until_elder_lives(log: Log, origin: Origin, waiting_count: Callable[[], int]) -> None:
    """Return when an earlier producer of this node was heard; never where the server lets us not
    look."""
    elder, subject = Elder(origin), telemetry_subject(origin.node, KIND)
    while True:
        await asyncio.sleep(LOOK_S)
        if waiting_count():
            continue
        with suppress(LogUnavailableError, MalformedFactError):
            try:
                last = await log.last(subject)
            except UndeliverableError:  # its permissions are of before this was looked at
                await asyncio.Event().wait()
            else:
                if last is not None and elder.lives(last):
                    return
