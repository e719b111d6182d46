"""One run of each kind of fault on a small cluster, without processors, made once a process."""

import tempfile
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from nemesis.schemas.observed import Observation
from nemesis.sim.faults.courses import plan_faults
from nemesis.sim.faults.planned import KINDS, FaultPlanned
from nemesis.sim.offline import START_NS
from nemesis.sim.simulation import Simulation
from nemesis.sim.topology.cluster import Cluster
from nemesis.sim.topology.cluster_file import load_cluster
from nemesis.sim.truth.ledger import FaultInjected


def _small_cluster() -> Cluster:
    """Six nodes of two GPUs on three leaves below two spines; four of them in a job."""
    whole = load_cluster()
    job = replace(
        whole.job, nodes=4, world_min=2, step_ms=400, allreduce_ms=50, checkpoint_steps=10
    )
    return replace(
        whole,
        cluster=replace(whole.cluster, nodes=6),
        node=replace(whole.node.with_gpus(2), nvswitches=whole.node.nvswitches),
        fabric=replace(whole.fabric, kind="fat-tree", nodes_per_leaf=2, spines=2),
        jobs=(job,),
    )


CLUSTER: Final = _small_cluster()
BEGINS_S: Final = 3.0
AFTER_S: Final = 8.0
SILENCE_S: Final = 14.0
"""Longer than a node may be silent without proving anything (truth.silent_s in sim/params.toml)."""
QUANTUM_NS: Final = 100_000_000
DEFECTS: Final = frozenset(
    each
    for each in KINDS
    if each.startswith(("evidence-", "polls-", "single-", "kernel-log-", "dump-"))
)
"""Kinds that take evidence away, and add none but a spool's."""
_SHORT: Final[dict[str, dict[str, Any]]] = {
    "checkpoint-stall": {"lasts_s": 8.0},
    "corrected-storm": {"lasts_s": 6.0},
    "ecc-precursor": {"fails_after_s": 8.0},
    "evidence-late": {"for_s": 4.0},
    "gpu-throttle": {"ramp_s": 4.0},
    "loader-killed": {"ramp_s": 3.0},
    "loader-stall": {"steps_count": 4},
    "maintenance-reboot": {"down_s": 6.0},
    "noisy-neighbour": {"lasts_s": 5.0},
    "oom-kill": {"ramp_s": 3.0},
    "optic-degraded": {"ramp_s": 4.0},
    "pcie-degraded": {},
    "thp-fallback": {"lasts_s": 6.0},
    "corrected-errors": {"spread_s": 3.0},
    "kernel-noise": {"spread_s": 3.0},
    "nic-flap": {"flaps_count": 2, "down_s": 2.0, "up_s": 2.0},
}
"""So that a run takes a tenth of a second: the shape of a fault is the same."""
ON_SPARE: Final = frozenset({"user-xid", "teardown-xids", "noisy-neighbour", "maintenance-reboot"})


class KindRun(NamedTuple):
    """What came of it."""

    truth: FaultInjected
    observations: tuple[tuple[int, Observation], ...]
    """(when it reached the log, what), in the log's order."""


def planned_of(kind: str, repair_s: float = 0.0) -> FaultPlanned:
    """The kind with all its defaults, only shorter."""
    document = {
        "kind": kind,
        "after_s": BEGINS_S,
        "repair_s": repair_s,
        **_SHORT.get(kind, {}),
    }
    if kind in ON_SPARE:
        document["node"] = "spare"
    planned: FaultPlanned = msgspec.convert(document, FaultPlanned)
    return planned


@cache
def kind_run(
    kind: str, seed: int = 7, *, after_s: float = AFTER_S, repair_s: float = 0.0
) -> KindRun:
    """One run; equal arguments give equal observations."""
    faults = plan_faults(CLUSTER, [planned_of(kind, repair_s)], seed)
    with tempfile.TemporaryDirectory() as folder:
        simulation = Simulation(
            CLUSTER,
            faults,
            seed=seed,
            folder=Path(folder),
            start_ns=START_NS,
        )
        silent = any(each.shows == "silent" for each in faults[0].evidence)
        ends_ns = faults[0].over_ns + round((SILENCE_S if silent else after_s) * 1e9)
        seen: list[tuple[int, Observation]] = []
        truths = []
        passed_ns = 0
        while passed_ns < ends_ns:
            passed_ns += QUANTUM_NS
            now_ns = START_NS + passed_ns
            truths += simulation.advance(now_ns, lambda node: True)
            for agent in simulation.agents.values():
                seen += [(now_ns, each) for each in agent.witness.carried(now_ns)]
            for collector in simulation.collectors.values():
                polls, collector.observations = collector.observations, []
                seen += [(now_ns, each) for each in polls]
    (truth,) = [each for each in truths if isinstance(each, FaultInjected)]
    return KindRun(truth, tuple(seen))
