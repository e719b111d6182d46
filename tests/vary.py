"""A scenario and a cluster that nobody wrote, drawn by a seed: `python -m tests.scenarios --vary`.

What the release's scenarios hold fixed varies here: kinds and their parameters, times, targets, one
to three faults, decoys beside them, the cluster's size and shape, steps and poll periods. A fault
that is too faint or too short for what the rules promise may be missed; it must not be misread.
"""

from functools import cache
from random import Random
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from nemesis.sim.faults.planned import FaultPlanned
from nemesis.sim.faults.scenario import Expect, Scenario, scenarios
from nemesis.sim.jobs.model import JobModel
from nemesis.sim.topology.cluster import Cluster, ClusterSize
from nemesis.sim.topology.cluster_file import load_cluster
from nemesis.sim.topology.fabric import FabricModel

DECOYS: Final = ("slow-step", "corrected-errors", "kernel-noise", "nic-flap")
NETWORK: Final = ("nic-flap", "nic-dead", "port-down")
SLOW: Final = ("gpu-throttle", "host-contention")
# what attribution's rules promise to see: 5 % above the ranks' own spread of 3 %, in five of eight
# rounds and for eight seconds (decision 0012); below it silence is right
SLOW_PER_MILLE: Final = 120
ROUNDS: Final = 14
GRACE_S: Final = 8.0
AFTER_S: Final = 75.0  # a verdict on a straggler without a cause takes half a minute


class Varied(NamedTuple):
    """One drawn run."""

    cluster: Cluster
    scenario: Scenario
    faint: tuple[bool, ...]
    """Of each fault: whether silence about it is right as well."""
    rounds_ns: int
    """How long slowness must last to be seen."""


def vary(seed: int, *, small: bool = False) -> Varied:
    """The run of a seed; `small`: on at most eight nodes, for a test that must be quick."""
    random = Random(f"{seed}/vary")
    cluster = _cluster(random, small=small)
    planned = _faults(random, cluster)
    rounds_s = ROUNDS * _round_s(cluster)
    stall_s = cluster.job.stall_steps * (cluster.job.step_ms + cluster.job.allreduce_ms) / 1_000
    after_s = AFTER_S + stall_s + (rounds_s if any(each.kind in SLOW for each in planned) else 0.0)
    last_s = max(each.after_s + _lasts_s(each) for each in planned)
    scenario = Scenario(
        name=f"varied-{seed}",
        title=" and ".join(each.kind for each in planned if each.answer != "nothing") or "decoys",
        faults=tuple(planned),
        expect=Expect(goes_on=False),
        duration_s=float(round(last_s + after_s)),
    )
    stops = [each.after_s for each in planned if each.kind == "desync"]
    faint = (
        _is_faint(each, cluster)
        # a job that stands until a person mends the program has no slow steps
        or (each.kind in SLOW and any(s < each.after_s + _ramp_s(each) + rounds_s for s in stops))
        for each in planned
    )
    return Varied(cluster, scenario, tuple(faint), round(rounds_s * 1e9))


