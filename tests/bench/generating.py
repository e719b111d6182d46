"""The simulator at scale: how fast it makes telemetry, and what a large cluster takes of memory.

Each run is a process of its own on one core: all sections, encoded, and then thrown away.
"""

import asyncio
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from nemesis.sim.simulation import Simulation
from nemesis.sim.told import message_of, told
from nemesis.sim.topology.cluster import Cluster
from nemesis.sim.topology.cluster_file import cluster_of
from tests.bench.row import AtLeast, AtMost, Row, median

START_NS = 1_800_000_000_000_000_000
SECOND_NS = 1_000_000_000
QUANTUM_NS = 500_000_000
WARM_UP_S = 20
MEASURED_S = 60
REPETITIONS = 5
SPEED_GOAL = 50
MEMORY_GOAL_MIB = 4_096
JOBS_COUNT = 10
NODES_COUNT, NODES_COUNT_MAX = 2_048, 12_500


class Generated(msgspec.Struct):
    """What one process reached."""

    speed: float
    """Simulated seconds in one of CPU time."""
    facts_per_s: float
    bytes_per_fact: float
    memory_mib: float


def cluster_at_scale(nodes: int) -> Cluster:
    """DGX H100 at 5 s polls on a rail-optimised fabric of three tiers, ten jobs on all of them."""
    job = {
        "nodes": nodes // JOBS_COUNT,
        "world_min": 1,
        "step_ms": 4_500,
        "allreduce_ms": 500,
        "checkpoint_steps": 50,
        "stall_steps": 3,
        "shrink_ms": 700,
        "start_ms": 20_000,
        "on_log_loss": "wait",
        "grace_s": 30,
    }
    return cluster_of(
        {
            "cluster": {"name": "scale", "nodes": nodes, "sample_period_ms": 5_000},
            "node": {"kind": "dgx-h100"},
            "fabric": {
                "kind": "rail-optimised",
                "transport": "roce",
                "groups_per_pod": 8,
                "spines": 32,
                "cores": 64,
                "core_oversubscription": 7.0,
            },
            "job": [{"name": f"job{at}", **job} for at in range(JOBS_COUNT)],
        }
    )


def simulation_of(cluster: Cluster, folder: Path, start_ns: int) -> Simulation:
    """A cluster in which nothing goes wrong."""
    return Simulation(cluster, [], seed=1, folder=folder, start_ns=start_ns)


async def measure() -> list[Row]:
    """16,384 GPUs for speed, 100,000 for memory."""
    runs = [await generated(NODES_COUNT, MEASURED_S) for _ in range(REPETITIONS)]
    largest = await generated(NODES_COUNT_MAX, 10)
    middle = sorted(runs, key=lambda run: run.speed)[len(runs) // 2]
    how = (
        f"{NODES_COUNT * 8:,} GPUs, {JOBS_COUNT} jobs, 5 s polls: {middle.facts_per_s:,.0f} "
        f"facts/s of {middle.bytes_per_fact:,.0f} bytes; median of {REPETITIONS}; simulated"
    )
    speed = median([run.speed for run in runs])
    memory = f"{NODES_COUNT_MAX * 8:,} GPUs, {largest.speed:.1f}x real time; simulated"
    return [
        Row("S1", "generator, one core", speed, "x real", how, AtLeast(SPEED_GOAL)),
        Row("S2", "generator, memory", largest.memory_mib, "MiB", memory, AtMost(MEMORY_GOAL_MIB)),
    ]


async def generated(nodes: int, seconds: int) -> Generated:
    """One run in a process of its own."""
    process = await asyncio.create_subprocess_exec(
        *[sys.executable, "-m", "tests.bench.generating", str(nodes), str(seconds)],
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    return msgspec.json.decode(out, type=Generated)


def generate(nodes: int, seconds: int) -> Generated:
    """Let a cluster run on one core; its telemetry goes nowhere."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as folder:
        simulation = simulation_of(cluster_at_scale(nodes), Path(folder), START_NS)
        now_ns = START_NS
        facts = sent = 0
        began_s = 0.0
        for second in range(-WARM_UP_S, seconds):
            if second == 0:
                facts = sent = 0
                began_s = time.process_time()
            for _ in range(SECOND_NS // QUANTUM_NS):
                now_ns += QUANTUM_NS
                simulation.advance(now_ns, lambda node: True)
                for observation in told(simulation, now_ns):
                    facts += 1
                    sent += len(message_of(observation).payload)
        elapsed_s = time.process_time() - began_s
    return Generated(
        speed=seconds / elapsed_s,
        facts_per_s=facts / elapsed_s,
        bytes_per_fact=sent / facts,
        memory_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    )


if __name__ == "__main__":
    sys.stdout.write(msgspec.json.encode(generate(int(sys.argv[1]), int(sys.argv[2]))).decode())
