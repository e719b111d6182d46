"""From what a scenario plans to what happens: targets drawn by the seed, symptoms over time.

Pure: planned faults, a cluster and a seed give the faults of a run. What each kind looks like is
told in gpu.py, network.py, host.py and decoys.py.
"""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final

from nemesis.sim.faults import decoys, gpu, host, network
from nemesis.sim.faults.planned import FaultPlanned, Right
from nemesis.sim.faults.scenario import BadScenarioError
from nemesis.sim.faults.symptoms import Fault
from nemesis.sim.faults.target import MS, Course, Target, draw_target
from nemesis.sim.topology.cluster import Cluster

_COURSES: Mapping[str, Callable[[Any, Target, Random], Course]] = {
    "xid79": gpu.xid79,
    "xid48": gpu.xid48,
    "ecc-precursor": gpu.ecc_precursor,
    "gpu-throttle": gpu.gpu_throttle,
    "rank-exit": host.rank_exit,
    "node-lost": host.node_lost,
    "host-contention": host.host_contention,
    "desync": host.desync,
    "nic-flap": network.nic_flap,
    "nic-dead": network.nic_dead,
    "port-down": network.port_down,
    "slow-step": decoys.slow_step,
    "corrected-errors": decoys.corrected_errors,
    "kernel-noise": decoys.kernel_noise,
}
_SEATS: Final[Mapping[str, str]] = {
    "corrected-errors": "gpu",
    "ecc-precursor": "gpu",
    "gpu-throttle": "gpu",
    "nic-dead": "nic",
    "nic-flap": "nic",
    "port-down": "port",
    "desync": "rank",
    "rank-exit": "rank",
    "slow-step": "rank",
    "xid48": "gpu",
    "xid79": "gpu",
}
"""What of its target a kind of fault sits in; else it is the node."""


def plan_faults(cluster: Cluster, faults: Sequence[FaultPlanned], seed: int) -> list[Fault]:
    """The faults of a run, targets drawn by the seed where the scenario names none.

    Raises:
        BadScenarioError: a target that the cluster does not have, or a name that is not one.
    """
    random = Random(f"{seed}/faults")
    return [_fault(cluster, each, random) for each in faults]


def _fault(cluster: Cluster, planned: FaultPlanned, random: Random) -> Fault:
    target = draw_target(cluster, planned, random)
    course = _COURSES[planned.kind](planned, target, random)
    names = target.names()
    right = planned.right if isinstance(planned.right, Right) else None
    (culprit,) = names[_SEATS.get(planned.kind, "node")]
    began_ns = round(planned.after_s * 1000) * MS
    return Fault(
        kind=planned.kind,
        began_ns=began_ns,
        onset_ns=began_ns + course.onset_ns,
        over_ns=began_ns + max(each.after_ns for each in course.symptoms),
        node=target.node,
        culprit=culprit,
        components=_named(right.components, names) if right else (),
        harmless=_named(right.harmless, names) if right else (),
        classes=right.classes if right else (),
        lost_ranks=course.lost_ranks,
        actions=right.actions if right else (),
        stalls=course.stalls,
        symptoms=tuple(course.symptoms),
    )


def _named(patterns: Sequence[str], names: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Component names with their placeholders filled in."""
    found: list[str] = []
    for pattern in patterns:
        word = pattern.removeprefix("{").removesuffix("}")
        if word != pattern and word in names:
            found += names[word]
            continue
        try:
            found.append(pattern.format(**{name: each[0] for name, each in names.items() if each}))
        except (KeyError, IndexError, ValueError) as error:
            known = " ".join(f"{{{name}}}" for name in names)
            raise BadScenarioError(
                f"fault.right: {pattern!r}: no such name, expected a component with any of {known}"
            ) from error
    return tuple(found)
