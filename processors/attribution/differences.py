"""Which node, device or program is set otherwise than all others of its kind, where a job suffers.

Why: one NIC with another MTU slows a whole job, one node with another release of NCCL hangs it, and
neither prints an error of its own. How: settings are compared over all components of one kind; one
or two that differ while all others agree, four at least, are odd. An odd setting blames
nothing by itself: only if a job that uses it stands still or became a tenth slower, if its NIC
sends again what was lost, or at once if something there says that it failed; of two, suffering is
not enough. One under which a job got on well for a minute is acquitted. A clock that follows no
time server is told of by itself: that is what the setting says.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Final

import msgspec
from msgspec.structs import replace

from nemesis.processors.attribution import wanted
from nemesis.processors.attribution.findings import CONFIGURED, Finding, Proof
from nemesis.processors.attribution.inventory import Inventory
from nemesis.schemas import components
from nemesis.schemas.codes import FaultClass
from nemesis.schemas.facts import Fact
from nemesis.schemas.inferred import RuledOut

OTHERS_MIN: Final = 4
ODD_MAX: Final = 2  # more of them are a way to set it
# ten steps of most jobs: what a setting does to a job it does to each step
PROVEN_NS: Final = 60_000_000_000
KINDS_MAX: Final = 4096
_NIC_NAMES: Final = frozenset({"mtu", "roce_gid_index", "pfc_priorities", "roce_mode", "ecn"})
_OF_ALL_NICS: Final = "nics."
_RELEASES: Final = frozenset({"nccl", "cuda", "driver", "torch", "ofed", "firmware"})
_HOST_NAMES: Final[Mapping[str, str]] = {
    "nvidia_driver": "software/{node}/nvidia-driver",
    "fabric_manager": "service/{node}/nvidia-fabricmanager",
    "memlock_kib": "config/{node}/memlock",
    "pcie_acs": "config/{node}/acs",
}
"""What of a node is set by that name."""
_CLOCK: Final = ("reference", "none")
_COMPARED: Final = _NIC_NAMES | _RELEASES | _HOST_NAMES.keys() | {_CLOCK[0]}


Holders = dict[str, dict[str, None]]
"""Value to the components that have it, in the order of the facts."""


class Odd(msgspec.Struct, frozen=True, array_like=True):
    """A setting that no other of its kind has."""

    component: str
    name: str
    value: str
    common: str
    proof: Proof
    at_ns: int = 0
    """When it was read, by its node's clock."""
    read_ns: int = 0
    """Log time of it."""
    alone: bool = True
    """No other of its kind differs."""

    @property
    def key(self) -> str:
        """The same as long as it is about the same setting of the same thing."""
        return f"{self.component} {self.name}"

    @property
    def is_clock(self) -> bool:
        """Whether it says that a clock follows no time server."""
        return (self.name, self.value) == _CLOCK

    @property
    def node(self) -> str:
        """Where it is set so, "" if that is no node's."""
        return components.node_of(self.component) or ""


