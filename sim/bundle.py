"""A simulated incident as the folder that a person would have: dumps, kernel logs, what ranks said.

    <folder>/dumps/nccl_trace_rank_<r>     flight recorders of the ranks that could write one
    <folder>/<node>/dmesg                  what the node's kernel printed
    <folder>/<node>/rank_<r>.stderr        what a rank's process printed

Names are those of torch's defaults (TORCH_FR_DUMP_TEMP_FILE) and of what people collect. A node
that was lost has no files.
"""

import pickle
from pathlib import Path
from typing import Final

from nemesis.sim.jobs.recorder import CAPACITY, Recorder, Version
from nemesis.sim.jobs.words import last_words
from nemesis.sim.simulation import Simulation

PICKLE_PROTOCOL: Final = 2  # torch::jit's pickler
TIMEOUT_MS: Final = 600_000


def write_bundle(
    simulation: Simulation,
    folder: Path,
    *,
    now_ns: int,
    version: Version = "2.9",
    timeout_ms: int = TIMEOUT_MS,
    only_active: bool = False,
) -> None:
    """Write what there is at a time.

    `timeout_ms`: of the jobs' process groups; `only_active`: dumps without what has completed.
    """
    dumps = folder / "dumps"
    dumps.mkdir(parents=True, exist_ok=True)
    several = len(simulation.jobs) > 1
    for job in simulation.jobs.values():
        place = dumps / job.name if several else dumps
        place.mkdir(exist_ok=True)
        recorder = Recorder(
            version=version,
            past_steps_max=CAPACITY,
            timeout_ms=timeout_ms,
            is_timed=False,
            only_active=only_active,
        )
        for rank, each in job.ranks.items():
            if each.stage in ("running", "held") and simulation.writes_dump(each.node, rank):
                content = recorder.dump(job, rank, now_ns)
                path = place / f"nccl_trace_rank_{rank}"
                path.write_bytes(pickle.dumps(content, protocol=PICKLE_PROTOCOL))
        for rank, lines in last_words(job, now_ns, timeout_ms=timeout_ms).items():
            node = _folder_of(folder, job.ranks[rank].node)
            name = f"{job.name}-rank_{rank}.stderr" if several else f"rank_{rank}.stderr"
            (node / name).write_text("".join(f"{line.text}\n" for line in lines))
    _write_kernel_logs(simulation, folder, now_ns)


def _write_kernel_logs(simulation: Simulation, folder: Path, now_ns: int) -> None:
    """As dmesg prints them: seconds since boot, which is taken as the run's beginning."""
    for node, lines in simulation.kernel_lines.items():
        if node in simulation.lost_nodes:
            continue
        text = "".join(
            f"[{(at_ns - simulation.start_ns) / 1e9:12.6f}] {line}\n"
            for at_ns, line in lines
            if at_ns <= now_ns
        )
        (_folder_of(folder, node) / "dmesg").write_text(text)


def _folder_of(folder: Path, node: str) -> Path:
    place = folder / node
    place.mkdir(parents=True, exist_ok=True)
    return place
