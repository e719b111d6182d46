"""The demo on real ranks: the same training and the same fault, under NEMESIS and torchrun."""

import asyncio
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from nemesis.actors.agent.job import torch_python
from nemesis.schemas.decided import QuiesceDecided, RecoveryDecided
from nemesis.schemas.done import AttemptCompleted, AttemptFailed
from nemesis.schemas.errors import NemesisError
from nemesis.schemas.facts import EVENTS_SUBJECT
from nemesis.schemas.inferred import FaultAttributed
from nemesis.sim.events import fact_of
from nemesis.sim.train.cell import end_job, train_cell
from nemesis.sim.train.steps import RANKS, Cost, Steps
from nemesis.sim.train.text import Text
from nemesis.streams.children import die_with_parent
from nemesis.streams.log import Log
from nemesis.streams.side_by_side import background

LOOP: Final = "nemesis.sim.train.loop"
AFTER_STEPS: Final = 60
"""How many steps are trained after the one of the fault."""
LOOK_S: Final = 0.02
NEMESIS_LIMIT_S: Final = 180.0
TORCHRUN_LIMIT_S: Final = 240.0
TORCHRUN_TIMEOUT_S: Final = 10.0
"""Of its group: who hangs is noticed after that; torch's own default for gloo is 30 minutes."""
_RESTARTS: Final = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""Else a restart over gloo finds the addresses of those that are gone, and fails (torch 2.13)."""
_SIGNALS: Final = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


class Fault(msgspec.Struct, frozen=True):
    """What befalls which rank, once it has applied so many steps."""

    kind: Literal["kill", "stop"]
    rank: int
    step: int

    def __str__(self) -> str:
        return f"SIG{self.kind.upper()} of rank {self.rank} after step {self.step}"


class BadFaultError(NemesisError):
    """A fault that is none."""

    exit_code = 2


class DemoFailedError(NemesisError):
    """A run did not come to its end."""


class Happening(msgspec.Struct, frozen=True):
    """Something to tell of a run."""

    kind: str
    text: str
    at_ms: float
    """Since the fault; below 0 before it."""


class Told(msgspec.Struct, kw_only=True):
    """A run as it is told: its steps, what happened, what it cost."""

    title: str
    steps: Steps
    fault: Fault
    fault_ns: int = 0
    happenings: list[Happening] = []
    cost: Cost | None = None


Look = Callable[[Told], None]


def fault_of(text: str) -> Fault:
    """`kill:2@step40` or `stop:0@40`.

    Raises:
        BadFaultError: it is not one of these.
    """
    found = re.fullmatch(r"(kill|stop):(\d)@(?:step)?(\d{1,5})", text.strip())
    if found is None or int(found[2]) >= RANKS or int(found[3]) < 1:
        raise BadFaultError(
            f"no fault {text[:60]!r}",
            hint=f"KIND:RANK@stepN, kind kill or stop, rank below {RANKS}, such as kill:2@step40",
        )
    kind: Literal["kill", "stop"] = "kill" if found[1] == "kill" else "stop"
    return Fault(kind, int(found[2]), int(found[3]))


async def with_nemesis(fault: Fault, text: Text, look: Look) -> Told:
    """Train in a cell of its own, break a rank, train to the end.

    Raises: as `train_cell`, and
        DemoFailedError: it did not come to its end.
    """
    with tempfile.TemporaryDirectory(prefix="nemesis-") as folder:
        told = Told(title="NEMESIS", steps=Steps(Path(folder)), fault=fault)
        command = (torch_python(), "-m", LOOP)
        environment = environment_of(fault, text, Path(folder))
        async with train_cell(Path(folder), RANKS, command, environment) as cell:
            async with background(_listen(cell.log, told)):

                def pid() -> int:
                    return cell.agent.ranks[fault.rank].pid

                await watch(told, pid, lambda: not cell.agent.is_busy, look, NEMESIS_LIMIT_S)
            await end_job(cell.server)
        return told


async def with_torchrun(fault: Fault, text: Text, look: Look) -> Told:
    """The same under `torchrun --max-restarts`, which starts all anew from the last checkpoint.

    Raises:
        DemoFailedError: it did not come to its end.
    """
    with tempfile.TemporaryDirectory(prefix="nemesis-") as folder:
        told = Told(title="torchrun", steps=Steps(Path(folder)), fault=fault)
        arguments = ["--standalone", "--nproc-per-node", str(RANKS), "--max-restarts", "2"]
        with (Path(folder) / "log").open("wb") as log:
            process = subprocess.Popen(  # noqa: ASYNC220  # a fork, over in milliseconds
                [torch_python(), "-m", "torch.distributed.run", *arguments, "-m", LOOP],
                env=os.environ | environment_of(fault, text, Path(folder)) | _RESTARTS,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent(),  # noqa: PLW1509  # two system calls, no lock taken
            )
        try:
            await watch(
                told,
                lambda: told.steps.started[fault.rank][-1].pid,
                lambda: process.poll() is not None,
                look,
                TORCHRUN_LIMIT_S,
            )
        finally:
            _end(process, told.steps)
        return told


def environment_of(fault: Fault, text: Text, out: Path) -> dict[str, str]:
    """What the loop reads; it writes into `out`."""
    return {
        "DEMO_TEXT": str(text.path),
        "DEMO_OUT": str(out),
        "DEMO_STEPS": str(fault.step + AFTER_STEPS),
        "DEMO_TIMEOUT_S": str(TORCHRUN_TIMEOUT_S),
        "OMP_NUM_THREADS": "1",
    }


async def watch(
    told: Told, pid: Callable[[], int], is_over: Callable[[], bool], look: Look, limit_s: float
) -> None:
    """Break the rank when it is time, and look on until the run is over.

    Raises:
        DemoFailedError: it did not come to its end within `limit_s`.
    """
    until_s = time.monotonic() + limit_s
    fault, steps = told.fault, told.steps
    while not is_over():
        if steps.read():
            look(told)
        done = steps.done[fault.rank]
        is_whole = bool(done) and len(done[-1].members) == RANKS
        if not told.fault_ns and is_whole and done[-1].step >= fault.step:
            told.fault_ns = time.time_ns()
            os.kill(pid(), _SIGNALS[fault.kind])
            told.happenings.append(Happening("FAULT", str(fault), 0.0))
        if told.fault_ns and told.cost is None:
            told.cost = steps.cost(fault.rank, told.fault_ns)
        if time.monotonic() > until_s:
            break
        await asyncio.sleep(LOOK_S)
    steps.read()
    if told.fault_ns:
        told.cost = steps.cost(fault.rank, told.fault_ns)
    look(told)
    if told.cost is None or steps.last < fault.step + AFTER_STEPS:
        raise DemoFailedError(
            f"the run under {told.title} ended at step {steps.last}, "
            f"expected {fault.step + AFTER_STEPS}",
            hint="run it again where less else runs",
        )


async def _listen(log: Log, told: Told) -> None:
    """Take note of what the log says, as it comes."""
    start_seq = (await log.bounds()).last_seq + 1
    async for record in log.follow(start_seq, subject=EVENTS_SUBJECT):
        at_ms = (time.time_ns() - told.fault_ns) / 1e6 if told.fault_ns else -1.0
        fact = fact_of(record, 0)
        if fact is not None and (said := _said(fact.data)):
            told.happenings.append(Happening(said[0], said[1], at_ms))


def _said(data: Any) -> tuple[str, str] | None:
    match data:
        case FaultAttributed():
            return "VERDICT", data.reason
        case QuiesceDecided() | RecoveryDecided():
            return "DECISION", data.reason
        case AttemptCompleted():
            return "DONE", data.reason
        case AttemptFailed():
            return "FAILED", data.reason
        case _:
            return None


def _end(process: subprocess.Popen[bytes], steps: Steps) -> None:
    """Let nothing of it run on, what is stopped neither."""
    process.kill()
    process.wait()
    steps.read()
    for lives in steps.started.values():
        for each in lives:
            with suppress(ProcessLookupError):
                os.kill(each.pid, signal.SIGKILL)
