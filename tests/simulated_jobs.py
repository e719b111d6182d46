"""Jobs of any layout for tests, on nodes of eight GPUs."""

from typing import Any

from nemesis.sim.jobs.job import Job
from nemesis.sim.jobs.model import JobModel
from nemesis.sim.jobs.network import Network

MS = 1_000_000
SECOND = 1_000 * MS


def model(nodes: int, **layout: Any) -> JobModel:
    fields: dict[str, Any] = {
        "name": "llama",
        "nodes": nodes,
        "world_min": 1,
        "step_ms": 1_000,
        "allreduce_ms": 60,
        "checkpoint_steps": 100,
        "stall_steps": 5,
        "shrink_ms": 100,
        "start_ms": 10_000,
        "on_log_loss": "wait",
        "grace_s": 30.0,
    }
    return JobModel(**fields | layout)


def job_of(nodes: int, *, network: Network | None = None, **layout: Any) -> Job:
    """A job on nodes n0, n1 and so on, that begins at 0."""
    names = [f"n{number}" for number in range(nodes)]
    return Job(model(nodes, **layout), names, 8, 7, start_ns=0, network=network)


def trained(job: Job, until_ns: int) -> Job:
    job.advance(until_ns)
    return job
