"""When the watchdogs of a job speak: the words of its ranks, line by line as time passes.

Words are worked out once a stall, when the first watchdog fires, and told as their times come, as
long as the job stands at the same step. A node's agent forwards a burst of lines and drops the
rest of an interval, as agents do that read what processes print. Processes live on: whoever is
taken down leaves the same as who is fenced, and a bundle wants the dumps of all.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from nemesis.sim.jobs.job import Job
from nemesis.sim.jobs.words import DUMP_WAIT_NS, STORE_POLL_NS, Line, last_words

LINES_PER_NODE_MAX: Final = 32
"""Of an interval: four lines a rank of a node of eight (assumed; systemd-journald's default,
RateLimitBurst=10000 in 30 s, would let through all that ranks print)."""
INTERVAL_NS: Final = 30_000_000_000  # journald.conf(5), RateLimitIntervalSec
SPEAKS_NS: Final = 2_000_000_000
"""After the first all others hear of it: once a second they look (words.STORE_POLL_NS)."""
_PREFIX: Final = re.compile(r"^\[rank\d+\]:\[[EWI]\d+ [^\]]*\] ")


class Said(NamedTuple):
    """One line that an agent forwards."""

    node: str
    rank: int
    text: str
    """Without the prefixes of launcher and logger."""
    at_ns: int


class Watchdogs:
    """Listens to the ranks of one job."""

    def __init__(self, job: Job) -> None:
        self.job: Final = job
        self._timeout_ms: Final = round(job.model.timeout_s * 1e3)
        self._stall = (-1, -1)
        self._looks_ns = 0
        self._coming: list[tuple[int, int, str]] = []
        self._sent: dict[str, tuple[int, int]] = {}
        """By node: when its interval began, and how many lines it has sent in it."""

    def said(self, now_ns: int) -> Iterator[Said]:
        """What agents forward since this was asked last."""
        job = self.job
        if not job.waits_longer(self._timeout_ms * 1_000_000, now_ns) or not job.is_stalled:
            self._coming.clear()
            return
        stall = (job.step, job.restarts_count)
        if stall != self._stall and now_ns >= self._looks_ns:
            self._looks_ns = now_ns + STORE_POLL_NS
            words = last_words(job, now_ns, timeout_ms=self._timeout_ms)
            if not words:
                return
            until_ns = now_ns + DUMP_WAIT_NS + SPEAKS_NS
            words = last_words(job, until_ns, timeout_ms=self._timeout_ms)
            self._stall, self._coming = stall, _in_time(words)
        while self._coming and self._coming[0][0] <= now_ns:
            at_ns, number, text = self._coming.pop(0)
            rank = job.ranks[number]
            if rank.stage in ("running", "held") and self._lets_through(rank.node, at_ns):
                yield Said(rank.node, number, _PREFIX.sub("", text), at_ns)

    def _lets_through(self, node: str, at_ns: int) -> bool:
        began_ns, count = self._sent.get(node, (at_ns, 0))
        if at_ns - began_ns >= INTERVAL_NS:
            began_ns, count = at_ns, 0
        self._sent[node] = (began_ns, count + 1)
        return count < LINES_PER_NODE_MAX


def _in_time(words: dict[int, list[Line]]) -> list[tuple[int, int, str]]:
    return sorted((line.at_ns, rank, line.text) for rank, lines in words.items() for line in lines)
