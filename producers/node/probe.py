"""One thing that is read, on a thread of its own, so that nothing else waits if it does not answer.

Why: a driver call on a dying GPU may block for a minute, and a register of a NIC for ever; what
reads them must see it and go on. How: each probe has a thread that reads when it is asked; who asks
waits until a deadline that all share, and a probe that is still reading then is stalled until it
comes back. A stalled probe is not asked again, so at most one call a probe hangs.
"""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from nemesis.schemas.errors import NemesisError
from nemesis.schemas.watched import ProbeState

DEADLINE_S: Final = 2.0
"""A healthy GPU or NIC answers all questions of a poll within 50 ms."""
_STEPS: Final = ((3600, "1 h"), (600, "10 min"), (60, "1 min"), (10, "10 s"), (1, "1 s"))


class NotReadError(NemesisError):
    """A probe has nothing to hand over."""

    def __init__(self, state: ProbeState, says: str) -> None:
        super().__init__(says)
        self.state: Final = state


class Answer(NamedTuple):
    """What a reading brought; it may say why something of it is missing."""

    value: Any
    state: ProbeState = "read"
    says: str = ""


class Probe:
    """Reads one thing whenever it is asked."""

    def __init__(
        self,
        component: str,
        source: str,
        read: Callable[[], Answer],
        *,
        patience_s: float = 0.0,
    ) -> None:
        """`read` may raise NotReadError; an OSError is `broken`.

        `patience_s`: it may take so long without being stalled, where its nature is slow.
        """
        self.component: Final = component
        self.source: Final = source
        self.state: ProbeState = "read"
        self.says = ""
        self.value: Any = None
        """What was read last; None where the last reading brought nothing."""
        self._read: Final = read
        self._patience_s: Final = patience_s
        self._ask: Final = threading.Semaphore(0)
        self._done: Final = threading.Event()
        self._done.set()
        self._asked_s = 0.0
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Read now, unless the last reading has not come back."""
        if not self._done.is_set():
            return
        if self._thread is None:
            name = f"{self.source} {self.component}"
            # a call that hangs in a driver must not keep the process from ending
            self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
            self._thread.start()
        self._done.clear()
        self._asked_s = time.monotonic()
        self._ask.release()

    @property
    def is_done(self) -> bool:
        """Whether the last reading came back."""
        return self._done.is_set()

    def end(self, until_s: float) -> None:
        """Wait for what was begun, at most until then by the monotonic clock."""
        if not self._done.wait(max(0.0, until_s - time.monotonic())):
            self.value, took_s = None, time.monotonic() - self._asked_s
            if took_s > self._patience_s:
                self.state, self.says = "stalled", f"no answer for more than {_rounded(took_s)}"

    def _serve(self) -> None:
        while True:
            self._ask.acquire()
            try:
                answer = self._read()
            except NotReadError as error:
                answer = Answer(None, error.state, error.message)
            except OSError as error:
                why = f"{error.filename or self.source}: {error.strerror or error}"
                answer = Answer(None, "broken", why)
            self.value, self.state, self.says = answer
            self._done.set()


def read_all(probes: Sequence[Probe], deadline_s: float = DEADLINE_S) -> None:
    """Let all read side by side; none holds the others up for longer than the deadline."""
    for probe in probes:
        probe.begin()
    until_s = time.monotonic() + deadline_s
    for probe in probes:
        probe.end(until_s)


def _rounded(seconds: float) -> str:
    """Down to a step, so that the words change seldom: how long it is is told by since when."""
    return next((words for least, words in _STEPS if seconds >= least), "a moment")
