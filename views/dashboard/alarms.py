"""What a person must know before believing the page: pauses, breakers, trouble of the log."""

from typing import Any, Final, Literal

import msgspec

from nemesis.processors.fold import Input
from nemesis.schemas import kept
from nemesis.schemas.printable import one_line
from nemesis.views.hands import Hands

FILL_WARNS_PPM: Final = 800_000  # producers halve their rate there
TROUBLE_SHOWN_NS: Final = 3600 * 10**9  # an hour: long enough to be seen by the next shift
TROUBLE_MAX: Final = 20

_TROUBLE: Final = (
    kept.ProcessorDiverged,
    kept.LogShortened,
    kept.InputLost,
    kept.ConclusionUndeliverable,
    kept.FactSkipped,
)
Level = Literal["info", "warn", "alarm"]


class Alarm(msgspec.Struct, frozen=True):
    """One line above the page."""

    id: str
    level: Level
    title: str
    text: str
    hint: str = ""
    """A command to type."""


class Trouble:
    """What went wrong with the log itself, and with answers that nobody gave."""

    def __init__(self) -> None:
        self._shown: Final[dict[str, tuple[int, Alarm]]] = {}
        self._fill_ppm = 0

    def see(self, item: Input) -> bool:
        """Take note of an event; whether a line has changed."""
        data = item.decoded()
        if isinstance(data, kept.LogMeasured):
            before, self._fill_ppm = self._fill_ppm, data.fill_ppm
            return max(before, data.fill_ppm) >= FILL_WARNS_PPM
        if isinstance(data, _TROUBLE):
            self.add(item.token, data.at_ns, item.token.replace("_", " "), data.reason)
            return True
        return False

    def add(self, id: str, at_ns: int, title: str, text: str) -> None:
        """Something went wrong; it is shown for an hour of log time."""
        self._shown.pop(id, None)
        self._shown[id] = at_ns, Alarm(id, "alarm", title, one_line(text))
        while len(self._shown) > TROUBLE_MAX:
            del self._shown[next(iter(self._shown))]

    def forget(self, log_time_ns: int) -> bool:
        """Drop what was shown for long enough; whether there was anything."""
        old = [k for k, (at, _) in self._shown.items() if at + TROUBLE_SHOWN_NS < log_time_ns]
        for id in old:
            del self._shown[id]
        return bool(old)

    def lines(self) -> list[Alarm]:
        """What is shown now."""
        lines = [alarm for _, alarm in self._shown.values()]
        if self._fill_ppm >= FILL_WARNS_PPM:
            text = f"{self._fill_ppm / 10_000:.0f} % are used"
            lines.append(Alarm("fill", "alarm", "log nearly full", text, "nemesis status"))
        return lines


def document(hands: Hands, trouble: Trouble, where: str) -> list[dict[str, Any]]:
    """All lines, the gravest first; `where`: options that name the log in a command."""
    lines = [
        *trouble.lines(),
        *(
            Alarm(
                id=f"breaker {each.limit} {each.job}",
                level="alarm",
                title=f"breaker: {one_line(each.limit)}",
                text=one_line(f"reached by {each.job}; what would exceed it is withheld"),
                hint=one_line(f"nemesis breaker reset {each.limit}{where} --reason 'seen'"),
            )
            for each in hands.tripped.values()
        ),
        *(
            Alarm(f"withheld {job}", "alarm", "a person must look", one_line(each.reason))
            for job, each in hands.withheld.items()
            if each.limit != "paused"
        ),
        *(
            Alarm(
                id=f"pause {scope}",
                level="warn",
                title=one_line(f"paused: {scope}"),
                text=one_line(f"NEMESIS decides and does not act, says {said.by}: {said.reason}"),
            )
            for scope, said in hands.paused.items()
        ),
        *(
            Alarm(
                id=f"protect {node}",
                level="info",
                title=one_line(f"protected: {node}"),
                text=one_line(f"left alone, says {said.by}: {said.reason}"),
            )
            for node, said in hands.protected.items()
        ),
    ]
    order = ("alarm", "warn", "info")
    lines.sort(key=lambda alarm: order.index(alarm.level))
    return [msgspec.to_builtins(alarm) for alarm in lines]
