"""What an agent is to run on its node, and the environment that its ranks find.

The variables are those that torchrun sets (pytorch/pytorch, torch/distributed/elastic/agent/
server/local_elastic_agent.py), so a script that was written for it finds what it knows. The store
beside the first agent serves as the agent's store of torchrun: it is in no rank, so `env://` works
whichever rank is lost.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec


class Launch(msgspec.Struct, kw_only=True, frozen=True):
    """The node's part of a job."""

    node: str
    job: str
    ranks: tuple[int, ...]
    """Of this node, by the submission."""
    world: int
    command: tuple[str, ...] = ()
    """Of each rank; without, somebody else starts them and they find the agent."""
    environment: Mapping[str, str] = {}
    """Besides the agent's own."""
    host: str = "127.0.0.1"
    """By which address other nodes reach this one."""
    comes_back: bool = False
    """A rank that was left out is started anew beside the job, and joins once it is ready."""
    store: str = ""
    """`host:port` where the first membership meets; "": the agent's own store."""
    node_at: int = 0
    """Of this node among those of the job."""
    nodes_count: int = 1
    run_id: str = "none"
    role: str = "default"
    restart_count: int = 0
    """How often the whole job was started before."""
    restarts_max: int = 0
    logs: Path | None = None
    """Where what ranks print is kept; None: in the agent's folder."""


def environment_of(
    launch: Launch, number: int, store: str, around: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """What torchrun would give this rank; `store`: `host:port`, `around`: what it inherits."""
    host, _, port = store.rpartition(":")
    usual = {"OMP_NUM_THREADS": "1"} if len(launch.ranks) > 1 else {}
    usual["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "1"
    return {
        **usual,
        **around,
        "RANK": str(number),
        "LOCAL_RANK": str(launch.ranks.index(number)),
        "WORLD_SIZE": str(launch.world),
        "LOCAL_WORLD_SIZE": str(len(launch.ranks)),
        "GROUP_RANK": str(launch.node_at),
        "GROUP_WORLD_SIZE": str(launch.nodes_count),
        "ROLE_NAME": launch.role,
        "ROLE_RANK": str(number),
        "ROLE_WORLD_SIZE": str(launch.world),
        "MASTER_ADDR": host,
        "MASTER_PORT": port,
        "TORCHELASTIC_RUN_ID": launch.run_id,
        "TORCHELASTIC_RESTART_COUNT": str(launch.restart_count),
        "TORCHELASTIC_MAX_RESTARTS": str(launch.restarts_max),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        **launch.environment,
    }
