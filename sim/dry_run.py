"""A run without processors: what is emitted and delivered when nobody reads and nobody acts.

From it alone, before any processor runs, the simulator decides of each fault whether it is
attributable; so that is a property of scenario, seed and parameters, and no processor can change
what it is judged by.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from nemesis.schemas.components import rank as rank_name
from nemesis.schemas.observed import LogLineWritten
from nemesis.sim.faults.causal import Cause
from nemesis.sim.faults.symptoms import Fault, Symptom
from nemesis.sim.jobs.words import TIMED_OUT
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
        faults,
        seed=seed,
        folder=folder,
        start_ns=start_ns,
        defects=defects,
        params=params,
    )
    loud: dict[str, int] = {}
    now_ns = start_ns
    while now_ns < weigher.until_ns:
        now_ns += quantum_ns
        simulation.advance(now_ns, lambda node: True)
        for fact in told(simulation, now_ns):
            weigher.take(now_ns, fact)
            if isinstance(fact, LogLineWritten) and TIMED_OUT in fact.text:
                loud.setdefault(rank_name(fact.job, fact.rank), fact.at_ns - start_ns)
    found = zip(faults, weigher.weighings(), strict=True)
    return [
        replace(
            _with_loud(fault, loud, cluster),
            delivered=each.delivered,
            attributable=each.attributable,
        )
        for fault, each in found
    ]


def _with_loud(fault: Fault, loud: Mapping[str, int], cluster: Cluster) -> Fault:
    """With the ranks that only wait for it, and whose watchdogs said so aloud."""
    if not fault.stalls:
        return fault
    job = cluster.job_on(fault.node)
    known = {*fault.components, *fault.harmless, *fault.innocent, fault.culprit}
    waited = {
        name: at_ns - fault.began_ns
        for name, at_ns in loud.items()
        if name not in known
        and at_ns >= fault.onset_ns
        and (job is None or name.startswith(f"rank/{job.name}/"))
    }
    because = [Cause(name, "waits until its watchdog fires", at) for name, at in waited.items()]
    return replace(
        fault,
        innocent=(*fault.innocent, *waited),
        chain=tuple(sorted((*fault.chain, *because), key=lambda each: each.after_ns)),
    )
