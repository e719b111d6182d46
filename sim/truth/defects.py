"""What is wrong with the evidence of a run, drawn at the rates of the parameter file.

On real clusters a kernel log is not read, a dump is not written, a leaf is cut off and tells later
what it saw. Drawn for every node alike, whether anything is wrong with it or not: a defect says
nothing about where the fault is.
"""

from random import Random
from typing import Final

import msgspec
from msgspec.structs import replace

from nemesis.sim.faults.symptoms import (
    ClockOff,
    DevicesReadOnce,
    EvidenceEffect,
    NoDump,
    NoKernelLog,
    SamplesDoubled,
    SamplesLate,
    SamplesLost,
    Symptom,
)
from nemesis.sim.params import DefectParams
from nemesis.sim.topology.cluster import Cluster

PPM: Final = 1_000_000
MS: Final = 1_000_000
_NAMES: Final[dict[type, str]] = {
    NoKernelLog: "no_kernel_log",
    NoDump: "no_dump",
    DevicesReadOnce: "single_snapshot",
    SamplesLost: "samples_lost",
    SamplesDoubled: "doubled",
    SamplesLate: "cut_off",
    ClockOff: "clock_off",
}


def scaled(rates: DefectParams, factor: float) -> DefectParams:
    """The same, so much more often."""
    shares = {name: value for name, value in msgspec.structs.asdict(rates).items() if "ppm" in name}
    return replace(
        rates, **{name: min(PPM, round(value * factor)) for name, value in shares.items()}
    )


def draw_defects(
    cluster: Cluster, rates: DefectParams, *, seed: int, strikes_s: float
) -> tuple[Symptom, ...]:
    """Defects from the start on; a leaf is cut off about when something strikes."""
    random = Random(f"{seed}/defects")
    found = [
        Symptom(0, node, effect)
        for node in cluster.node_names
        for effect in _of_node(rates, random)
    ]
    if _falls(random, rates.leaf_cut_off_ppm):
        at_ns = max(0, round((strikes_s + random.uniform(-10.0, 10.0)) * 1e9))
        leaf = random.choice(cluster.leaves)
        for node in cluster.node_names:
            if any(nic.switch_port.split("/")[1] == leaf for nic in cluster.nics_of(node)):
                cut_off = SamplesLate(rates.leaf_cut_off_s * 1_000 * MS)
                found.append(Symptom(at_ns, node, cut_off))
    return tuple(found)


def told(defects: tuple[Symptom, ...]) -> tuple[str, ...]:
    """A line each, for the ledger."""
    return tuple(f"{each.node} {_NAMES[type(each.effect)]}" for each in defects)


def _of_node(rates: DefectParams, random: Random) -> list[EvidenceEffect]:
    """Every chance is drawn, so that one rate changes nothing about the other defects."""
    offset_ns = random.randint(-rates.clock_off_ms, rates.clock_off_ms) * MS
    drawn: list[tuple[int, EvidenceEffect]] = [
        (rates.no_kernel_log_ppm, NoKernelLog()),
        (rates.no_dump_ppm, NoDump()),
        (rates.single_snapshot_ppm, DevicesReadOnce()),
        (rates.samples_lost_ppm, SamplesLost(rates.samples_lost_per_mille)),
        (rates.doubled_ppm, SamplesDoubled(rates.doubled_per_mille)),
        (rates.clock_off_ppm, ClockOff(offset_ns, stated_error_ns=abs(offset_ns))),
    ]
    return [effect for ppm, effect in drawn if _falls(random, ppm)]


def _falls(random: Random, ppm: int) -> bool:
    return random.randrange(PPM) < ppm
