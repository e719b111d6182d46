"""A run that nobody wrote: cluster, faults and decoys of a suite, drawn by a seed.

Pure. Parameters of a fault lie by a factor above or below their defaults, as far as their range
allows; targets are left to the seed of the run. When something strikes, and where nothing does, is
decided before anything runs.
"""

from collections.abc import Sequence
from random import Random
from typing import Any, Final, Literal, NamedTuple, get_args, get_origin

import msgspec
from msgspec.structs import replace

from nemesis.sim.faults.courses import plan_faults
from nemesis.sim.faults.plan import SPARE, Planned
from nemesis.sim.faults.planned import FaultPlanned
from nemesis.sim.faults.rates import distribution_named, draw_kind
from nemesis.sim.faults.scenario import ANYTHING, BadScenarioError, Scenario
from nemesis.sim.faults.symptoms import Symptom
from nemesis.sim.params import Params
from nemesis.sim.topology.cluster import Cluster, ClusterSize
from nemesis.sim.topology.cluster_file import cluster_of, load_cluster
from nemesis.sim.topology.node import node_kinds
from nemesis.sim.truth.defects import draw_defects, scaled
from nemesis.sim.truth.suites import BadSuiteError, Decoys, Layout, Mix, Suite, Topologies

BEGIN_S: Final = (6.0, 14.0)
"""When the first fault strikes: processors have seen some steps."""
DRAWS_MAX: Final = 100
REAL_KINDS: Final = tuple(
    str(kind.__struct_config__.tag) for kind in get_args(FaultPlanned) if kind.RIGHT != "nothing"
)
"""Kinds of faults that are none of decoys and defects of evidence."""
_GIVEN: Final = frozenset(Planned.__struct_fields__)
"""What a parameter is not: what all kinds have."""


class Drawn(NamedTuple):
    """One run."""

    cluster: Cluster
    scenario: Scenario
    defects: tuple[Symptom, ...]


def draw(suite: Suite, seed: int, params: Params) -> Drawn:
    """The run of a seed."""
    random = Random(f"{suite.name}/{seed}/drawn")
    cluster = draw_cluster(suite.topologies, random)
    poll_s = cluster.cluster.sample_period_ms / 1_000
    planned = _faults(suite.faults, cluster, random, random.uniform(*BEGIN_S) + 3 * poll_s)
    last_s = max((each.after_s + lasts_s(each) for each in planned), default=BEGIN_S[1])
    planned += _decoys(suite.decoys, cluster, random, last_s)
    last_s = max([last_s, *(each.after_s + lasts_s(each) for each in planned)])
    scenario = Scenario(
        name=f"{suite.name}-{seed}",
        title=" and ".join(each.kind for each in planned if each.answer != "nothing") or "decoys",
        faults=tuple(sorted(planned, key=lambda each: each.after_s)),
        expect=ANYTHING,
        duration_s=float(round(last_s + suite.after_s + 8 * poll_s + _stall_s(cluster))),
    )
    strikes_s = min((each.after_s for each in planned), default=BEGIN_S[0])
    rates = scaled(params.defects, suite.defects)
    defects = draw_defects(cluster, rates, seed=seed, strikes_s=strikes_s)
    # last of all, so that a suite's watchdogs change nothing else about its runs
    job = replace(cluster.job, timeout_s=random.choice(suite.topologies.timeout_s))
    cluster = replace(cluster, jobs=(job,))
    return Drawn(cluster, scenario, defects)