class Differences(msgspec.Struct, dict=True):
    """The settings of all components, by kind and name."""

    values: dict[str, dict[str, tuple[str, Proof]]] = {}
    """`kind name` to {component: (value, its fact)}."""
    odd: dict[str, Odd] = {}
    acquitted: dict[str, str] = {}
    """The value of odd settings under which a job got on well."""

    def take(self, fact: Fact) -> None:
        """A setting was read."""
        data = fact.data
        kind, name = data.component.partition("/")[0], data.name
        if name.startswith(_OF_ALL_NICS):  # a node's word for those of its NICs that say nothing
            kind, name = "nic", name.removeprefix(_OF_ALL_NICS)
        if name not in _COMPARED:
            return
        key = f"{kind} {name}"
        if key not in self.values and len(self.values) >= KINDS_MAX:
            return
        known = self.values.setdefault(key, {})
        holders = self._holders_of(key)
        if data.component in known:
            was = known[data.component][0]
            del holders[was][data.component]
            if not holders[was]:
                del holders[was]
        holders.setdefault(data.value, {})[data.component] = None
        known[data.component] = (data.value, Proof(fact.id, fact.seq, ""))
        odd = _odd_ones(holders)
        if (name, data.value) == _CLOCK:
            odd = [(data.component, "a time server")]
        self._keep(fact, name, known, odd)

    def _keep(
        self,
        fact: Fact,
        name: str,
        known: Mapping[str, tuple[str, Proof]],
        odd: Sequence[tuple[str, str]],
    ) -> None:
        """These (component, value of all others) differ now, unless a job got on well with it."""
        before = {key: e for key, e in self.odd.items() if e.name == name and e.component in known}
        for key in before:
            del self.odd[key]
        for component, common in odd:
            value, proof = known[component]
            proof = replace(proof, says=f"{name} of {component} is {value}, of others {common}")
            new = Odd(component, name, value, common, proof, fact.at_ns, fact.log_time_ns)
            old = before.get(new.key)
            each = old if old is not None and old.value == value else new
            if self.acquitted.get(each.key) != value:
                self.odd[each.key] = replace(each, alone=len(odd) == 1)

    @cached_property
    def _holders(self) -> dict[str, Holders]:
        """By `kind name`; follows from `values`, so it lies in no snapshot."""
        return {}

    def _holders_of(self, key: str) -> Holders:
        holders = self._holders.get(key)
        if holders is None:
            holders = self._holders[key] = {}
            for component, (value, _) in self.values[key].items():
                holders.setdefault(value, {})[component] = None
        return holders

    def judge(
        self,
        inventory: Inventory,
        feels: Callable[[str, Odd], bool],
        proves: Callable[[str, Odd], bool],
    ) -> list[tuple[str, str, Finding]]:
        """(key, node, what an odd setting does to a job).

        `feels`: whether a job suffers under it; `proves`: whether it got on well all the same.
        """
        found: list[tuple[str, str, Finding]] = []
        for key, odd in list(self.odd.items()):
            jobs = list(dict.fromkeys(seat.job for seat in inventory.seats_on(odd.node)))
            felt = next((job for job in jobs if feels(job, odd)), "")
            if odd.node and (felt or odd.is_clock):
                found.append((f"setting {key}", odd.node, _finding(odd, odd.node, felt)))
            elif any(proves(job, odd) for job in jobs) and len(self.acquitted) < KINDS_MAX:
                self.acquitted[key] = odd.value
                del self.odd[key]
        return found


def _odd_ones(holders: Holders) -> list[tuple[str, str]]:
    """(component, value of all others) of the one or two that differ from all others."""
    common = max(holders, key=lambda value: len(holders[value]))
    odd = [each for value, own in holders.items() if value != common for each in own]
    if len(odd) > ODD_MAX or len(holders[common]) < OTHERS_MIN:
        return []
    return [(each, common) for each in odd]


def _finding(odd: Odd, node: str, job: str) -> Finding:
    fault_class: FaultClass = "host.config"
    culprit = components.node(node)
    if odd.name in _RELEASES:
        fault_class, culprit = "software.version", f"software/{node}/{odd.name}"
    elif odd.name in _HOST_NAMES:
        culprit = _HOST_NAMES[odd.name].format(node=node)
        kinds: dict[str, FaultClass] = {"software": "software.version", "service": "host.service"}
        fault_class = kinds.get(components.kind_of(culprit), "host.config")
    elif odd.component.startswith("nic/"):
        fault_class, culprit = "network.config", odd.component
    felt = f", and {job} suffers" if job else ""
    because = "the same hardware works under the setting of all others"
    return Finding(
        verdict="attributed",
        fault_class=fault_class,
        reason=f"{odd.name} of {odd.component} is {odd.value}, unlike {odd.common} of all others"
        f"{felt}",
        confidence_ppm=800_000,
        level=CONFIGURED,
        culprits=(culprit,),
        proofs=(odd.proof,),
        ruled_out=(RuledOut(says=f"the hardware of {node}", because=because, fact=odd.proof.fact),),
        missing=(wanted.SETTING_HISTORY,),
        jobs=(job,) if job else (),
    )
