"""What a lost rank costs under NEMESIS, torchrun and torchft: one training, one machine, in turn.

The training is the demo's (sim/train/loop.py): four ranks over gloo, a small transformer. A rank is
killed or stopped once it has applied a step; the clock runs until every rank that is left, or,
after a restart, every rank, has applied a step that nobody had before. torchrun saves each 10
steps and notices who hangs after a timeout of 10 s; torchft's collectives time out after 2 s, its
lighthouse believes a silent replica dead after 2 s and waits 0.1 s for stragglers: all faster than
their defaults.

`python -m tests.bench.comparing [RUNS]` (5) prints the table. NEMESIS_TORCH_PYTHON has torch,
NEMESIS_TORCHFT_PYTHON torchft (0.2.0 of PyPI); without the latter, no column for it.
"""

import asyncio
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from pathlib import Path

from nemesis.schemas.errors import NemesisError
from nemesis.sim.train.run import Fault, Told, environment_of, watch, with_nemesis, with_torchrun
from nemesis.sim.train.steps import RANKS, Steps
from nemesis.sim.train.text import Text, find_text
from tests.bench.row import Row
from tests.training.cell import has_torch, torch_python

RUNS = 5
FAULTS = (Fault("kill", 2, 25), Fault("kill", 0, 25), Fault("stop", 1, 25))
TORCHFT_LIMIT_S = 120.0
LIGHTHOUSE = [
    *["--min_replicas", str(RANKS - 1), "--join_timeout_ms", "100"],
    *["--heartbeat_timeout_ms", "2000", "--quorum_tick_ms", "50"],
]

Under = Callable[[Fault, Text], Awaitable[Told]]


async def measure(runs: int = RUNS) -> list[Row]:
    """One row a fault and a way to survive it."""
    if not await asyncio.to_thread(has_torch):
        return []
    os.environ.setdefault("PYTHON_EXEC", torch_python())
    text = find_text()
    unders: dict[str, Under] = {"NEMESIS": _nemesis, "torchrun": _torchrun}
    if "NEMESIS_TORCHFT_PYTHON" in os.environ:
        unders["torchft"] = _torchft
    took: dict[tuple[Fault, str], list[float]] = {}
    redone: dict[tuple[Fault, str], int] = {}
    for _ in range(runs):  # in turn, so that a slow minute of the machine is nobody's alone
        for fault in FAULTS:
            for name, under in unders.items():
                try:
                    told = await under(fault, text)
                except NemesisError as error:
                    print(f"{name}, {fault}: {error.message}", file=sys.stderr)
                    continue
                assert told.cost is not None
                print(f"{name}, {fault}: {told.cost.pause_ms:,.0f} ms", file=sys.stderr)
                took.setdefault((fault, name), []).append(told.cost.pause_ms)
                redone[fault, name] = max(redone.get((fault, name), 0), told.cost.steps_redone)
    return [
        Row(
            "P3",
            f"SIG{fault.kind.upper()} of rank {fault.rank}, {name}",
            statistics.median(values),
            "ms",
            f"fault to the next new step; {len(values)} runs, {min(values):,.0f} to "
            f"{max(values):,.0f}; at most {redone[fault, name]} steps done again",
        )
        for (fault, name), values in sorted(
            took.items(),
            key=lambda each: (FAULTS.index(each[0][0]), list(unders).index(each[0][1])),
        )
    ]


async def _nemesis(fault: Fault, text: Text) -> Told:
    return await with_nemesis(fault, text, lambda told: None)


async def _torchrun(fault: Fault, text: Text) -> Told:
    return await with_torchrun(fault, text, lambda told: None)


async def _torchft(fault: Fault, text: Text) -> Told:
    """One replica group a rank; who is lost stays away."""
    python = os.environ["NEMESIS_TORCHFT_PYTHON"]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nemesis-")))
        log = stack.enter_context((folder / "log").open("wb"))
        port = _free_port()
        program = Path(python).with_name("torchft_lighthouse")
        environment = os.environ | environment_of(fault, text, folder)
        environment |= {
            "TORCHFT_LIGHTHOUSE": f"http://127.0.0.1:{port}",
            "PYTHONPATH": os.pathsep.join(["src", "."]),
            "LIFE": "0",
            "VICTIM": str(fault.rank),
        }

        def start(command: list[str], **more: str) -> subprocess.Popen[bytes]:
            process = subprocess.Popen(
                command, env=environment | more, stdout=log, stderr=subprocess.STDOUT
            )
            stack.callback(_end, process)
            return process

        start([str(program), "--bind", f"127.0.0.1:{port}", *LIGHTHOUSE])
        loop = [python, "-m", "tests.bench.torchft_loop"]
        ranks = [start(loop, RANK=str(rank)) for rank in range(RANKS)]
        told = Told(title="torchft", steps=Steps(folder), fault=fault)
        rest = [process for rank, process in enumerate(ranks) if rank != fault.rank]
        await watch(
            told,
            lambda: ranks[fault.rank].pid,
            lambda: all(each.poll() is not None for each in rest),
            lambda told: None,
            TORCHFT_LIMIT_S,
        )
        return told


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGKILL)
    process.wait()


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def main() -> None:
    """Print the table."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else RUNS
    print(f"load before: {os.getloadavg()[0]:.2f}")
    for row in asyncio.run(measure(runs)):
        print(f"{row.what:28}{row.value:10,.0f} {row.unit}  {row.how}", flush=True)


if __name__ == "__main__":
    main()
