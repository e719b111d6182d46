"""Pause frames that two readings of ports and adapters count, where no telemetry follows them.

Why: a storm of pause frames slows every job behind it and is no error to anybody. How: only what
rose between two readings counts, and only if by far more than congestion makes it. An adapter that
sends pauses and receives none asks its switch to wait: it cannot drain. A switch port that
receives them has such an adapter on it. That is where to look, and not yet whose fault it is.

Zhu et al., Microsoft (SIGCOMM 2016, "RDMA over Commodity Ethernet at Scale", 4.3): a broken NIC
sends more than 2000 pause frames a second. Names: mlx5 and bnxt in `ethtool -S`, SONiC's SAI.
"""

import re
from collections.abc import Sequence
from typing import Final

from nemesis.processors.attribution import wanted
from nemesis.processors.attribution.findings import PAUSED, PORTS_TROUBLED, Finding
from nemesis.processors.attribution.report_rules import proofs_of, shown
from nemesis.processors.attribution.reports import Counted, Told

RISE_MIN: Final = 120_000  # a minute of 2000 a second
_STORMS: Final = "pfcwd_storms_detected"  # `show pfcwd stats` of SONiC
_SENT: Final = re.compile(r"tx_(?:prio\d_|global_)?pause(?:_ctrl_phy)?\Z|\w+_pfc_\d_tx_pkts\Z")
_RECEIVED: Final = re.compile(r"rx_(?:prio\d_|global_)?pause(?:_ctrl_phy)?\Z|\w+_pfc_\d_rx_pkts\Z")


def judge_pause_counters(told: Told) -> list[Finding]:
    """What pause frames that rose between two readings prove."""
    risen = [e for e in told.counters if e.last - e.first >= RISE_MIN]
    sent = [each for each in risen if _SENT.match(each.name)]
    received = [each for each in risen if _RECEIVED.match(each.name)]
    if not sent and not received:
        return _storms(told)
    held = {each.component for each in received}
    asking = [e for e in sent if e.component.startswith("nic/") and e.component not in held]
    asked = [e for e in received if e.component.startswith("port/")]
    return [_finding(told, asking or asked, [*sent, *received])]


def _storms(told: Told) -> list[Finding]:
    """Queues that a switch's own watchdog took out, for they were paused without end."""
    seen = [e for e in told.counters if e.name.startswith(_STORMS) and e.last > 0]
    if not seen:
        return []
    where = shown(sorted({each.component for each in seen}))
    return [
        Finding(
            verdict="class-only",
            fault_class="network.pause",
            reason=f"the pause watchdog met storms on queues of {where}: what is attached there"
            " does not drain, or is paused itself",
            confidence_ppm=600_000,
            level=PORTS_TROUBLED,
            proofs=proofs_of((e, f"storms detected: {e.last}") for e in seen),
            jobs=(told.job,),
            missing=(wanted.PAUSE_COUNTERS, wanted.NIC_BUFFERS),
        )
    ]


def _finding(told: Told, origins: Sequence[Counted], risen: Sequence[Counted]) -> Finding:
    where = shown(sorted({each.component for each in origins}))
    told_by = shown(sorted({each.component for each in risen}))
    return Finding(
        verdict="class-only",
        fault_class="network.pause",
        reason=f"pause frames of {told_by} rose without end between two readings"
        + (f"; they come from {where} or what is attached to it" if where else ""),
        confidence_ppm=700_000,
        level=PAUSED,
        proofs=proofs_of(
            (each, f"rose by {each.last - each.first} between two readings")
            for each in (*origins, *risen)
        ),
        jobs=(told.job,),
        missing=(wanted.PAUSE_COUNTERS, wanted.NIC_BUFFERS),
    )
