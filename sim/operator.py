"""What a person would do before a demo: set a policy, activate the processors, submit the job.

Written with the operator's credential, as facts with name and reason, like any act of a person.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from nemesis.processors.catalogue import first_settings
from nemesis.processors.healer.playbooks import PLAYBOOKS
from nemesis.schemas.decided import Mode
from nemesis.schemas.facts import encode_conclusion
from nemesis.schemas.node_ranges import format_nodes
from nemesis.schemas.operated import JobSubmitted, Operation, PolicyApplied, ProcessorActivated
from nemesis.schemas.policy import Policy
from nemesis.sim.topology.cluster import Cluster
from nemesis.streams.log import Log

BY: Final = "demo"
REASON: Final = "a simulated cluster: nothing real can be hurt"


APPROVAL_NS: Final = 300_000_000_000  # who tries it reads first; on a real cluster it is longer


def demo_policy(mode: Mode = "act") -> Policy:
    """Act, and shrink before anything that costs a process or a spare."""
    return Policy(
        mode=mode,
        approval_timeout_ns=APPROVAL_NS,
        playbooks={
            "gpu.off_bus": ("shrink", "swap_node", "restart_job"),
            "gpu.memory": ("shrink", "swap_node", "restart_job"),
            "gpu.memory/ecc_contained": PLAYBOOKS["gpu.memory/ecc_contained"],
            "gpu.memory/row_remap_pending": PLAYBOOKS["gpu.memory/row_remap_pending"],
        },
    )


def submissions(cluster: Cluster, at_ns: int) -> list[JobSubmitted]:
    """The cluster's jobs as a person submits them; spares are spares of all."""
    return [
        JobSubmitted(
            at_ns=at_ns,
            by=BY,
            reason=REASON,
            job=job.name,
            nodes=format_nodes(cluster.nodes_of(job)),
            ranks_per_node=cluster.ranks_per_node,
            spares=cluster.spares,
            tp=job.tp,
            pp=job.pp,
            cp=job.cp,
            ep=job.ep,
            world_min=job.world_min,
            on_log_loss=job.on_log_loss,
            grace_ns=round(job.grace_s * 1e9),
        )
        for job in cluster.jobs
    ]


def requests(cluster: Cluster, at_ns: int) -> list[JobSubmitted]:
    """The same as the log is told of them: who says what it needs leaves the place to others."""
    return [
        msgspec.structs.replace(
            own, nodes=(), spares=(), spec=job.spec, gpu_count=cluster.world_of(job)
        )
        if job.spec
        else own
        for job, own in zip(cluster.jobs, submissions(cluster, at_ns), strict=True)
    ]


async def set_up(
    log: Log,
    cluster: Cluster,
    versions: Mapping[str, Iterable[int]],
    at_ns: int,
    mode: Mode = "act",
) -> None:
    """Do all that a person would do.

    Raises:
        LogUnavailableError: the log did not answer.
    """
    await publish(log, beginning(cluster, versions, at_ns, mode), at_ns)


def beginning(
    cluster: Cluster, versions: Mapping[str, Iterable[int]], at_ns: int, mode: Mode = "act"
) -> list[tuple[Operation, str]]:
    """Policy, then the newest version of each processor, then the jobs, each with its key."""
    policy = msgspec.Raw(msgspec.json.encode(demo_policy(mode)))
    acts: list[tuple[Operation, str]] = [
        (PolicyApplied(at_ns=at_ns, by=BY, reason=REASON, policy=policy), "policy")
    ]
    for name in sorted(versions):
        activated = ProcessorActivated(
            at_ns=at_ns,
            by=BY,
            reason=REASON,
            name=name,
            version=max(versions[name]),
            settings=msgspec.Raw(first_settings(name)),
        )
        acts.append((activated, name))
    acts += ((submitted, submitted.job) for submitted in requests(cluster, at_ns))
    return acts


async def publish(log: Log, acts: Iterable[tuple[Operation, str]], at_ns: int) -> None:
    """Write acts of a person, each with the key of its subject, in this order.

    Raises:
        LogUnavailableError: the log did not answer.
    """
    for subject, payload in messages(acts, at_ns):
        await log.publish(subject, payload)


def messages(acts: Iterable[tuple[Operation, str]], at_ns: int) -> Iterator[tuple[str, bytes]]:
    """Subject and payload of each act."""
    for number, (act, key) in enumerate(acts, 1):
        yield encode_conclusion(
            id=f"{BY}/{at_ns}/{number}",
            source=f"/operators/{BY}",
            at_ns=at_ns,
            data=act,
            key=key,
        )
