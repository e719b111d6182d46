"""An event loop whose clock jumps: hours of waiting take no time, and every run is the same."""

import asyncio
import selectors
import signal
from collections.abc import Coroutine, Mapping
from types import FrameType
from typing import Any, Final

CPU_S_MAX: Final = 5.0  # the busiest exact test of today takes a quarter of a second
LASTS_S_MAX: Final = 3_600  # the longest story of today takes ten minutes
TURNS_MAX: Final = 10_000  # of the loop at one instant; the busiest story of today takes 500


class _NoSelector(selectors.BaseSelector):
    """Never waits; tells the loop how long it would have waited."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._turns_count = 0
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = selectors.SelectorKey(fileobj, 0, events, data)
        self._keys[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("everything waits and nothing will ever happen")
        before_s = self.now_s
        self.now_s += max(0.0, timeout)
        self._turns_count = 0 if self.now_s > before_s else self._turns_count + 1
        if self.now_s > LASTS_S_MAX or self._turns_count > TURNS_MAX:
            raise RuntimeError(f"this does not end: it is at second {self.now_s:g}")
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys

    def close(self) -> None:
        self._keys.clear()


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Time passes only where everything waits."""

    def __init__(self) -> None:
        self._clock = _NoSelector()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now_s


def run(main: Coroutine[Any, Any, None], *, cpu_s_max: float = CPU_S_MAX) -> None:
    """Run to the end under a clock of its own; raises in what does not end."""
    before = signal.signal(signal.SIGVTALRM, _never_ends)
    signal.setitimer(signal.ITIMER_VIRTUAL, cpu_s_max, 1.0)
    try:
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            runner.run(main)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _never_ends(number: int, frame: FrameType | None) -> None:
    raise RuntimeError("this does not end: it turns in a circle and waits for nothing")
