"""What `nemesis.attach` does: find the agent that the environment names, or go on without one."""

import os
import sys
from pathlib import Path
from typing import Any

from nemesis.training.hook import AGENT, Hook, Stateful
from nemesis.training.wire import Line


def attach(torch: Any, things: tuple[Stateful, ...], *, seed: int = 0) -> Hook:
    """A hook for this process; says once on stderr where no agent speaks to it."""
    path = os.environ.get(AGENT)
    if path is None:
        sys.stderr.write("nemesis: no agent here, this job trains alone\n")
        return Hook(torch, things, None, seed=seed)
    try:
        line = Line(Path(path))
    except OSError as error:
        sys.stderr.write(f"nemesis: the agent at {path} does not answer ({error.strerror})\n")
        return Hook(torch, things, None, seed=seed)
    return Hook(torch, things, line, seed=seed)
