"""From what a scenario plans to what happens: targets drawn by the seed, symptoms over time.

Pure: planned faults, a cluster and a seed give the faults of a run. How each kind goes is told in
gpu.py, gpu_memory.py, gpu_slow.py, nvlink.py, network.py, fabric.py, routes.py, pauses.py, host.py,
misset.py, storage.py, program.py, decoys.py and defects.py.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final

from msgspec.structs import replace

from nemesis.sim.faults import (
    decoys,
    defects,
    fabric,
    gpu,
    gpu_memory,
    gpu_slow,
    host,
    misset,
    network,
    nvlink,
    pauses,
    program,
    routes,
    storage,
)
from nemesis.sim.faults.course import Course
from nemesis.sim.faults.plan import Planned, Right
from nemesis.sim.faults.planned import FaultPlanned
from nemesis.sim.faults.scenario import BadScenarioError
from nemesis.sim.faults.symptoms import Fault, NodeLost, NodeReturned, SwitchLost, SwitchReturned
from nemesis.sim.faults.target import MS, Target, draw_target
from nemesis.sim.topology.cluster import Cluster

DAY_S: Final = 86_400.0
REPEATS_MAX: Final = 10_000
BOOT_NS: Final = 30_000 * MS  # modelled: minutes on a real node

_COURSES: Mapping[str, Callable[[Any, Target, Random], Course]] = {
    "xid79": gpu.xid79,
    "gpu-aer-fatal": gpu.gpu_aer_fatal,
    "xid48": gpu_memory.xid48,
    "ecc-contained": gpu_memory.ecc_contained,
    "ecc-uncontained": gpu_memory.ecc_uncontained,
    "row-remap-pending": gpu_memory.row_remap_pending,
    "row-remap-failed": gpu_memory.row_remap_failed,
    "corrected-storm": gpu_memory.corrected_storm,
    "ecc-precursor": gpu_memory.ecc_precursor,
    "gsp-hang": gpu.gsp_hang,
    "gpu-throttle": gpu_slow.gpu_throttle,
    "power-straggler": gpu_slow.power_straggler,
    "clock-straggler": gpu_slow.clock_straggler,
    "pcie-degraded": gpu_slow.pcie_degraded,
    "nvlink-flap": nvlink.nvlink_flap,
    "nvlink5-down": nvlink.nvlink5_down,
    "nvswitch-fatal": nvlink.nvswitch_fatal,
    "silent-corruption": gpu.silent_corruption,
    "nic-flap": network.nic_flap,
    "nic-dead": network.nic_dead,
    "nic-down": network.nic_down,
    "port-down": network.port_down,
    "optic-degraded": network.optic_degraded,
    "switch-down": fabric.switch_down,
    "spine-down": fabric.spine_down,
    "route-lost": routes.route_lost,
    "gid-wrong": fabric.gid_wrong,
    "mtu-wrong": fabric.mtu_wrong,
    "pfc-wrong": fabric.pfc_wrong,
    "pause-storm": pauses.pause_storm,
    "pause-deadlock": pauses.pause_deadlock,
    "rack-power": host.rack_power,
    "node-lost": host.node_lost,
    "host-hang": host.host_hang,
    "host-contention": host.host_contention,
    "cpu-steal": host.cpu_steal,
    "numa-misplaced": host.numa_misplaced,
    "thp-fallback": host.thp_fallback,
    "disk-stall": storage.disk_stall,
    "oom-kill": storage.oom_kill,
    "loader-killed": storage.loader_killed,
    "loader-stall": storage.loader_stall,
    "checkpoint-stall": storage.checkpoint_stall,
    "dimm-uncorrectable": storage.dimm_uncorrectable,
    "host-misset": misset.host_misset,
    "clock-skew": host.clock_skew,
    "rank-exit": program.rank_exit,
    "desync": program.desync,
    "illegal-access": program.illegal_access,
    "context-error": program.context_error,
    "rank-oom": program.rank_oom,
    "nan-loss": program.nan_loss,
    "nccl-version": program.nccl_version,
    "slow-step": decoys.slow_step,
    "lone-work": decoys.lone_work,
    "corrected-errors": decoys.corrected_errors,
    "kernel-noise": decoys.kernel_noise,
    "user-xid": decoys.user_xid,
    "teardown-xids": decoys.teardown_xids,
    "nic-noise": decoys.nic_noise,
    "noisy-neighbour": decoys.noisy_neighbour,
    "maintenance-reboot": decoys.maintenance_reboot,
    "evidence-clock-off": defects.clock_offset,
    "evidence-late": defects.evidence_late,
    "evidence-lost": defects.evidence_lost,
    "evidence-doubled": defects.evidence_doubled,
    "polls-missed": defects.polls_missed,
    "single-snapshot": defects.single_snapshot,
    "kernel-log-missing": defects.no_kernel_lines,
    "dump-missing": defects.dump_missing,
}


def plan_faults(
    cluster: Cluster, faults: Sequence[FaultPlanned], seed: int, *, lasts_s: float = 0.0
) -> list[Fault]:
    """The faults of a run, targets drawn by the seed where the scenario names none.

    `lasts_s`: how long the run takes, for faults that come at a rate.

    Raises:
        BadScenarioError: a target that the cluster does not have, or a name that is not one.
    """
    random = Random(f"{seed}/faults")
    found = [
        _fault(cluster, each, random)
        for planned in faults
        for each in _repeated(planned, cluster, lasts_s, random)
    ]
    if len(faults) < len(found):
        found.sort(key=lambda each: each.began_ns)
    return found


def _repeated(
    planned: Planned, cluster: Cluster, lasts_s: float, random: Random
) -> Iterator[Planned]:
    """One fault, or as many as it says, or as come at its rate."""
    if not planned.per_node_day:
        for number in range(planned.times):
            yield replace(planned, after_s=planned.after_s + number * planned.every_s)
        return
    per_s = planned.per_node_day * len(cluster.node_names) / DAY_S
    at_s = planned.after_s
    for _ in range(REPEATS_MAX):
        at_s += random.expovariate(per_s)
        if at_s >= lasts_s:
            return
        yield replace(planned, after_s=at_s)


def _fault(cluster: Cluster, planned: Planned, random: Random) -> Fault:
    target = draw_target(cluster, planned, random)
    course = _COURSES[planned.kind](planned, target, random)
    if planned.repair_s and course.ends_ns < 0:
        _mend(course, round(planned.repair_s * 1e9))
    names = target.names() | course.names
    answer = planned.answer
    right = answer if isinstance(answer, Right) else None
    culprit = next(iter(names[planned.SEAT]), course.component)
    began_ns = round(planned.after_s * 1000) * MS
    components = _named(right.components, names) if right else ()
    harmless = _named(right.harmless, names) if right else ()
    guilty = {culprit, *components} if right else set()
    return Fault(
        kind=planned.kind,
        began_ns=began_ns,
        onset_ns=began_ns + course.onset_ns,
        over_ns=began_ns + max(each.after_ns for each in course.symptoms),
        node=course.node,
        culprit=culprit,
        components=components,
        harmless=tuple(each for each in harmless if each not in components),
        classes=right.classes if right else (),
        lost_ranks=course.lost_ranks,
        actions=right.actions if right else (),
        stalls=course.stalls,
        symptoms=tuple(course.symptoms),
        chain=tuple(sorted(course.causes, key=lambda each: each.after_ns)),
        evidence=tuple(course.evidence),
        innocent=tuple(each for each in course.innocent if each not in guilty),
        repaired_ns=began_ns + course.ends_ns if course.ends_ns >= 0 else -1,
    )


def _mend(course: Course, at_ns: int) -> None:
    """What was lost is replaced: a switch forwards again, a node is booted with sound parts.

    What would have shown only later never comes.
    """
    course.symptoms = [each for each in course.symptoms if each.after_ns < at_ns]
    course.causes = [each for each in course.causes if each.after_ns < at_ns]
    course.evidence = [each for each in course.evidence if each.after_ns < at_ns]
    effects = [(each.node, each.effect) for each in course.symptoms]
    switches = [(node, effect.switch) for node, effect in effects if isinstance(effect, SwitchLost)]
    for node, switch in switches:
        course.at(at_ns, SwitchReturned(switch), node=node)
    if not switches:
        gone = [node for node, effect in effects if isinstance(effect, NodeLost)]
        for node in gone or [course.node]:
            course.at(at_ns, NodeLost(), node=node)
            course.at(at_ns + BOOT_NS, NodeReturned(), node=node)
    course.ends_ns = at_ns + (0 if switches else BOOT_NS)


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
    return tuple(dict.fromkeys(found))