def _cluster(random: Random, *, small: bool) -> Cluster:
    model = load_cluster()
    nodes = random.choice((4, 5, 6, 8) if small else (4, 5, 6, 8, 8, 11, 12, 16, 16, 24, 32, 64))
    in_job = nodes if random.random() < 0.3 else random.randrange(max(2, nodes // 2), nodes + 1)
    gpus = random.choice((1, 2, 4, 8) if nodes <= 24 else (1, 2, 4))
    step_ms = round(300 * (10_000 / 300) ** random.random())
    nodes_per_leaf = random.choice((2, 4, 8, 16))
    return Cluster(
        cluster=ClusterSize(
            name=f"varied-{nodes}",
            nodes=nodes,
            sample_period_ms=random.choice((1_000, 2_000, 5_000)),
        ),
        node=model.node.with_gpus(gpus),
        fabric=FabricModel(nodes_per_leaf=nodes_per_leaf, leaf_ports=128),
        jobs=(
            JobModel(
                name=model.job.name,
                nodes=in_job,
                world_min=random.choice((1, gpus, max(1, in_job * gpus // 2))),
                step_ms=step_ms,
                allreduce_ms=max(20, step_ms * random.randrange(3, 30) // 100),
                checkpoint_steps=random.choice((10, 50, 200)),
                stall_steps=random.choice((2, 3, 5, 10)),
                shrink_ms=random.choice((300, 700, 3_000)),
                start_ms=random.choice((5_000, 15_000, 25_000)),
                on_log_loss="wait",
                grace_s=30,
            ),
        ),
    )


def _faults(random: Random, cluster: Cluster) -> list[FaultPlanned]:
    count = min(cluster.world, random.choices((0, 1, 2, 3), (5, 60, 25, 10))[0])
    began_s = random.uniform(4.0, 12.0) + 3 * _round_s(cluster)
    planned: list[FaultPlanned] = []
    for _ in range(count):
        planned.append(_real(random, cluster, began_s, planned))
        began_s += random.choice(
            (0.0, random.uniform(0.0, 1.0), random.uniform(1.0, 15.0), random.uniform(20.0, 90.0))
        )
    last_s = max((each.after_s for each in planned), default=30.0)
    for _ in range(random.choice((0, 0, 1, 2, 3)) if planned else 4):
        planned.append(_decoy(random, cluster, random.uniform(1.0, last_s + 20.0), count))
    return sorted(planned, key=lambda each: each.after_s)


def _real(
    random: Random, cluster: Cluster, after_s: float, others: list[FaultPlanned]
) -> FaultPlanned:
    """A fault of any kind that the release has a scenario for, answered as it says there."""
    known = _known()
    # a job that a person must mend calls nothing more
    stopped = any(each.kind == "desync" for each in others)
    kind = random.choice([each for each in sorted(known) if each != "desync" or not stopped])
    free = [
        (node, index)
        for node in cluster.job_nodes
        for index in range(cluster.ranks_per_node)
        if all((each.node, _index(each)) != (node, index) for each in others)
    ]
    node, index = random.choice(free)
    same = [place for place in free if others and place[0] == others[-1].node]
    if same and random.random() < 0.15:
        node, index = random.choice(same)
    target: dict[str, Any] = {"node": node, "after_s": round(after_s, 3)}
    if kind not in ("node-lost", "host-contention"):
        target["nic" if kind in NETWORK else "gpu"] = index
    return replace(known[kind], **target, **_parameters(kind, random))


@cache
def _known() -> dict[str, FaultPlanned]:
    """The fault of each kind that the release has a scenario for."""
    return {
        fault.kind: fault
        for each in scenarios()
        for fault in each.faults
        if fault.answer != "nothing"
    }


def _index(planned: FaultPlanned) -> int:
    return int(getattr(planned, "nic", getattr(planned, "gpu", 0)))


def _decoy(random: Random, cluster: Cluster, after_s: float, real_count: int) -> FaultPlanned:
    """The spares are taken in their order: the last one stays a spare if there are enough."""
    kind = random.choice(DECOYS)
    may_be_spare = len(cluster.spares) > 3 * real_count
    if kind == "nic-flap" and not may_be_spare:
        kind = "corrected-errors"
    on_spare = kind == "nic-flap" or (
        kind != "slow-step" and may_be_spare and random.random() < 0.2
    )
    parameters: dict[str, dict[str, Any]] = {
        "slow-step": {"delay_ms": random.randrange(1, 2_500)},
        "corrected-errors": {
            "errors_count": _log_int(random, 1, 12),
            "spread_s": round(random.uniform(5.0, 60.0), 1),
        },
        "kernel-noise": {
            "lines_count": random.randrange(1, 21),
            "spread_s": round(random.uniform(0.0, 60.0), 1),
        },
        "nic-flap": {"flaps_count": random.randrange(1, 6), "down_s": 3.0},
    }
    document = {
        "kind": kind,
        "after_s": round(after_s, 3),
        "right": "nothing",
        "node": cluster.spares[-1] if on_spare else random.choice(cluster.job_nodes),
        **parameters[kind],
    }
    decoy: FaultPlanned = msgspec.convert(document, FaultPlanned)
    return decoy


def _parameters(kind: str, random: Random) -> dict[str, Any]:
    """Of a kind of fault, over the ranges that happen (docs/scenarios.md)."""
    lasts_s = random.choice((0.0, 0.0, round(_log(random, 5.0, 240.0), 1)))
    match kind:
        case "ecc-precursor":
            return {
                "fails_after_s": round(_log(random, 5.0, 120.0), 1),
                "errors_count": _log_int(random, 1, 1_000_000),
                "remaps_count": _log_int(random, 1, 512) - 1,
            }
        case "gpu-throttle":
            return {
                "slowdown_per_mille": _log_int(random, 60, 4_000),
                "ramp_s": round(random.uniform(0.0, 60.0), 1),
                "lasts_s": lasts_s,
                "hardware": random.random() < 0.5,
            }
        case "host-contention":
            readings = ("pressure_ppm", "run_queue_wait_ppm", "steal_ppm")
            return {
                "slowdown_per_mille": _log_int(random, 60, 4_000),
                **{each: random.choice((0, random.randrange(800_000))) for each in readings},
                "ramp_s": round(random.uniform(0.0, 60.0), 1),
                "lasts_s": lasts_s,
            }
        case "desync":
            return {"differs_in": random.choice(("operation", "size"))}
        case "nic-flap":
            return {
                "flaps_count": _log_int(random, 1, 9),
                "down_s": round(_log(random, 0.3, 45.0), 1),
                "up_s": round(_log(random, 0.3, 60.0), 1),
            }
        case "nic-dead":
            return {
                "loud_count": random.randrange(1, 9),
                "loud_after_s": round(_log(random, 0.5, 40.0), 1),
                "line_after_s": round(_log(random, 0.2, 40.0), 1),
            }
        case _:
            return {}


def _is_faint(planned: FaultPlanned, cluster: Cluster) -> bool:
    seen: Any = planned
    match planned.kind:
        case "gpu-throttle":
            return seen.slowdown_per_mille < SLOW_PER_MILLE or _is_short(planned, cluster)
        case "host-contention":
            said = max(seen.pressure_ppm, seen.run_queue_wait_ppm, 2 * seen.steal_ppm)
            weak = seen.slowdown_per_mille < 2 * SLOW_PER_MILLE or said < SLOW_PER_MILLE * 1_000
            return weak or _is_short(planned, cluster)
        case "desync":
            return cluster.world == 2  # nobody is the odd one of two
        case "nic-flap":
            return bool(seen.flaps_count == 1 and seen.down_s <= GRACE_S)
        case _:
            return False


def _is_short(planned: Any, cluster: Cluster) -> bool:
    return bool(planned.lasts_s and planned.lasts_s < ROUNDS * _round_s(cluster))


def _ramp_s(planned: Any) -> float:
    return float(planned.ramp_s)


def _round_s(cluster: Cluster) -> float:
    """At most so long lie between two steps of which every node has told."""
    job = cluster.job
    return (job.step_ms + job.allreduce_ms + cluster.cluster.sample_period_ms) / 1_000


def _lasts_s(planned: FaultPlanned) -> float:
    seen: Any = planned
    match planned.kind:
        case "ecc-precursor":
            return float(seen.fails_after_s)
        case "gpu-throttle" | "host-contention":
            return float(seen.ramp_s + seen.lasts_s)
        case "nic-flap":
            return float(seen.flaps_count * (seen.down_s + seen.up_s))
        case "nic-dead":
            return float(max(seen.loud_after_s, seen.line_after_s))
        case _:
            return 0.0


def _log(random: Random, low: float, high: float) -> float:
    """As likely between 1 and 10 as between 10 and 100."""
    return float(low * (high / low) ** random.random())


def _log_int(random: Random, low: int, high: int) -> int:
    return round(_log(random, low, high))
