"""What hosts count of their own memory: errors beyond correction, and processes killed for want.

Why: a kernel log that says it may not be read, and the counters of the same host are. How: a count
that rose is kept for the incident of that node; an uncorrectable error opens one of its own.
What it proves stands in host_sign_findings.py.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from nemesis.processors.attribution.findings import Proof
from nemesis.processors.attribution.incidents import Support
from nemesis.processors.attribution.sample_batch import Changed, Stack, changed_in, kept
from nemesis.schemas import components
from nemesis.schemas.channels import ABSENT, HOST_CHANNELS
from nemesis.schemas.facts import Fact

UNCORRECTED: Final = "dimm_ue_count"
KILLED: Final = "oom_kill_count"
_SAID: Final = {
    UNCORRECTED: "uncorrectable errors of its memory modules",
    KILLED: "processes that its kernel killed for memory",
}
_COLUMNS: Final = tuple(HOST_CHANNELS.index(name) for name in _SAID)
_USUAL: Final = (0,) * len(_SAID)


class HostCounters(msgspec.Struct):
    """These counters of every node, as the bytes of its row; empty where all are zero."""

    by_node: dict[str, bytes] = {}

    def risen(self, hosts: Stack) -> list[tuple[Fact, Support]]:
        """What went up since each node's last sample, in the order of the log."""
        found: list[tuple[Fact, Support]] = []
        for changed in changed_in(hosts, _COLUMNS, self.by_node, _USUAL):
            self.by_node[changed.fact.key] = kept(changed.new, _USUAL)
            found += _compared(changed)
        return found


def host_block(data: Any) -> tuple[bytes, int]:
    """The host of a sample, for `stacked`."""
    return data.host, int(bool(data.host))


def _compared(changed: Changed) -> Iterator[tuple[Fact, Support]]:
    fact, old, new = changed
    if old is None:
        return
    for name, was, now in zip(_SAID, old[0].tolist(), new[0].tolist(), strict=True):
        if now > was != ABSENT:
            says = f"it counts {_SAID[name]}: {was} before, {now} now"
            yield fact, Support(components.node(fact.key), Proof(fact.id, fact.seq, says), name)