def draw_cluster(shapes: Topologies, random: Random) -> Cluster:
    """A cluster of one of these shapes, with one job.

    Raises:
        BadClusterError: a fabric that does not fit the nodes.
    """
    nodes, kind = random.choice(shapes.nodes), random.choice(shapes.kinds)
    in_job = max(2, nodes * random.randint(*shapes.job_share_pct) // 100)
    step_ms = round(_log(random, *shapes.step_ms))
    world = min(nodes, in_job) * len(node_kinds()[kind].gpus)
    layout = random.choice([each for each in shapes.layouts if each.fits(world)] or [Layout()])
    job = replace(
        load_cluster().job,
        nodes=min(nodes, in_job),
        world_min=1,
        step_ms=step_ms,
        allreduce_ms=max(20, step_ms // 9),
        tp=layout.tp,
        cp=layout.cp,
        pp=layout.pp,
        ep=layout.ep,
    )
    size = ClusterSize(
        name=f"drawn-{nodes}-{kind}",
        nodes=nodes,
        sample_period_ms=random.choice(shapes.poll_ms),
    )
    return cluster_of(
        {
            "cluster": msgspec.to_builtins(size),
            "node": {"kind": kind},
            "fabric": msgspec.to_builtins(random.choice(shapes.fabrics)),
            "job": msgspec.to_builtins(job),
        }
    )


def _faults(mix: Mix, cluster: Cluster, random: Random, began_s: float) -> list[FaultPlanned]:
    planned: list[FaultPlanned] = []
    for _ in range(_count(mix.counts, random)):
        fault = _fault(mix, cluster, random)
        planned.append(replace(fault, after_s=round(began_s, 3)))
        began_s += random.uniform(*mix.apart_s)
    return planned


def _fault(mix: Mix, cluster: Cluster, random: Random) -> FaultPlanned:
    """A fault that this cluster can have: one without spines loses none.

    Raises:
        BadSuiteError: it can have none of them.
    """
    for _ in range(DRAWS_MAX):
        fault = fault_of(_kind(mix, random))
        fault = replace(fault, **draw_parameters(fault, mix.spread, random))
        try:
            plan_faults(cluster, [fault], 0)
        except BadScenarioError:
            continue
        return fault
    raise BadSuiteError(f"none of these kinds fits {cluster.cluster.name}: {', '.join(mix.kinds)}")


def _kind(mix: Mix, random: Random) -> str:
    if mix.rates:
        return draw_kind(distribution_named(mix.rates), random)[1]
    kinds = mix.kinds or REAL_KINDS
    return random.choice([each for each in kinds if each not in mix.without])


def _decoys(mix: Decoys, cluster: Cluster, random: Random, last_s: float) -> list[FaultPlanned]:
    kinds = [*mix.kinds, *(mix.on_spares if cluster.spares else ())]
    planned: list[FaultPlanned] = []
    for _ in range(_count(mix.counts, random) if kinds else 0):
        decoy = fault_of(random.choice(kinds))
        node = SPARE if decoy.kind in mix.on_spares else ""
        after_s = round(random.uniform(1.0, last_s + 20.0), 3)
        planned.append(replace(decoy, after_s=after_s, node=node))
    return planned


def fault_of(kind: str) -> FaultPlanned:
    """A fault of this kind, as it is where nothing else is said."""
    fault: FaultPlanned = msgspec.convert({"kind": kind, "after_s": 0.0}, FaultPlanned)
    return fault


def draw_parameters(
    fault: FaultPlanned, spread: tuple[float, float], random: Random
) -> dict[str, Any]:
    """What a kind of fault may vary in: a number by a factor, a choice evenly.

    Numbers whose default is 0 or less are targets, or mean "until the end": they stay.
    """
    drawn: dict[str, Any] = {}
    for field in msgspec.structs.fields(fault):
        if field.name in _GIVEN or field.default in (msgspec.NODEFAULT, ""):
            continue
        if isinstance(field.default, bool):
            drawn[field.name] = random.random() < 0.5
        elif isinstance(field.default, int | float) and field.default > 0:
            factor = _log(random, *spread) ** random.choice((-1, 1))
            drawn[field.name] = _within(field, field.default * factor)
        elif get_origin(field.type) is Literal:
            drawn[field.name] = random.choice(get_args(field.type))
    return drawn


def _within(field: msgspec.structs.FieldInfo, value: float) -> float | int:
    """The nearest value that the field's range allows."""
    kind: Any = msgspec.inspect.type_info(field.type)
    low = kind.ge if kind.ge is not None else value
    high = kind.le if kind.le is not None else value
    near = min(max(value, low), high)
    return round(near) if isinstance(kind, msgspec.inspect.IntType) else round(near, 1)


def lasts_s(fault: FaultPlanned) -> float:
    """Until its last symptom, at most: what its times add up to."""
    seen: Any = fault
    once_s = sum(
        float(getattr(seen, name))
        for name in seen.__struct_fields__
        if name.endswith("_s") and name not in _GIVEN
    )
    return once_s * max([1, *(int(getattr(seen, name, 1)) for name in ("flaps_count",))])


def _stall_s(cluster: Cluster) -> float:
    job = cluster.job
    return job.stall_steps * (job.step_ms + job.allreduce_ms) / 1_000


def _count(weights: Sequence[int], random: Random) -> int:
    return random.choices(range(len(weights)), weights)[0]


def _log(random: Random, low: float, high: float) -> float:
    """As likely between 1 and 10 as between 10 and 100."""
    return float(low * (high / low) ** random.random())
