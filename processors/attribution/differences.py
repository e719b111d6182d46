"""Which node, device or program is set otherwise than all others of its kind, where a job suffers.

Why: one NIC with another MTU slows a whole job, one node with another release of NCCL hangs it, and
neither prints an error of its own. How: settings are compared over all components of one kind; one
that differs while all others agree, four at least, is odd. An odd setting blames nothing by itself:
only if a job that uses it stands still or became a tenth slower. A clock that follows no time
server is told of by itself: that is what the setting says.
"""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Final

import msgspec

from nemesis.processors.attribution import wanted
from nemesis.processors.attribution.findings import CONFIGURED, Finding, Proof
from nemesis.processors.attribution.inventory import Inventory
from nemesis.schemas import components
from nemesis.schemas.codes import FaultClass
from nemesis.schemas.facts import Fact
from nemesis.schemas.inferred import RuledOut

OTHERS_MIN: Final = 4
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


class Differences(msgspec.Struct, dict=True):
    """The settings of all components, by kind and name."""

    values: dict[str, dict[str, tuple[str, Proof]]] = {}
    """`kind name` to {component: (value, its fact)}."""
    odd: dict[str, Odd] = {}

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
            before = known[data.component][0]
            del holders[before][data.component]
            if not holders[before]:
                del holders[before]
        holders.setdefault(data.value, {})[data.component] = None
        known[data.component] = (data.value, Proof(fact.id, fact.seq, ""))
        for odd_key, each in list(self.odd.items()):
            if each.name == name and each.component in known:
                del self.odd[odd_key]
        odd = _odd_one(holders, len(known))
        if (name, data.value) == _CLOCK:
            odd = (data.component, "a time server")
        if odd is not None:
            component, common = odd
            value, proof = known[component]
            says = f"{name} of {component} is {value}, of others {common}"
            proof = Proof(proof.fact, proof.seq, says)
            self.odd[f"{component} {name}"] = Odd(component, name, value, common, proof)

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
        self, inventory: Inventory, suffers: Callable[[str], bool]
    ) -> list[tuple[str, str, Finding]]:
        """(key, node, what an odd setting does to a job that suffers)."""
        found: list[tuple[str, str, Finding]] = []
        for key, odd in self.odd.items():
            node = components.node_of(odd.component) or ""
            jobs = dict.fromkeys(seat.job for seat in inventory.seats_on(node))
            felt = next((job for job in jobs if suffers(job)), "")
            is_clock = (odd.name, odd.value) == _CLOCK
            if node and (felt or is_clock):
                found.append((f"setting {key}", node, _finding(odd, node, felt)))
        return found


def _odd_one(holders: Holders, of_count: int) -> tuple[str, str] | None:
    """(component, value of all others), where exactly one differs."""
    if len(holders) != 2 or of_count <= OTHERS_MIN:
        return None
    other, common = sorted(holders, key=lambda value: len(holders[value]))
    return (next(iter(holders[other])), common) if len(holders[other]) == 1 else None


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
