"""Who holds whom back by pause frames, and which one does so without being held back itself.

Why: a NIC that cannot drain what it receives pauses its switch, the switch its other senders, and
in the end a whole job is slow with no error anywhere. How: where an end of a link was held back for
a tenth of the time in poll after poll, its device waits for the device on the other end; who is
waited for and waits for nobody paused first. Only a NIC is named, and only if every wait leads to
it: a switch that pauses of itself is congested, and who congests it is not said.

Zhu et al., Microsoft (SIGCOMM 2016, "RDMA over Commodity Ethernet at Scale", 4.3): one NIC's pause
storm stops a network. SONiC's PFC watchdog acts when a queue stays paused for hundreds of ms.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from nemesis.processors.attribution import wanted
from nemesis.processors.attribution.findings import PAUSED, Finding, Proof
from nemesis.processors.attribution.inventory import Inventory
from nemesis.processors.attribution.sample_batch import Stack, changed_in, kept
from nemesis.schemas.channels import ABSENT, NIC_CHANNELS
from nemesis.schemas.facts import Fact

SHARE_PPM: Final = 100_000  # of the time; congestion that flow control is for takes less
POLLS_MIN: Final = 3  # one after the other: an all-to-all pauses somebody for a moment
FRESH_NS: Final = 30_000_000_000  # a switch is polled each ten seconds or so
KEY: Final = "pauses"
NAMED_MAX: Final = 8
_COLUMNS: Final = tuple(
    NIC_CHANNELS.index(name) for name in ("rx_pause_duration_us", "tx_pause_duration_us")
)
_USUAL: Final = (0, 0)


class Wait(msgspec.Struct, array_like=True):
    """A device that is held back by the one on the other end of a link."""

    at_ns: int
    """Time of the latest poll that shows it, by the clock of who polled."""
    seen_ns: int
    """Log time of it."""
    polls_count: int
    """One after the other."""
    proof: Proof


class PauseFinding(NamedTuple):
    """What the pause frames of the cluster prove together."""

    nodes: tuple[str, ...]
    finding: Finding


class Pauses(msgspec.Struct):
    """The pause counters of NICs and ports, and who waits for whom."""

    nics: dict[str, bytes] = {}
    """Node to the (received, sent) pause times of its NICs; empty where all are zero."""
    ports: dict[str, dict[str, tuple[int, int]]] = {}
    """Switch to those of its ports, all but those that are zero."""
    polled_ns: dict[str, int] = {}
    """Switch to when it was last polled, by its collector's clock."""
    waits: dict[str, dict[str, Wait]] = {}
    """Who is held back, by whom, in poll after poll."""
    deadlocks: dict[str, Wait] = {}
    """Ports whose switch took a paused queue for a deadlock, lately."""
    deadlock_counts: dict[str, int] = {}
    """By port, of those that ever counted one."""

    def take_samples(self, nics: Stack, inventory: Inventory) -> None:
        """NICs of different nodes, in the order of the log; those that come late say nothing."""
        for fact, old, new in changed_in(nics, _COLUMNS, self.nics, _USUAL):
            if (new == ABSENT).any():
                continue
            self.nics[fact.key] = kept(new, _USUAL)
            if old is None:
                continue
            places = inventory.nics.get(fact.key, [])
            for place, was, now in zip(places, old.tolist(), new.tolist(), strict=False):
                switch = _device(place.port)
                if switch:
                    nic = f"nic/{fact.key}/{place.name}"
                    self._compare(fact, (nic, switch), fact.data.period_ns, was, now)

    def take_quiet(self, fact: Fact) -> bool:
        """One poll of a switch that holds nobody back; False, and not taken, where it may.

        It touches nothing that samples touch, so none of them need be read before it.
        """
        if fact.late:
            return True
        ports = fact.data.ports
        switch = fact.data.switch.removeprefix("switch/")
        elapsed_ns = fact.at_ns - self.polled_ns.get(switch, fact.at_ns)
        if elapsed_ns <= 0 or any([each.pfc_deadlock_count for each in ports]):
            return False
        known = self.ports[switch]
        seen = {
            each.port: (each.rx_pause_us, each.tx_pause_us)
            for each in ports
            if each.rx_pause_us or each.tx_pause_us
        }
        for port, now in seen.items():
            was = known.get(port, _USUAL)
            if max(now[0] - was[0], now[1] - was[1]) * 1_000_000_000 >= elapsed_ns * SHARE_PPM:
                return False
        self.polled_ns[switch] = fact.at_ns
        self.ports[switch] = seen
        return True

    def take_fabric(self, fact: Fact, inventory: Inventory) -> None:
        """One poll of a switch."""
        if fact.late:
            return
        switch = fact.data.switch.removeprefix("switch/")
        known, before_ns = self.ports.get(switch, {}), self.polled_ns.get(switch)
        seen = {each.port: (each.rx_pause_us, each.tx_pause_us) for each in fact.data.ports}
        if before_ns is not None:
            for each in fact.data.ports:
                was, now = known.get(each.port, _USUAL), seen[each.port]
                if was != now:
                    peer = _device(each.peer) or inventory.nic_at(_port(switch, each.port))
                    devices = (f"switch/{switch}", peer)
                    self._compare(fact, devices, fact.at_ns - before_ns, was, now)
            self._take_deadlocks(fact, switch)
        self.polled_ns[switch] = fact.at_ns
        self.ports[switch] = {name: each for name, each in seen.items() if each != _USUAL}

    def _take_deadlocks(self, fact: Fact, switch: str) -> None:
        for each in fact.data.ports:
            port = _port(switch, each.port)
            if each.pfc_deadlock_count > self.deadlock_counts.get(port, 0):
                says = f"{port}: its switch took a paused queue for a deadlock"
                proof = Proof(fact.id, fact.seq, says)
                self.deadlocks[port] = Wait(fact.at_ns, fact.log_time_ns, 1, proof)
            if each.pfc_deadlock_count:
                self.deadlock_counts[port] = each.pfc_deadlock_count

    def _compare(
        self,
        fact: Fact,
        devices: tuple[str, str],
        elapsed_ns: int,
        was: Sequence[int],
        now: Sequence[int],
    ) -> None:
        """An end's counters went on: received pauses hold it back, those it sent hold its peer."""
        own, peer = devices
        if not peer or elapsed_ns <= 0:
            return
        for waits, on, before, after in ((own, peer, was[0], now[0]), (peer, own, was[1], now[1])):
            if (after - before) * 1_000_000_000 >= elapsed_ns * SHARE_PPM:
                self._wait(fact, waits, on, elapsed_ns)

    def _wait(self, fact: Fact, waits: str, on: str, elapsed_ns: int) -> None:
        proof = Proof(fact.id, fact.seq, f"{waits} was held back by pause frames of {on}")
        held = self.waits.setdefault(waits, {})
        known = held.get(on)
        if known is None or fact.at_ns - known.at_ns > 2 * elapsed_ns:
            held[on] = Wait(fact.at_ns, fact.log_time_ns, 1, proof)
        elif fact.at_ns - known.at_ns >= elapsed_ns // 2:  # else the link's other end said it
            known.polls_count += 1
            known.at_ns, known.seen_ns = fact.at_ns, fact.log_time_ns

    def forget(self, now_ns: int) -> None:
        """Drop what is over."""
        for waits in list(self.waits):
            held = self.waits[waits]
            for on in [on for on, each in held.items() if now_ns - each.seen_ns > FRESH_NS]:
                del held[on]
            if not held:
                del self.waits[waits]
        if not self.waits:  # it drains again, or its watchdog told before the first poll in pause
            fresh = [e for e in self.deadlocks.items() if now_ns - e[1].seen_ns <= FRESH_NS]
            self.deadlocks = dict(fresh)


