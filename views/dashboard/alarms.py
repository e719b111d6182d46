"""What a person must know before believing the page: mode, pauses, breakers, trouble of the log."""

from typing import Any, Final, Literal, TypeVar

import msgspec

from nemesis.processors.fold import Input
from nemesis.schemas import kept
from nemesis.schemas.decided import RecoveryWithheld
from nemesis.schemas.errors import MalformedFactError
from nemesis.schemas.operated import BreakerReset, NodeProtected, PauseSet, PolicyApplied
from nemesis.schemas.policy import Policy, decode_policy
from nemesis.schemas.printable import one_line

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

T = TypeVar("T")
Level = Literal["info", "warn", "alarm"]


class Alarm(msgspec.Struct, frozen=True):
    """One line above the page."""

    id: str
    level: Level
    title: str
    text: str
    hint: str = ""


class Alarms:
    """The lines that hold now."""

    def __init__(self) -> None:
        self.policy: Policy | None = None
        self.protected: Final[dict[str, NodeProtected]] = {}
        self._pauses: Final[dict[str, PauseSet]] = {}
        self._breakers: Final[dict[str, RecoveryWithheld]] = {}
        self._trouble: Final[dict[str, tuple[int, Alarm]]] = {}
        self._fill_ppm = 0

    @property
    def mode(self) -> str:
        """shadow, approve or act: the most that any action may do."""
        if self.policy is None:
            return "shadow"
        modes = {self.policy.mode, *self.policy.mode_by_action.values()}
        return next(mode for mode in ("act", "approve", "shadow") if mode in modes)

    def see(self, item: Input) -> bool:
        """Take note of an event; whether a line has changed."""
        match data := item.decoded():
            case PolicyApplied():
                try:
                    self.policy = decode_policy(bytes(data.policy))
                except MalformedFactError:
                    return False  # the healer refuses it too, and says so
            case PauseSet():
                _put(self._pauses, data.scope, data, there=data.paused)
            case NodeProtected():
                _put(self.protected, data.node, data, there=data.protected)
            case RecoveryWithheld(limit="unanswered"):
                self.trouble(f"expired {data.decision}", data.at_ns, "Expired", data.reason)
            case RecoveryWithheld() if data.limit.endswith("_max"):
                self._breakers[data.limit] = data
            case BreakerReset():
                self._breakers.pop(data.limit, None)
            case kept.LogMeasured():
                before, self._fill_ppm = self._fill_ppm, data.fill_ppm
                return max(before, data.fill_ppm) >= FILL_WARNS_PPM
            case _ if isinstance(data, _TROUBLE):
                self.trouble(item.token, data.at_ns, item.token.replace("_", " "), data.reason)
            case _:
                return False
        return True

    def trouble(self, id: str, at_ns: int, title: str, text: str) -> None:
        """Something went wrong; it is shown for an hour of log time."""
        self._trouble.pop(id, None)
        self._trouble[id] = at_ns, Alarm(id, "alarm", title, one_line(text))
        while len(self._trouble) > TROUBLE_MAX:
            del self._trouble[next(iter(self._trouble))]

    def forget(self, log_time_ns: int) -> bool:
        """Drop what was shown for long enough; whether there was anything."""
        old = [k for k, (at, _) in self._trouble.items() if at + TROUBLE_SHOWN_NS < log_time_ns]
        for id in old:
            del self._trouble[id]
        return bool(old)

    def document(self) -> list[dict[str, Any]]:
        """Lines, the gravest first."""
        lines = [alarm for _, alarm in self._trouble.values()]
        if self._fill_ppm >= FILL_WARNS_PPM:
            lines.append(
                Alarm(
                    "fill", "alarm", "log nearly full", f"{self._fill_ppm / 10_000:.0f} % are used",
                    "nemesis status",
                )
            )  # fmt: skip
        lines += [self._breaker(limit, data) for limit, data in self._breakers.items()]
        lines += [
            Alarm(
                f"pause {scope}", "warn", f"paused: {one_line(scope)}",
                one_line(f"NEMESIS decides and does not act, says {data.by}: {data.reason}"),
            )
            for scope, data in self._pauses.items()
        ]  # fmt: skip
        lines += [
            Alarm(
                f"protect {node}", "info", f"protected: {one_line(node)}",
                one_line(f"left alone, says {data.by}: {data.reason}"),
            )
            for node, data in self.protected.items()
        ]  # fmt: skip
        order = ("alarm", "warn", "info")
        lines.sort(key=lambda alarm: order.index(alarm.level))
        return [msgspec.to_builtins(alarm) for alarm in lines]

    @staticmethod
    def _breaker(limit: str, data: RecoveryWithheld) -> Alarm:
        return Alarm(
            id=f"breaker {limit}",
            level="alarm",
            title=f"breaker: {one_line(limit)}",
            text=one_line(f"{data.action} of {data.target} was withheld: {data.reason}"),
            hint=f"nemesis breaker reset {one_line(limit)}",
        )


def _put(table: dict[str, T], key: str, value: T, *, there: bool) -> None:
    table.pop(key, None)
    if there:
        table[key] = value
