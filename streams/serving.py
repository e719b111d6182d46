"""A real cell at work: clock, keeper, processors, job actor, and its own server if it has one.

Nothing is assumed about the log: it may be empty or years old. The one thing written is an
activation for each processor that never had one. No policy is written: without one the healer is
in shadow, its decisions are recorded and nothing is applied.
"""

import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import msgspec

from nemesis.processors.catalogue import CATALOGUE, first_settings
from nemesis.schemas.facts import encode_conclusion
from nemesis.schemas.operated import ProcessorActivated
from nemesis.streams import credentials, crew
from nemesis.streams.connection import without_password
from nemesis.streams.contexts import Target
from nemesis.streams.errors import PositionMovedError, WrongCredentialsError
from nemesis.streams.log import Log
from nemesis.streams.lookup import subjects
from nemesis.streams.provision import Drift, require_streams
from nemesis.streams.server import ANY_PORT, Server, state_folder
from nemesis.streams.supervisor import Supervisor

START_TIMEOUT_S: Final = 120.0  # a long log may have to be read again before a copy is there
APART: Final = frozenset({"ecc_model"})
"""In a process of its own, and not awaited: a step of a large cell takes a core for a part of a
second, it may lack its model or read half an hour again, and recovery waits for no forecast."""
BY: Final = "serve"
REASON: Final = "the first version of this processor in this log"


class Serving(msgspec.Struct, kw_only=True, frozen=True):
    """What is up."""

    cell: str
    url: str
    pid: int
    server_pid: int
    """0: the server is somebody else's."""
    log_folder: str
    """Empty where the server is somebody else's."""
    credentials_folder: str
    nodes: list[str]
    """Who may write telemetry and ask for plans."""
    processors: list[str]
    activated: list[str]
    """Of these processors, those that had no version before."""
    copies: int
    has_policy: bool
    """False: shadow, nothing is applied."""
    drift: list[Drift]


@asynccontextmanager
async def serving(
    cell: str,
    *,
    roles: Iterable[str],
    port: int,
    copies: int,
    alarm: Callable[[str], None],
    target: Target | None = None,
    advisor: str = "",
) -> AsyncIterator[Serving]:
    """Everything up, and in the opposite order down again whatever happens in between.

    `roles`: nodes and collectors that may write; none: those that could before. `port` 0: its
    last, or any free one.
    `target`: a server that runs already and has the streams, in place of one of our own.
    `advisor`: a file of settings for one that has a key; "": there is none.

    Raises:
        NoStreamsError: the target has no streams.
        ServerRunningError: this cell runs already.
        NotReadyError: a processor did not come up.
        NemesisError: a server or a log that cannot work; the message says why.
    """
    roles = list(roles) or _earlier_writers(cell)
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        server: Server | None = None
        if target is None:
            server = await enter(Server(cell, roles=roles, port=port or ANY_PORT))
        place: crew.Place = server or _signed_in(target)
        reader = await enter(await place.connect("reader"))
        await require_streams(reader.connection, place.url)
        from_seq = (await reader.bounds()).last_seq + 1
        await enter(crew.clockwork(place, time.time_ns, alarm))
        async with await place.connect("operator") as log:
            activated = await activate(log)
        names = sorted(CATALOGUE)
        host = "" if server else socket.gethostname()
        children = crew.commands(
            place, names, cell=cell, copies=copies, host=host, apart=APART, advisor=advisor
        )
        await enter(Supervisor(children))
        awaited = [name for name in names if name not in APART]
        await crew.until_started(reader, awaited, from_seq=from_seq, timeout_s=START_TIMEOUT_S)
        yield Serving(
            cell=cell,
            url=without_password(place.url),
            pid=os.getpid(),
            server_pid=(server.pid or 0) if server else 0,
            log_folder=str(server.folder / "store") if server else "",
            credentials_folder=str(place.credentials_folder),
            nodes=[name for kind, _, name in (r.partition("/") for r in roles) if kind == "node"],
            processors=names,
            activated=activated,
            copies=copies,
            has_policy=bool(await subjects(reader, "nemesis.events.policy_applied.*")),
            drift=list(server.provisioned.drift) if server else [],
        )


def _signed_in(target: Target | None) -> Target:
    """The target, which must have a seed for each role: every part signs in as itself."""
    assert target is not None
    if target.credentials_folder is None:
        raise WrongCredentialsError(
            f"no folder of seeds for {without_password(target.url)}",
            hint="make one with `nemesis credentials` and name it with --credentials",
        )
    return target


def _earlier_writers(cell: str) -> list[str]:
    """Nodes and collectors that have a seed in this cell."""
    seeds = state_folder(cell) / "credentials"
    return sorted(
        f"{kind}/{name}"
        for kind in ("node", "producer", "collector")
        for name in credentials.names(seeds, kind)
    )


async def activate(log: Log) -> list[str]:
    """Let the newest version of each processor answer, where none was ever told to; their names.

    Raises:
        LogUnavailableError: the log did not answer.
    """
    at_ns = time.time_ns()
    activated = []
    for name, versions in sorted(CATALOGUE.items()):
        data = ProcessorActivated(
            at_ns=at_ns,
            by=BY,
            reason=REASON,
            name=name,
            version=max(versions),
            settings=msgspec.Raw(first_settings(name)),
        )
        subject, payload = encode_conclusion(
            id=f"{BY}/{at_ns}/{name}", source=f"/operators/{BY}", at_ns=at_ns, data=data, key=name
        )
        try:
            await log.publish(subject, payload, expected_last_subject_seq=0)
        except PositionMovedError:
            continue  # it has one
        activated.append(name)
    return activated