def judge_pauses(pauses: Pauses, inventory: Inventory) -> PauseFinding | None:
    """Who paused first, or only that somebody did; None where nothing lasts or no job feels it."""
    lasting = {
        waits: {on: each for on, each in held.items() if each.polls_count >= POLLS_MIN}
        for waits, held in pauses.waits.items()
    }
    lasting = {waits: held for waits, held in lasting.items() if held}
    nics = [name for name in sorted(lasting) if name.startswith("nic/")]
    nodes = sorted({name.split("/")[1] for name in nics})
    felt = tuple(node for node in nodes if inventory.seats_on(node))
    if not felt:
        return None
    if len(pauses.deadlocks) > 1:
        return PauseFinding(felt, _deadlock(pauses.deadlocks, proofs_of(lasting)))
    origins = sorted({on for held in lasting.values() for on in held} - lasting.keys())
    proofs = proofs_of(lasting)
    first = origins[0] if len(origins) == 1 else ""
    if first.startswith("nic/") and all(_leads_to(first, name, lasting) for name in lasting):
        node = first.split("/")[1]
        own = [held[first].proof for held in lasting.values() if first in held]
        reason = f"{first} pauses its switch and is paused by nobody: others wait for it"
        return PauseFinding((node,), _finding(reason, (*own, *proofs), culprits=(first,)))
    reason = f"pause frames hold {felt[0]} and others back, and they do not lead to one NIC"
    if first.startswith("switch/"):
        reason = f"pause frames that hold {felt[0]} and others back begin at {first} itself: no NIC"
        reason += " pauses it, and who congests it is not said"
    return PauseFinding(felt, _finding(reason, proofs, culprits=()))


