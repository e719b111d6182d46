"""Why ranks of a job are slow: the GPU that lowered its clock, the host that is busy, or nobody.

Why: a straggler costs as much as a dead rank and prints nothing; and a slow rank may run a longer
part of the program and be innocent. How: slow ranks of a node whose GPUs lowered their clocks in
most polls since then are slowed by those GPUs; if they did not, and their host is under pressure
that other hosts of the job do not have, by the host. Without either, a rank that became slow is
told of and nobody blamed; one that was always slower is not even told of.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from nemesis.processors.attribution import wanted
from nemesis.processors.attribution.device_states import DeviceStates
from nemesis.processors.attribution.findings import STRAGGLER, UNEXPLAINED, Finding, Proof
from nemesis.processors.attribution.inventory import Inventory
from nemesis.processors.attribution.slowness import HOST_SAYS, LIMITS_PPM, NodeSlowness, Slowness
from nemesis.processors.attribution.step_states import StepStates
from nemesis.processors.attribution.steps import SUSTAINED_NS, SlowRank, Steps
from nemesis.schemas import components
from nemesis.schemas.codes import FaultClass

POLLS_MIN: Final = 3
SHARE_MIN_PPM: Final = 500_000  # of the polls: readings are averages and lag behind
PEER_FACTOR: Final = 3  # a host is busy if it is so many times as busy as the job's middle one
UNEXPLAINED_NS: Final = 3 * SUSTAINED_NS  # evidence of a cause may come later than the slowness
PARTS_MAX: Final = 2  # more GPUs of one node at once: what they share is at fault
NODES_MAX: Final = 2  # more nodes without a cause of their own: that is not about nodes
NAMED_MAX: Final = 8
MISSING: Final = (wanted.CLOCK_REASONS, wanted.HOST_PRESSURE, wanted.PROFILE)


class SlowFinding(NamedTuple):
    """What slows the ranks of one node."""

    job: str
    node: str
    finding: Finding


def judge_slowness(
    steps: Steps,
    slowness: Slowness,
    inventory: Inventory,
    now_ns: int,
    *,
    states: StepStates,
    devices: DeviceStates,
    disks: Mapping[str, Proof],
) -> list[SlowFinding]:
    """What is known of every job's slow ranks, one a node; `disks`: nodes with failing ones."""
    found: list[SlowFinding] = []
    for job in sorted(steps.jobs):
        if not steps.is_watched(job):
            continue
        by_node: dict[str, list[SlowRank]] = {}
        for slow in steps.slow_ranks(job, now_ns):
            by_node.setdefault(inventory.node_of_rank(job, slow.rank), []).append(slow)
        by_node.pop("", None)
        for node, ranks in sorted(by_node.items()):
            finding = _waits(job, ranks, states)
            if finding is None:
                finding = _of_node(job, node, ranks, slowness, inventory)
            if finding is None:
                finding = _narrow(job, node, ranks, devices, inventory)
            if finding is None and node in disks:
                finding = _on_disk(job, node, disks[node])
            if finding is None:
                finding = _without_cause(job, node, ranks, len(by_node), now_ns)
            if finding is not None:
                found.append(SlowFinding(job, node, finding))
    return found


def _waits(job: str, ranks: Sequence[SlowRank], states: StepStates) -> Finding | None:
    """Ranks that spend what they are late by waiting for data, or in a save, as they time it."""
    states.watch(job, [slow.rank for slow in ranks])
    late_ns = sum(slow.own_ns - slow.median_ns for slow in ranks)
    waits = [states.waits_of(job, slow.rank) for slow in ranks]
    for at, fault_class, how in _WAITS:
        told = [states.proof_of(job, slow.rank, how) for slow in ranks[:NAMED_MAX]]
        if 2 * sum(each[at] for each in waits) < late_ns or None in told:
            continue  # without a fact that shows it nothing is said
        return Finding(
            verdict="attributed",
            fault_class=fault_class,
            reason=f"{_ranks(ranks)} of {job} {how}, and all others wait for it in every step",
            confidence_ppm=850_000,
            level=STRAGGLER,
            culprits=tuple(sorted(components.rank(job, slow.rank) for slow in ranks)),
            proofs=tuple(each for each in told if each is not None),
            jobs=(job,),
            missing=(wanted.PYTHON_STACK, wanted.HOST_PRESSURE),
        )
    return None


_WAITS: Final[tuple[tuple[int, FaultClass, str], ...]] = (
    (0, "dataloader", "waits for its next batch"),
    (1, "storage", "is slow to save"),
)


def _of_node(
    job: str, node: str, ranks: Sequence[SlowRank], slowness: Slowness, inventory: Inventory
) -> Finding | None:
    seen = slowness.nodes.get(node)
    if seen is None or seen.polls_count < POLLS_MIN:
        return None
    rows = [_row(job, slow, node, inventory) for slow in ranks]
    throttled = [row for row in rows if _is_throttled(seen, row)]
    if len(throttled) == len(ranks):
        return _gpus(job, ranks, throttled, seen, inventory)
    busy = _busy(seen, slowness)
    if busy:
        return _host(job, node, busy, seen)
    if throttled:
        return _gpus(job, ranks, throttled, seen, inventory)
    return None


