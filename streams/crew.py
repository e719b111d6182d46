"""What makes the log of a server a cell at work: its clock, its keeper, processors, actors.

Processors share one process a copy, but for those that would keep the others waiting; each copy
of the job actor, the archivist and the advisor have their own, all kept alive by a supervisor;
ticker and keeper are tasks of ours.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Protocol

from nemesis.schemas.errors import NemesisError
from nemesis.schemas.facts import Record, decode_conclusion
from nemesis.schemas.kept import ProcessorStarted
from nemesis.streams import keeper, ticker
from nemesis.streams.log import Log
from nemesis.streams.side_by_side import background

JOB_ACTOR: Final = "job-actor"
ARCHIVIST: Final = "archivist"
ADVISOR: Final = "advisor"
_STARTED_SUBJECT: Final = "nemesis.events.processor_started.*"


class Place(Protocol):
    """A server that has the log, our own or somebody's, and how to sign in to it."""

    @property
    def url(self) -> str:
        """Where it is."""
        ...

    @property
    def credentials_folder(self) -> Path | None:
        """Seeds, one a role."""
        ...

    async def connect(self, role: str) -> Log:
        """The log, signed in as a role."""
        ...


class NotReadyError(NemesisError):
    """The cell did not come up."""

    exit_code = 3


def commands(
    place: Place,
    processors: Iterable[str],
    *,
    cell: str,
    copies: int,
    job_actor: bool = True,
    archivist: bool = True,
    host: str = "",
    apart: Collection[str] = (),
    advisor: str = "",
) -> dict[str, list[str]]:
    """What a supervisor starts: name of the child -> the command that an operator would type.

    `apart`: of the processors, those that have a process of their own.
    `advisor`: settings of the advisor, a file; "": there is none.
    `host` tells our actors from those of other machines: each claims under a name of its own.
    """
    program = [sys.executable, "-m", "nemesis.cli"]
    target = ["--server", place.url, "--credentials", str(place.credentials_folder), "--quiet"]
    every = list(processors)
    names = [name for name in every if name not in apart]
    found: dict[str, list[str]] = {}
    for copy in range(1, copies + 1):
        if names:
            run = [*program, "process", "--once", "--cell", cell, *target, *names]
            found[f"processors-{copy}"] = run
        for name in every:
            if name in apart:
                run = [*program, "process", "--once", "--cell", cell, *target, name]
                found[f"{name}-{copy}"] = run
        if job_actor:
            name = f"{JOB_ACTOR}-{copy}"
            own = f"{name}@{host}" if host else name
            found[name] = [*program, "act", "job", "--name", own, "--cell", cell, *target]
    if archivist:  # one is enough: nobody waits for it, and the supervisor starts it again
        found[ARCHIVIST] = [*program, "act", "archivist", "--cell", cell, *target]
    if advisor:
        run = [*program, "act", "advisor", "--settings", advisor]
        found[ADVISOR] = [*run, "--cell", cell, *target]
    return found


async def until_started(
    log: Log, processors: Iterable[str], *, from_seq: int, timeout_s: float
) -> None:
    """Wait until each of these has said, from this sequence on, that it took up work.

    Raises:
        NotReadyError: some did not in time.
    """
    names = set(processors)
    if not names:
        return
    try:
        async with asyncio.timeout(timeout_s):
            async for record in log.follow(from_seq, subject=_STARTED_SUBJECT):
                names.discard(_name_in(record))
                if not names:
                    return
    except TimeoutError:
        raise NotReadyError(
            f"{', '.join(sorted(names))} did not start within {timeout_s:g} s",
            hint="their last words are above",
        ) from None


def _name_in(record: Record) -> str:
    _, data = decode_conclusion("processor_started", record.payload)
    assert isinstance(data, ProcessorStarted)
    return data.name


@asynccontextmanager
async def clockwork(
    place: Place,
    now_ns: Callable[[], int],
    alarm: Callable[[str], None],
    *,
    speed: float = 1.0,
) -> AsyncIterator[None]:
    """The ticker and the keeper of the cell; `speed`: seconds of `now_ns` in one real second."""
    async with (
        await place.connect("ticker") as ticking,
        await place.connect("keeper") as keeping,
        background(
            ticker.run(ticking, now_ns, speed=speed),
            keeper.run(keeping, now_ns, alarm),
        ),
    ):
        yield