def proofs_of(waits: dict[str, dict[str, Wait]]) -> tuple[Proof, ...]:
    """The facts that show who waits for whom."""
    return tuple(each.proof for held in waits.values() for each in held.values())


def _deadlock(deadlocks: dict[str, Wait], proofs: Sequence[Proof]) -> Finding:
    """Ports that wait for each other's buffers: nobody paused first, and nothing drains."""
    switches = sorted({f"switch/{port.split('/')[1]}" for port in deadlocks})
    ring = ", ".join(sorted(deadlocks)[:NAMED_MAX])
    reason = f"{len(deadlocks)} ports pause each other in a ring and none drains: {ring}"
    own = [deadlocks[port].proof for port in sorted(deadlocks)]
    return _finding(
        reason, (*own, *proofs), culprits=tuple(switches[:1] if len(switches) == 1 else ())
    )


def _leads_to(first: str, name: str, lasting: dict[str, dict[str, Wait]]) -> bool:
    reached, ahead = {name}, [name]
    while ahead:
        for on in lasting.get(ahead.pop(), ()):
            if on not in reached:
                reached.add(on)
                ahead.append(on)
    return first in reached


def _finding(reason: str, proofs: Sequence[Proof], *, culprits: tuple[str, ...]) -> Finding:
    return Finding(
        verdict="attributed" if culprits else "class-only",
        fault_class="network.pause",
        reason=reason,
        confidence_ppm=800_000 if culprits else 600_000,
        level=PAUSED,
        culprits=culprits,
        proofs=tuple(dict.fromkeys(proofs))[:NAMED_MAX],
        missing=(wanted.PAUSE_COUNTERS, wanted.NIC_BUFFERS),
    )


def _port(switch: str, port: str) -> str:
    return port if port.startswith("port/") else f"port/{switch}/{port}"


def _device(name: str) -> str:
    """The device of a component's name: a NIC, or the switch of a port; "" for anything else."""
    parts = name.split("/")
    if len(parts) != 3 or parts[0] not in ("nic", "port"):
        return ""
    return name if parts[0] == "nic" else f"switch/{parts[1]}"
