"""Which switch stopped, as those that are wired to it see it.

Why: a spine that stops takes no NIC's link with it; all that shows is that ports of other switches
lost their peer, and that its own collector is not heard. How: ports between switches that were up
and went down are remembered by the switch on their other end; three and more of one such switch,
which has not been polled since, have lost that switch and not their cables.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from nemesis.processors.attribution import wanted
from nemesis.processors.attribution.findings import LINK_LOST, Finding, Proof
from nemesis.schemas.facts import Fact

PORTS_MIN: Final = 3  # a cable or two may be pulled
GRACE_NS: Final = 8_000_000_000  # as of links: MegaScale (arXiv 2402.15627, 6.2)
PROOFS_MAX: Final = 8


class Trunk(msgspec.Struct, frozen=True, array_like=True):
    """A port to another switch that went down."""

    far: str
    """The switch on its other end."""
    since_ns: int
    proof: Proof


class Trunks(msgspec.Struct):
    """Ports between switches."""

    down: dict[str, Trunk] = {}
    """By port; only those that were seen up before."""
    up: dict[str, int] = {}
    """Switch to how many of its ports to other switches were up in its first poll."""

    def take(self, fact: Fact) -> None:
        """One poll of a switch on which something changed, and the first one."""
        switch = fact.data.switch.removeprefix("switch/")
        ports = [each for each in fact.data.ports if each.peer.startswith("port/")]
        if switch not in self.up:
            self.up[switch] = sum(each.up for each in ports)
            return
        for each in ports:
            if each.up:
                self.down.pop(each.port, None)
            elif each.port not in self.down and len(self.down) < sum(self.up.values()):
                proof = Proof(fact.id, fact.seq, f"{each.port} lost {each.peer}")
                far = each.peer.split("/")[1]
                self.down[each.port] = Trunk(far, fact.log_time_ns, proof)

    def judge(self, now_ns: int, polled_ns: Mapping[str, int]) -> list[tuple[str, Finding]]:
        """(switch, that it stopped); `polled_ns`: when each switch was last polled."""
        by_far: dict[str, list[Trunk]] = {}
        for trunk in self.down.values():
            by_far.setdefault(trunk.far, []).append(trunk)
        return [
            (far, _finding(far, trunks))
            for far, trunks in sorted(by_far.items())
            if len(trunks) >= PORTS_MIN and _is_silent(polled_ns.get(far, 0), trunks, now_ns)
        ]


def _is_silent(polled_ns: int, trunks: list[Trunk], now_ns: int) -> bool:
    since_ns = min(each.since_ns for each in trunks)
    return now_ns - since_ns >= GRACE_NS and 0 < polled_ns <= since_ns


def _finding(far: str, trunks: list[Trunk]) -> Finding:
    return Finding(
        verdict="attributed",
        fault_class="network.fabric",
        reason=f"switch/{far} is not heard any more, and other switches lost their ports to it",
        confidence_ppm=850_000,
        level=LINK_LOST,
        culprits=(f"switch/{far}",),
        proofs=tuple(each.proof for each in trunks[:PROOFS_MAX]),
        missing=(wanted.SWITCH_COUNTERS,),
    )