def _narrow(
    job: str,
    node: str,
    ranks: Sequence[SlowRank],
    devices: DeviceStates,
    inventory: Inventory,
) -> Finding | None:
    """Ranks whose GPUs have fewer PCIe lanes than their neighbours'."""
    narrow = devices.narrow.get(node, {})
    rows = [_row(job, slow, node, inventory) for slow in ranks]
    if not rows or not all(row in narrow for row in rows):
        return None
    gpus = sorted(components.gpu(node, inventory.gpus[node][row]) for row in rows)
    return Finding(
        verdict="attributed",
        fault_class="straggler.gpu",
        reason=f"{' and '.join(gpus[:PARTS_MAX])} has fewer PCIe lanes than its neighbours, and"
        f" {job} waits for {_ranks(ranks)} in every step",
        confidence_ppm=850_000,
        level=STRAGGLER,
        culprits=tuple(gpus) if len(gpus) <= PARTS_MAX else (components.node(node),),
        proofs=tuple(narrow[row] for row in rows[:PARTS_MAX]),
        jobs=(job,),
    )


def _row(job: str, slow: SlowRank, node: str, inventory: Inventory) -> int:
    """The GPU of a rank, by its place in the node's inventory; -1 where it is not known."""
    gpu = inventory.gpu_of_rank(job, slow.rank).rpartition("/")[2]
    gpus = inventory.gpus.get(node, [])
    return gpus.index(gpu) if gpu in gpus else -1


def _is_throttled(seen: NodeSlowness, row: int) -> bool:
    gpu = seen.gpus.get(row)
    return gpu is not None and _is_steady(gpu.polls_count, seen.polls_count)


def _is_steady(count: int, polls_count: int) -> bool:
    return count >= POLLS_MIN and count * 1_000_000 >= polls_count * SHARE_MIN_PPM


def _busy(seen: NodeSlowness, slowness: Slowness) -> list[str]:
    """The channels in which a host is steadily above its limit and above its job's other hosts."""
    busy: list[str] = []
    for name in LIMITS_PPM:
        if not _is_steady(seen.host_count.get(name, 0), seen.polls_count):
            continue
        readings = sorted(
            each.host[name]
            for each in slowness.nodes.values()
            if each.job == seen.job and name in each.host
        )
        if seen.host[name] > PEER_FACTOR * readings[(len(readings) - 1) // 2]:
            busy.append(name)
    return busy


def _gpus(
    job: str,
    ranks: Sequence[SlowRank],
    rows: Sequence[int],
    seen: NodeSlowness,
    inventory: Inventory,
) -> Finding:
    node = inventory.node_of_rank(job, ranks[0].rank)
    gpus = [components.gpu(node, inventory.gpus[node][row]) for row in rows]
    heat = all(2 * seen.gpus[row].thermal_count >= seen.gpus[row].polls_count for row in rows)
    fault_class: FaultClass = "gpu.thermal" if heat else "straggler.gpu"
    why = "throttles for heat" if heat else "holds its clocks down, unlike its neighbours"
    culprits = sorted(gpus) if len(gpus) <= PARTS_MAX else [components.node(node)]
    what = " and ".join(culprits) if len(gpus) <= PARTS_MAX else f"{len(gpus)} GPUs of {node}"
    return Finding(
        verdict="attributed",
        fault_class=fault_class,
        reason=f"{what} {why}, and {job} waits for {_ranks(ranks)} in every step",
        confidence_ppm=900_000,
        level=STRAGGLER,
        culprits=tuple(culprits),
        proofs=tuple(seen.gpus[row].proof for row in rows[:PARTS_MAX]),
        jobs=(job,),
    )


def _host(job: str, node: str, busy: Sequence[str], seen: NodeSlowness) -> Finding:
    assert seen.host_proof is not None
    how = " and ".join(HOST_SAYS[name] for name in busy[:2])
    return Finding(
        verdict="attributed",
        fault_class="straggler.host",
        reason=f"on {node} {how}, and {job} waits for its ranks there in every step",
        confidence_ppm=900_000,
        level=STRAGGLER,
        culprits=(components.node(node),),
        proofs=(seen.host_proof,),
        jobs=(job,),
        missing=(wanted.HOST_PROCESSES,),
    )


def _on_disk(job: str, node: str, proof: Proof) -> Finding:
    return Finding(
        verdict="attributed",
        fault_class="straggler.host",
        reason=f"on {node} {proof.says}, and {job} waits for its ranks there in every step",
        confidence_ppm=800_000,
        level=STRAGGLER,
        culprits=(components.node(node),),
        proofs=(proof,),
        jobs=(job,),
        missing=(wanted.HOST_PRESSURE,),
    )


def _without_cause(
    job: str, node: str, ranks: Sequence[SlowRank], nodes_count: int, now_ns: int
) -> Finding | None:
    new = [slow for slow in ranks if slow.is_new and now_ns - slow.since_ns >= UNEXPLAINED_NS]
    if not new or nodes_count > NODES_MAX:
        return None
    return Finding(
        verdict="insufficient",
        fault_class="unknown",
        reason=f"{job} waits for its ranks on {node} in every step, and nothing says why",
        confidence_ppm=0,
        level=UNEXPLAINED,
        missing=MISSING,
        jobs=(job,),
    )


def _ranks(ranks: Sequence[SlowRank]) -> str:
    named = ", ".join(str(slow.rank) for slow in ranks[:NAMED_MAX])
    more = f" and {len(ranks) - NAMED_MAX} more" if len(ranks) > NAMED_MAX else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {named}{more}"
