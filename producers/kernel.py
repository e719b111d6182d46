"""Lines of a node's kernel log become `kernel` facts, and a flood of them stays small.

A dying device can print thousands of lines a second, and the log of the cluster must not drown in
one node's. Equal lines in a row become one fact with a count; more than LINES_PER_S_MAX facts a
second are held back, counted, and told with the next fact. What a line means is not asked here.
"""

from typing import Final

from nemesis.producers.origin import Origin
from nemesis.schemas.observed import KernelLineLogged

LINES_PER_S_MAX: Final = 50  # the flood limit that all producers of the log keep to
WINDOW_NS: Final = 1_000_000_000
TEXT_CHARS_MAX: Final = 4096  # the kernel's own records are 1 KiB (kernel/printk, CONSOLE_EXT_LOG)


class KernelLines:
    """The kernel log of one node on its way to the log."""

    def __init__(self, origin: Origin, *, untold_count: int = 0) -> None:
        """`untold_count`: lines of an earlier life that no fact of it told of."""
        self._origin = origin
        self._window_ns = -WINDOW_NS
        self._sent_count = 0
        self._last = ("", -1)
        self._repeats = 0
        self._held: tuple[str, int] | None = None
        self._held_count = untold_count

    @property
    def untold_count(self) -> int:
        """Lines taken that no fact has told of yet."""
        return self._held_count + self._repeats

    def take(self, text: str, at_ns: int, *, priority: int = 6) -> list[KernelLineLogged]:
        """The facts that this line gives rise to, the line itself among them or counted."""
        facts = self.flush(at_ns) if at_ns - self._window_ns >= WINDOW_NS else []
        line = (text[:TEXT_CHARS_MAX], priority)
        if line == self._last:
            self._repeats += 1
            return facts
        facts += self._tell_repeats(at_ns)
        self._last = line
        if self._sent_count < LINES_PER_S_MAX:
            facts.append(self._fact(line, at_ns))
        else:
            self._held = line
            self._held_count += 1
        return facts

    def flush(self, at_ns: int) -> list[KernelLineLogged]:
        """Open a new second: the facts for what was only counted in the one before.

        To be called about once a second, so that a flood's end is told without another line.
        """
        self._window_ns = at_ns
        self._sent_count = 0
        facts = self._tell_repeats(at_ns)
        self._last = ("", -1)
        if self._held is not None:
            line, self._held = self._held, None
            self._held_count -= 1  # this one is told after all
            facts.append(self._fact(line, at_ns))
        return facts

    def _tell_repeats(self, at_ns: int) -> list[KernelLineLogged]:
        if not self._repeats:
            return []
        count, self._repeats = self._repeats, 0
        if self._sent_count >= LINES_PER_S_MAX:
            self._held = self._last
            self._held_count += count
            return []
        return [self._fact(self._last, at_ns, repeat_count=count)]

    def _fact(
        self, line: tuple[str, int], at_ns: int, *, repeat_count: int = 1
    ) -> KernelLineLogged:
        withheld_count, self._held_count = self._held_count, 0
        self._sent_count += 1
        text, priority = line
        return KernelLineLogged(
            **self._origin.stamp("kernel", at_ns),
            text=text,
            priority=priority,
            repeat_count=repeat_count,
            withheld_count=withheld_count,
        )
