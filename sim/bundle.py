"""A simulated incident as the folder that a person would have: dumps, kernel logs, what ranks said.

    <folder>/dumps/nccl_trace_rank_<r>     flight recorders of the ranks that could write one
    <folder>/<node>/kern.log               what the node's kernel printed, as rsyslog keeps it
    <folder>/<node>/rank_<r>.stderr        what a rank's process printed

Names are those of torch's defaults (TORCH_FR_DUMP_TEMP_FILE) and of what people collect. A node
that was lost has no files.
"""

import pickle
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from nemesis.schemas.errors import NemesisError
from nemesis.sim.faults.courses import plan_faults
from nemesis.sim.faults.scenario import Scenario
from nemesis.sim.faults.symptoms import Symptom
from nemesis.sim.jobs.recorder import CAPACITY, Recorder, Version
from nemesis.sim.jobs.words import DUMP_WAIT_NS, last_words
from nemesis.sim.outputs import whole_folder
from nemesis.sim.params import Params
from nemesis.sim.simulation import Simulation
from nemesis.sim.told import told
from nemesis.sim.topology.cluster import Cluster

MS: Final = 1_000_000
PICKLE_PROTOCOL: Final = 2  # torch::jit's pickler
TIMEOUT_MS: Final = 600_000
SECOND_NS: Final = 1_000_000_000
AFTER_NS: Final = 30 * SECOND_NS
"""So long after the last symptom somebody collects what there is, where no job stands still."""


class FolderNotEmptyError(NemesisError):
    """A bundle is never mixed with what lies there already."""

    exit_code = 2


def bundle_of(
    cluster: Cluster,
    scenario: Scenario,
    params: Params,
    folder: Path,
    *,
    seed: int,
    start_ns: int,
    defects: Sequence[Symptom] = (),
    timeout_ms: int = TIMEOUT_MS,
) -> None:
    """Let a scenario happen where nobody reads and nobody acts, and collect what it leaves.

    A job that stands still is waited for until the watchdogs of its ranks have taken them down.

    Raises:
        BadScenarioError: a target that the cluster does not have.
        FolderNotEmptyError: something is in the folder.
        CannotWriteError: the folder cannot be made, or the disk is full; nothing is left of it.
    """
    if folder.is_dir() and any(folder.iterdir()):
        raise FolderNotEmptyError(f"{folder}: not empty, expected a new folder for the bundle")
    faults = plan_faults(cluster, scenario.faults, seed, lasts_s=scenario.duration_s)
    ends_ns = start_ns + max((each.over_ns for each in faults), default=0) + AFTER_NS
    with whole_folder(folder) as fresh, tempfile.TemporaryDirectory() as plans:
        simulation = Simulation(
            cluster,
            faults,
            seed=seed,
            folder=Path(plans),
            start_ns=start_ns,
            defects=defects,
            params=params,
        )
        now_ns = _let_pass(simulation, start_ns, ends_ns)
        if any(job.is_stalled for job in simulation.jobs.values()):
            ends_ns += timeout_ms * MS + DUMP_WAIT_NS
            now_ns = _let_pass(simulation, now_ns, ends_ns)
        write_bundle(simulation, fresh, now_ns=now_ns, timeout_ms=timeout_ms)


def _let_pass(simulation: Simulation, now_ns: int, until_ns: int) -> int:
    while now_ns < until_ns:
        now_ns += SECOND_NS
        simulation.advance(now_ns, lambda node: True)
        for _ in told(simulation, now_ns):
            pass  # nobody reads it
    return now_ns


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
        words = last_words(job, now_ns, timeout_ms=timeout_ms)
        for rank, each in job.ranks.items():
            said = [*simulation.printed.get((job.name, rank), [])]
            said += [(line.at_ns, line.text) for line in words.get(rank, [])]
            if said and each.node not in simulation.lost_nodes:
                name = f"{job.name}-rank_{rank}.stderr" if several else f"rank_{rank}.stderr"
                text = "".join(f"{text}\n" for _, text in sorted(said))
                (_folder_of(folder, each.node) / name).write_text(text)
    _write_kernel_logs(simulation, folder, now_ns)


def _write_kernel_logs(simulation: Simulation, folder: Path, now_ns: int) -> None:
    """With time and host, as rsyslog writes them to /var/log/kern.log (RFC 5424, section 6.2)."""
    for node, lines in simulation.kernel_lines.items():
        if node in simulation.lost_nodes:
            continue
        text = "".join(
            f"{_stamp(at_ns)} {node} kernel: {line}\n" for at_ns, line in lines if at_ns <= now_ns
        )
        (_folder_of(folder, node) / "kern.log").write_text(text)


def _stamp(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns / 1e9, UTC).isoformat(timespec="microseconds")


def _folder_of(folder: Path, node: str) -> Path:
    place = folder / node
    place.mkdir(parents=True, exist_ok=True)
    return place
