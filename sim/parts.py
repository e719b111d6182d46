"""The process of a simulated cell that runs its processors.

`python -m nemesis.sim.parts URL CREDENTIALS FOLDER NAME...` is what a supervisor keeps alive; it
signs in with the credentials of what it runs and knows nothing of the simulation.
"""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from nemesis.processors.catalogue import CATALOGUE
from nemesis.schemas.errors import NemesisError
from nemesis.streams.copy import run_copy
from nemesis.streams.credentials import seed_path
from nemesis.streams.log import Log, connect


def processors_command(
    url: str, credentials: Path, folder: Path, names: Sequence[str]
) -> list[str]:
    """The command line that runs these processors in one process."""
    return [sys.executable, "-m", "nemesis.sim.parts", url, str(credentials), str(folder), *names]


def actor_command(url: str, credentials: Path, name: str) -> list[str]:
    """The command line that runs a copy of the job actor."""
    options = ["--name", name, "--server", url, "--credentials", str(credentials)]
    return [sys.executable, "-m", "nemesis.cli", "act", "job", *options]


def main(arguments: Sequence[str]) -> int:
    """Run until told to stop; 1 and one line where it cannot go on."""
    url, credentials, folder, *names = arguments
    Path(folder).mkdir(parents=True, exist_ok=True)

    async def sign_in(role: str) -> Log:
        return await connect(url, name=role, seed_path=seed_path(Path(credentials), role))

    try:
        asyncio.run(run_copy(names, CATALOGUE, connect=sign_in, folder=Path(folder)))
    except NemesisError as error:
        print(f"{', '.join(names)}: {error.message}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
