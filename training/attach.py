"""What `nemesis.attach` does: find the agent that the environment names, or go on without one."""

import atexit
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nemesis.schemas.layout import Degrees
from nemesis.training.hook import HOST, TAP, Hook
from nemesis.training.seat import AGENT, JOB, RANK
from nemesis.training.stateful import Stateful
from nemesis.training.wire import Line


def attach(
    torch: Any,
    things: tuple[Stateful, ...],
    *,
    seed: int,
    degrees: Degrees,
    checksum_steps: int,
) -> Hook:
    """A hook for this process; says once on stderr where no agent speaks to it."""
    given: dict[str, Any] = {"seed": seed, "degrees": degrees, "checksum_steps": checksum_steps}
    path = os.environ.get(AGENT)
    if path is None:
        sys.stderr.write("nemesis: no agent here, this job trains alone\n")
        return Hook(torch, things, None, **given)
    for name, value in found_beside(Path(path), os.environ).items():
        os.environ.setdefault(name, value)
    try:
        line = Line(Path(path))
    except OSError as error:
        sys.stderr.write(f"nemesis: the agent at {path} does not answer ({error.strerror})\n")
        return Hook(torch, things, None, **given)
    hook = Hook(torch, things, line, **given)
    atexit.register(_end, hook, os.getpid())
    return hook


def _end(hook: Hook, pid: int) -> None:
    """Not in a fork of the process, nor where an exception ends it."""
    if os.getpid() == pid and not hasattr(sys, "last_value"):
        hook.finish()


def found_beside(socket_path: Path, around: Mapping[str, str]) -> dict[str, str]:
    """What a rank that torchrun or srun started has to know of the agent that it was told of.

    `around`: its environment. The group's name in the store is another after each restart of
    torchrun's, and each step of Slurm's.
    """
    try:
        told = json.loads(socket_path.with_name("attached.json").read_bytes())
    except (OSError, ValueError):
        return {}
    rank = around.get("RANK") or around.get("SLURM_PROCID", "0")
    life = around.get("TORCHELASTIC_RESTART_COUNT") or around.get("SLURM_STEP_ID", "0")
    return {
        RANK: rank,
        JOB: f"{told['job']}.{life}",
        HOST: told["host"],
        TAP: str(socket_path.with_name(f"rank_{rank}.tap")),
    }
