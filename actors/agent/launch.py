"""What an agent is to run on its node, and as what."""

from collections.abc import Mapping

import msgspec


class Launch(msgspec.Struct, kw_only=True, frozen=True):
    """The node's part of a job."""

    node: str
    job: str
    ranks: tuple[int, ...]
    """Of this node, by the submission."""
    world: int
    command: tuple[str, ...]
    environment: Mapping[str, str] = {}
    """Besides the agent's own."""
    host: str = "127.0.0.1"
    """By which address other nodes reach this one."""
    comes_back: bool = False
    """A rank that was left out is started anew beside the job, and joins once it is ready."""
    store: str = ""
    """`host:port` where the first membership meets; "": the agent's own store."""
