"""A copy of test processors as a process: `python -m tests.faults.copy URL FOLDER NAME...`."""

import asyncio
import logging
import sys
from pathlib import Path

from nemesis.schemas.errors import NemesisError
from nemesis.streams.copy import run_copy
from nemesis.streams.log import Log, connect
from tests.faults.processors import CATALOGUE

SNAPSHOT_PERIOD_S = 0.5  # twenty times as often as in production: every cut meets one


async def main(url: str, folder: str, *names: str) -> None:
    """Run until SIGTERM."""

    async def sign_in(role: str) -> Log:
        return await connect(url, name=role.replace("/", "-"), timeout_s=600)

    await run_copy(
        names,
        CATALOGUE,
        connect=sign_in,
        folder=Path(folder),
        snapshot_period_s=SNAPSHOT_PERIOD_S,
    )


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        asyncio.run(main(*sys.argv[1:]))
    except NemesisError as error:
        sys.exit(f"{type(error).__name__}: {error.message}")
