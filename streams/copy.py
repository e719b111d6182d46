"""One process that runs processors: signs in, runs until it is told to stop or must leave."""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from pathlib import Path

from nemesis.processors.catalogue import Catalogue
from nemesis.processors.processor import Processor
from nemesis.schemas.errors import NemesisError
from nemesis.streams.lane import SNAPSHOT_PERIOD_S
from nemesis.streams.log import Log
from nemesis.streams.runner import Runner


class UnknownProcessorError(NemesisError):
    """No processor of this name in this release."""

    exit_code = 2


async def run_copy(
    names: Iterable[str],
    catalogue: Catalogue,
    *,
    connect: Callable[[str], Awaitable[Log]],
    folder: Path,
    snapshot_period_s: float = SNAPSHOT_PERIOD_S,
) -> signal.Signals | None:
    """Run every version that this release has of these processors, until SIGTERM or SIGINT.

    Returns which of the two it was.

    The log says which version answers; the others wait. `connect` signs in as a role, `folder`
    keeps what must outlive the process.

    Raises:
        UnknownProcessorError: a name that the catalogue does not have.
        NemesisError: this copy must leave and start again.
    """
    names = list(dict.fromkeys(names))
    check_names(names, catalogue)
    async with AsyncExitStack() as stack:
        members: list[tuple[Processor, Log]] = []
        for name in names:
            log = await stack.enter_async_context(await connect(f"processor/{name}"))
            members += [(make(), log) for _, make in sorted(catalogue[name].items())]
        runner = Runner(
            members,
            folder=folder,
            start_ns=time.time_ns(),
            snapshot_period_s=snapshot_period_s,
        )
        told: list[signal.Signals] = []

        def stop(number: signal.Signals) -> None:
            told.append(number)
            runner.stop()

        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop, number)
        await runner.run()
    return told[0] if told else None


def check_names(names: Iterable[str], catalogue: Catalogue) -> None:
    """Raises UnknownProcessorError for a name that is not in the catalogue."""
    for name in names:
        if name not in catalogue:
            known = ", ".join(sorted(catalogue)) or "none"
            raise UnknownProcessorError(
                f"no processor is called {name[:40]!r}", hint=f"this release has: {known}"
            )
