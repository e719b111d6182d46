"""How the nodes of a job find each other before it begins: one listens, all say who they are.

At the endpoint that `--rdzv-endpoint` names. Who can listen there does, so every node runs the same
command; with --node-rank, node 0 alone does. One line each way, JSON; then the connection ends.
Ranks do not meet here but at the store whose address is told here.
"""

import asyncio
import errno
import time
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from nemesis.actors.agent.arguments import HERE, Asked
from nemesis.schemas.errors import NemesisError

JOIN_S: Final = 600.0
"""As long as torchrun's own rendezvous waits (join_timeout of dynamic_rendezvous.py)."""
AGAIN_S: Final = 0.2


class NodesMissingError(NemesisError):
    """The nodes of a job did not come together."""

    exit_code = 3


class Coming(msgspec.Struct, frozen=True, kw_only=True):
    """What a node says of itself."""

    node: str
    at: int
    """Where it wants to be; -1: anywhere."""
    nodes_count: int
    ranks_per_node: int


class Met(msgspec.Struct, frozen=True, kw_only=True):
    """What all nodes know when they have met."""

    job: str
    nodes: tuple[str, ...]
    """In the order of the ranks."""
    store: str
    """`host:port` where the first membership meets."""
    refused: str = ""
    """Why it is not one of them."""


async def meet(
    asked: Asked,
    node: str,
    job: str,
    open_store: Callable[[str], Awaitable[str]],
    *,
    timeout_s: float = JOIN_S,
) -> tuple[Met, str]:
    """What was agreed, and the address by which other nodes reach this one.

    `open_store` opens a store at an address of this node, where it is the first, and tells
    `host:port`; `job` counts where this node is the first.

    Raises:
        NodesMissingError: some did not come, or this one does not belong to them.
    """
    own = Coming(
        node=node,
        at=asked.node_at,
        nodes_count=asked.nodes_count,
        ranks_per_node=asked.ranks_per_node,
    )
    if not asked.endpoint:
        host = asked.local_address or HERE
        return Met(job=job, nodes=(node,), store=await open_store(host)), host
    host, _, port = asked.endpoint.rpartition(":")
    host = host.strip("[]")
    gathering = _Gathering(own)
    server = await _listening(gathering, host, int(port)) if own.at <= 0 else None
    if server is None:
        return await _join(own, host, int(port), asked.local_address, timeout_s)
    async with server:
        host = asked.local_address or host
        store = await open_store(host)
        await gathering.complete(timeout_s)
        met = Met(job=job, nodes=gathering.nodes, store=store)
        await gathering.tell(met)
        return met, host


class _Gathering:
    """Nodes that have come to the first one."""

    def __init__(self, own: Coming) -> None:
        self._own: Final = own
        self._all: Final = asyncio.Event()
        self._came: Final[list[Coming]] = [msgspec.structs.replace(own, at=0)]
        self._writers: Final[list[asyncio.StreamWriter]] = []

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names, by place; who wants none takes what is left, in the order in which they came."""
        taken = {each.at: each.node for each in self._came if each.at >= 0}
        rest = iter([each.node for each in self._came if each.at < 0])
        return tuple(taken[at] if at in taken else next(rest) for at in range(len(self._came)))

    async def complete(self, timeout_s: float) -> None:
        """Wait for all.

        Raises:
            NodesMissingError: too long.
        """
        if len(self._came) == self._own.nodes_count:
            self._all.set()
        try:
            async with asyncio.timeout(timeout_s):
                await self._all.wait()
        except TimeoutError:
            raise NodesMissingError(
                f"{len(self._came)} of {self._own.nodes_count} nodes came within {timeout_s:g} s: "
                + ", ".join(each.node for each in self._came),
                hint="the same command with the same --rdzv-endpoint on each of them",
            ) from None

    async def tell(self, met: Met) -> None:
        """Let them begin."""
        for writer in self._writers:
            writer.write(msgspec.json.encode(met) + b"\n")
            await writer.drain()
            writer.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Hear one node."""
        try:
            coming = msgspec.json.decode(await reader.readline(), type=Coming)
        except (msgspec.DecodeError, ValueError, ConnectionError):
            writer.close()
            return
        if why := self._objection(coming):
            met = Met(job="", nodes=(), store="", refused=why)
            writer.write(msgspec.json.encode(met) + b"\n")
            writer.close()
            return
        self._came.append(coming)
        self._writers.append(writer)
        if len(self._came) == self._own.nodes_count:
            self._all.set()

    def _objection(self, coming: Coming) -> str:
        own, places = self._own, {each.at for each in self._came if each.at >= 0}
        if any(each.node == coming.node for each in self._came):
            return f"a node {coming.node} is there already: name this one with --node"
        if (coming.nodes_count, coming.ranks_per_node) != (own.nodes_count, own.ranks_per_node):
            return f"{own.node} expects {own.nodes_count} nodes of {own.ranks_per_node} ranks"
        if coming.at in places or coming.at >= own.nodes_count:
            return f"--node-rank {coming.at} is taken, or not below {own.nodes_count}"
        if len(self._came) == own.nodes_count:
            return f"all {own.nodes_count} nodes are there"
        return ""


async def _listening(gathering: _Gathering, host: str, port: int) -> asyncio.Server | None:
    """A server at the endpoint where that is an address of this node and nobody listens there."""
    try:
        return await asyncio.start_server(gathering.serve, host, port)
    except OSError as error:
        if error.errno in (errno.EADDRINUSE, errno.EADDRNOTAVAIL, None):
            return None
        raise NodesMissingError(
            f"cannot listen at {host}:{port}: {error.strerror}", hint="another --rdzv-endpoint"
        ) from error


async def _join(
    own: Coming, host: str, port: int, local_address: str, timeout_s: float
) -> tuple[Met, str]:
    until_s = time.monotonic() + timeout_s
    said = b""
    here = local_address
    while not said and time.monotonic() < until_s:
        try:
            reader, writer = await asyncio.open_connection(host, port)
        except OSError:
            await asyncio.sleep(AGAIN_S)
            continue
        here = local_address or writer.get_extra_info("sockname")[0]
        try:
            async with asyncio.timeout(until_s - time.monotonic()):
                writer.write(msgspec.json.encode(own) + b"\n")
                said = await reader.readline()
        except (OSError, TimeoutError):
            said = b""
        writer.close()
    if not said:
        raise NodesMissingError(
            f"no first node answered at {host}:{port} within {timeout_s:g} s",
            hint="is the same command running on the node of --rdzv-endpoint?",
        )
    met = msgspec.json.decode(said, type=Met)
    if met.refused:
        raise NodesMissingError(f"{host}:{port} refused {own.node}: {met.refused}", hint="")
    return met, here
