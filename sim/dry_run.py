"""A run without processors: what is emitted and delivered when nobody reads and nobody acts.

From it alone, before any processor runs, the simulator decides of each fault whether it is
attributable; so that is a property of scenario, seed and parameters, and no processor can change
what it is judged by.
"""

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from nemesis.sim.faults.symptoms import Fault, Symptom
from nemesis.sim.operator import submissions
from nemesis.sim.params import Params
from nemesis.sim.simulation import Simulation
from nemesis.sim.told import told
from nemesis.sim.topology.cluster import Cluster
from nemesis.sim.truth.evidence import Weigher


def weighed(
    cluster: Cluster,
    faults: Sequence[Fault],
    defects: Sequence[Symptom],
    params: Params,
    *,
    seed: int,
    folder: Path,
    start_ns: int,
    quantum_ns: int,
) -> list[Fault]:
    """The faults with what of their evidence will be delivered, in a `folder` that is empty."""
    weigher = Weigher(faults, params.truth, start_ns=start_ns)
    simulation = Simulation(
        cluster,
        submissions(cluster, start_ns),
        faults,
        seed=seed,
        folder=folder,
        start_ns=start_ns,
        params=params,
    )
    simulation.afflict(defects)
    now_ns = start_ns
    while now_ns < weigher.until_ns:
        now_ns += quantum_ns
        simulation.advance(now_ns, lambda node: True)
        for fact in told(simulation, now_ns):
            weigher.take(now_ns, fact)
    return [
        replace(fault, delivered=each.delivered, attributable=each.attributable)
        for fault, each in zip(faults, weigher.weighings(), strict=True)
    ]
