"""What a kernel tells again and again, and what only then means anything.

Why: some drivers tell of a link only that it is up, so one that flaps all day looks well; and one
bit that memory set right is nothing, ten of one module in a day are a module that fails. How: a
link that comes up and was up has been down in between, as long as it follows within minutes, for a
host that starts anew says the same once a boot. Corrected errors are added up by module and day.
Not here: what it proves (host_findings.py).

Ten errors in a day: the default of mcelog (`dimm-ce-threshold`, mcelog.conf).
"""

from typing import Final

import msgspec
from msgspec.structs import replace

from nemesis.processors.attribution.incidents import step_of
from nemesis.processors.attribution.kernel_messages import KernelMessage

SECOND_NS: Final = 1_000_000_000
TRAINED_NS: Final = SECOND_NS  # a link needs longer to come back; lines without a clock do not
WITHIN_NS: Final = 300 * SECOND_NS  # a server's firmware takes longer than that to start it anew
DAY_NS: Final = 86_400 * SECOND_NS
CORRECTED_MIN: Final = 10
KEYS_MAX: Final = 65_536


class Repeats(msgspec.Struct):
    """Counts by node and label."""

    links: dict[str, tuple[int, int]] = {}
    """(when it was last told to be up, how often it was so already)."""
    modules: dict[str, tuple[int, int]] = {}
    """(since when errors were corrected, how many)."""

    def counted(self, node: str, message: KernelMessage, at_ns: int) -> KernelMessage | None:
        """The message, or what its repetition says; None where that is nothing yet."""
        key = f"{node} {message.label}"
        match message.kind:
            case "link_down":
                self.links.pop(key, None)
            case "link_up" if message.device:
                return self._of_link(key, message, at_ns)
            case "dimm_corrected":
                return self._of_module(key, message, at_ns)
            case _:
                pass
        return message

    def _of_link(self, key: str, message: KernelMessage, at_ns: int) -> KernelMessage:
        last_ns, again = self.links.get(key, (at_ns, -1))
        again = again + 1 if TRAINED_NS <= at_ns - last_ns <= WITHIN_NS else 0
        if key in self.links or len(self.links) < KEYS_MAX:
            self.links[key] = (at_ns, again)
        count = step_of(again)
        return replace(message, kind="link_down", code=count) if count else message

    def _of_module(self, key: str, message: KernelMessage, at_ns: int) -> KernelMessage | None:
        since_ns, corrected = self.modules.get(key, (at_ns, 0))
        if at_ns - since_ns > DAY_NS:
            since_ns, corrected = at_ns, 0
        corrected += message.code
        if key in self.modules or len(self.modules) < KEYS_MAX:
            self.modules[key] = (since_ns, corrected)
        return replace(message, code=step_of(corrected)) if corrected >= CORRECTED_MIN else None
