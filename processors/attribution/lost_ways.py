"""Which way between two NICs loses what they send each other, and which switch on it does.

Why: where an entry of a forwarding table is damaged, two NICs alone do not reach each other; both
give up, both reach all others, and their job stands. How: a NIC gave up when it counts a queue pair
whose retries are spent or when its rank prints so; two of them on two nodes of a job, and no third,
have lost the way between them. A switch on it that began to count what it drops is at fault; where
none counts, the kind of fault is all that is known.

Guo et al., Microsoft (SIGCOMM 2015, "Pingmesh", 5.1): black holes of single pairs of addresses.
"""

from collections.abc import Collection, Sequence
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace

from nemesis.processors.attribution import wanted
from nemesis.processors.attribution.findings import NODE_SILENT, Finding, Proof
from nemesis.processors.attribution.inventory import Inventory
from nemesis.processors.attribution.links import switch_of
from nemesis.processors.attribution.reports import Said
from nemesis.schemas.channels import NIC_STATE_CHANNELS
from nemesis.schemas.facts import Fact

RETRIES_SPENT: Final = 12  # IBV_WC_RETRY_EXC_ERR of a completion
ENDS: Final = 2  # of a way; a third that gives up tells of a NIC or of a whole switch
NODES_MIN: Final = 3  # in a job of two there is only one way, and all of it is suspect
SETTLE_NS: Final = 3_000_000_000  # queue pairs that lost one peer give up within seconds
FRESH_NS: Final = 60_000_000_000
DROPS_MIN: Final = 100  # since it began; a healthy lossless fabric drops nothing
_RETRIES: Final = NIC_STATE_CHANNELS.index("retries_exceeded_count")
_INT64: Final = np.dtype("<i8")


class Spent(msgspec.Struct, frozen=True, array_like=True):
    """A NIC that gave up."""

    at_ns: int
    """Log time, or the rank's own time of its line."""
    proof: Proof


class Dropping(msgspec.Struct, array_like=True):
    """A switch that counts drops."""

    seen_ns: int
    """Log time of the latest poll with more of them."""
    count: int
    proof: Proof
    """The first poll."""


class LostWays(msgspec.Struct):
    """Who gave up, and which switches drop."""

    retries: dict[str, list[int]] = {}
    """Node to what its NICs counted last."""
    spent: dict[str, Spent] = {}
    """By NIC, the latest."""
    drops: dict[str, dict[str, int]] = {}
    """Switch to what its ports counted last, all but zeros."""
    dropping: dict[str, Dropping] = {}
    """By switch."""

    def take_states(self, fact: Fact, inventory: Inventory) -> None:
        """One reading of a node's devices."""
        count, block = fact.data.nic_count, fact.data.nic
        if not count or len(block) % (8 * count) or len(block) < 8 * count * (_RETRIES + 1):
            return
        new = np.frombuffer(block, _INT64).reshape(count, -1)[:, _RETRIES].tolist()
        old = self.retries.get(fact.key, [])
        self.retries[fact.key] = new
        if fact.late or len(old) != count:
            return  # a lifetime's count says nothing about today
        for place, was, now in zip(inventory.nics.get(fact.key, ()), old, new, strict=False):
            if now > was >= 0:
                proof = Proof(fact.id, fact.seq, "its retries are spent: nobody answers")
                self.spent[f"nic/{fact.key}/{place.name}"] = Spent(fact.log_time_ns, proof)

    def take_fabric(self, fact: Fact) -> None:
        """One poll of a switch."""
        if fact.late:
            return
        switch = fact.data.switch.removeprefix("switch/")
        new = {each.port: each.discard_count for each in fact.data.ports if each.discard_count}
        old = self.drops.get(switch)
        if new == old:
            return
        self.drops[switch] = new
        if old is None:
            return
        count = sum(max(each - old.get(port, 0), 0) for port, each in new.items())
        known = self.dropping.get(switch)
        if count and (known is None or fact.log_time_ns - known.seen_ns > FRESH_NS):
            proof = Proof(fact.id, fact.seq, f"switch/{switch} counts what it drops")
            self.dropping[switch] = Dropping(fact.log_time_ns, count, proof)
        elif count and known is not None:
            known.seen_ns, known.count = fact.log_time_ns, known.count + count

    def judge(
        self,
        job: str,
        said: Sequence[Said],
        inventory: Inventory,
        now_ns: int,
        *,
        without: Collection[str],
    ) -> tuple[tuple[str, ...], Finding] | None:
        """(nodes, what the NICs of a job that gave up prove); `without`: those known to be at
        fault."""
        spent = self._told(said, inventory, now_ns)
        if len(spent) < ENDS:
            return None
        nodes = inventory.nodes_of(job)
        ends = sorted(nic for nic in spent if nic.split("/")[1] in nodes)
        at = tuple(sorted({nic.split("/")[1] for nic in ends}))
        if not len(ends) == len(at) == ENDS or len(nodes) < NODES_MIN or set(ends) & set(without):
            return None
        if now_ns - max(spent[nic].at_ns for nic in ends) < SETTLE_NS:
            return None
        return at, self._finding(job, ends, [spent[nic].proof for nic in ends], inventory, now_ns)

    def _told(self, said: Sequence[Said], inventory: Inventory, now_ns: int) -> dict[str, Spent]:
        """NICs that gave up lately, by their counters or by the words of ranks."""
        own = {nic: e for nic, e in self.spent.items() if now_ns - e.at_ns <= FRESH_NS}
        for each in said:
            if (each.message.kind, each.message.number) != ("completion", RETRIES_SPENT):
                continue
            known = any(
                nic.name == each.message.device for nic in inventory.nics.get(each.node, ())
            )
            if known and now_ns - each.at_ns <= FRESH_NS:
                proof = replace(each.proof, says="nobody acknowledged what it sent")
                own[f"nic/{each.node}/{each.message.device}"] = Spent(each.at_ns, proof)
        return own

    def _finding(
        self,
        job: str,
        ends: Sequence[str],
        proofs: Sequence[Proof],
        inventory: Inventory,
        now_ns: int,
    ) -> Finding:
        leaves = {switch_of(inventory.port_of(nic)) for nic in ends}
        others = {each for node in inventory.nics for each in inventory.uplinks_of(node)} - leaves
        guilty = [
            (switch, each)
            for switch, each in sorted(self.dropping.items())
            if switch not in others
            and each.count >= DROPS_MIN
            and now_ns - each.seen_ns <= FRESH_NS
        ]
        reason = f"{' and '.join(ends)} of {job} do not reach each other, and no third gave up"
        culprits: tuple[str, ...] = ()
        if len(guilty) == 1:
            ((switch, drop),) = guilty
            culprits, proofs = (f"switch/{switch}",), (drop.proof, *proofs)
            reason = f"switch/{switch} on their way drops packets: {reason}"
        return Finding(
            verdict="attributed" if culprits else "class-only",
            fault_class="network.fabric",
            reason=reason,
            confidence_ppm=800_000 if culprits else 500_000,
            level=NODE_SILENT,
            culprits=culprits,
            victims=tuple(ends),
            proofs=tuple(proofs),
            jobs=(job,),
            missing=(wanted.ROUTE_TO_PEER, wanted.SWITCH_COUNTERS),
        )
