"""Promises of the folder that a simulated incident leaves: people's tools read it, and say so."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from nemesis.cli.triage import triage_paths
from nemesis.producers.readers.bundle import read_bundle
from nemesis.schemas.inferred import FaultAttributed
from nemesis.sim.bundle import write_bundle
from nemesis.sim.faults.scenario import scenario_named
from nemesis.sim.jobs.job import Job
from nemesis.sim.jobs.recorder import Version
from nemesis.sim.params import load_params
from nemesis.sim.simulation import Simulation
from nemesis.sim.topology.cluster_file import load_cluster
from nemesis.sim.truth.ledger import FaultInjected
from nemesis.sim.what_if import leave_bundle
from tests import scenario_runs
from tests.commands import nemesis
from tests.simulated_jobs import MS, SECOND

pytestmark = pytest.mark.torch
START = 1_800_000_000 * SECOND
BESIDE = Path(sys.executable).parent
ANALYZER = os.environ.get("TORCHFRTRACE") or shutil.which(
    "torchfrtrace", path=f"{BESIDE}{os.pathsep}{os.environ.get('PATH', '')}"
)
needs_analyzer = pytest.mark.skipif(
    ANALYZER is None, reason="torchfrtrace is not here: install torch, or name it in TORCHFRTRACE"
)


def incident(
    folder: Path,
    fault: Callable[[Job], object],
    *,
    after_s: int = 700,
    version: Version = "2.9",
    only_active: bool = False,
    **layout: Any,
) -> Path:
    """Two nodes whose job meets a fault in its eighth step, and what there is a while later."""
    cluster = load_cluster()
    model = replace(cluster.job, nodes=2, world_min=8, **layout)
    cluster = replace(cluster, jobs=(model,))
    simulation = Simulation(cluster, (), seed=7, folder=folder / "agents", start_ns=START)
    simulation.advance(START + 7_300 * MS, lambda node: True)
    fault(simulation.job)
    now_ns = START + after_s * SECOND
    simulation.advance(now_ns, lambda node: True)
    write_bundle(
        simulation, folder / "bundle", now_ns=now_ns, version=version, only_active=only_active
    )
    return folder / "bundle"


def analyzed(bundle: Path, *options: str, falls: bool = False) -> str:
    """`falls`: it may end in an error of its own after what it said."""
    assert ANALYZER is not None
    command = [ANALYZER, str(bundle / "dumps"), "-p", "nccl_trace_rank_", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=not falls)
    return done.stdout + done.stderr


def test_every_rank_that_lives_leaves_its_dump_and_its_words(tmp_path: Path) -> None:
    bundle = incident(tmp_path, lambda job: job.kill(5, -9))
    dumps = {path.name for path in (bundle / "dumps").iterdir()}
    assert dumps == {f"nccl_trace_rank_{rank}" for rank in range(16) if rank != 5}
    words = {path.name for path in bundle.rglob("*.stderr")}
    assert words == {f"rank_{rank}.stderr" for rank in range(16) if rank != 5}


def test_nemesis_reads_its_own_bundle_without_a_complaint(tmp_path: Path) -> None:
    bundle = incident(tmp_path, lambda job: job.stick(5), version="2.10", tp=2, pp=2)
    read = read_bundle([bundle / "dumps"])
    assert len(read.dumps) == 16
    assert read.unread == []
    assert {each.dump.version for each in read.dumps} == {"2.10"}


def test_a_watchdog_that_fires_says_what_torch_says(tmp_path: Path) -> None:
    bundle = incident(tmp_path, lambda job: job.stick(5))
    text = (bundle / "n001" / "rank_3.stderr").read_text()
    caught = re.search(
        r"^\[rank3\]:\[E\d{3,4} [\d:.]+ ProcessGroupNCCL.cpp:\d+\] \[Rank 3\] Watchdog caught "
        r"collective operation timeout: WorkNCCL\(SeqNum=8, OpType=ALLREDUCE, NumelIn=13107200, "
        r"NumelOut=13107200, Timeout\(ms\)=600000\) ran for (\d+) milliseconds before timing out.$",
        text,
        re.MULTILINE,
    )
    assert caught is not None
    assert 600_000 <= int(caught[1]) < 600_200
    assert "last enqueued work: 8, last completed work: 7" in text
    assert text.rstrip().endswith("milliseconds before timing out.")


def test_the_rank_that_has_nothing_open_only_hears_of_it(tmp_path: Path) -> None:
    bundle = incident(tmp_path, lambda job: job.stick(5))
    text = (bundle / "n001" / "rank_5.stderr").read_text()
    assert "Observed flight recorder dump signal from another rank via TCPStore." in text
    assert "Watchdog caught" not in text


def test_before_the_timeout_nobody_says_anything(tmp_path: Path) -> None:
    bundle = incident(tmp_path, lambda job: job.stick(5), after_s=500)
    assert list(bundle.rglob("*.stderr")) == []


def in_its_names(component: str) -> str:
    """What a bundle alone can call it: it has no inventory and does not say which job it was."""
    kind, _, rest = component.partition("/")
    if kind == "rank":
        return f"rank/job/{rest.partition('/')[2]}"
    node, _, name = rest.partition("/")
    if kind == "nic":
        (name,) = (each.pci for each in scenario_runs.CLUSTER.nics_of(node) if each.name == name)
    return f"{kind}/{node}/{name}" if name else component


@pytest.mark.parametrize(
    "scenario", ["gpu-off-bus", "gpu-memory", "cascade", "desync", "leaf-port-down", "node-lost"]
)
def test_triage_of_the_bundle_names_whom_the_live_run_names_or_nobody(
    tmp_path: Path, scenario: str
) -> None:
    run = scenario_runs.run_of(scenario)
    injected = [each for each in run.truths if isinstance(each, FaultInjected)]
    said = [each.data for each in run.facts if isinstance(each.data, FaultAttributed)]
    live = {in_its_names(each.id) for each in said[-1].culprits}
    # a bundle knows a lost node by the ranks that left nothing
    live |= {in_its_names(each) for each in injected[0].harmless if scenario == "node-lost"}
    leave_bundle(
        scenario_runs.CLUSTER, scenario_named(scenario), load_params(), tmp_path / "left", seed=7
    )
    answer = triage_paths([tmp_path / "left"])
    assert answer.unread == []
    named = {each.id for each in answer.culprits}
    assert named <= live
    assert named or answer.verdict == "insufficient"
    assert bool(named) is (scenario != "leaf-port-down"), "only a switch tells of its ports"


def test_triage_of_a_bundle_names_the_cycle_of_an_inverted_order(tmp_path: Path) -> None:
    bundle = incident(tmp_path, lambda job: job.stray(5, "order"), tp=4, pp=2)
    answer = triage_paths([bundle])
    assert answer.unread == []
    assert answer.fault_class == "desync"
    assert [each.id for each in answer.culprits] == ["rank/job/5"]
    assert "ranks 4, 5, 6, 7, 12, 13, 14, 15 of job wait for each other" in answer.reason
    words = [path.read_text() for path in bundle.rglob("rank_?.stderr")]
    assert all("Watchdog caught collective operation timeout" in each for each in words)


def test_a_bundle_is_never_mixed_with_what_lies_there(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    asked = nemesis("sim", "--scenario", "desync", "--bundle", str(tmp_path))
    assert asked.returncode == 2
    assert f"{tmp_path}: not empty" in asked.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["notes.txt"]


@needs_analyzer
@pytest.mark.parametrize("version", ["2.9", "2.10"])
def test_torchs_own_analyzer_names_the_rank_that_never_came(
    tmp_path: Path, version: Version
) -> None:
    said = analyzed(incident(tmp_path, lambda job: job.stick(5), version=version))
    assert "Not all ranks joining collective, sequence number: 8" in said
    assert "missing ranks: {5}" in said


@needs_analyzer
@pytest.mark.parametrize(
    ("differs_in", "error"),
    [
        ("operation", "COLLECTIVE_TYPE_MISMATCH"),
        ("size", "SIZE_OR_SYNTAX_MISMATCH"),
        ("dtype", "COLLECTIVE_DTYPE_MISMATCH"),
    ],
)
def test_torchs_own_analyzer_reports_the_mismatch_of_a_desync(
    tmp_path: Path, differs_in: str, error: str
) -> None:
    said = analyzed(incident(tmp_path, lambda job: job.stray(5, differs_in)))
    assert f"Culprit rank 5; Error type: {error}" in said


@needs_analyzer
def test_torchs_own_analyzer_finds_an_inverted_order_twice_and_no_cycle(tmp_path: Path) -> None:
    """As of the real dumps in data/fr_samples/order_inversion: each group misses who is in the
    other."""
    bundle = incident(tmp_path, lambda job: job.stray(5, "order"), only_active=True, ep=8)
    named = re.findall(
        r"group info: \d+:(\w+)\ncollective: .*\nmissing ranks: \{(.*)\}", analyzed(bundle)
    )
    assert named == [
        ("DATA_PARALLEL_GROUP_WITH_CP", "5"),
        ("EXPERT_MODEL_PARALLEL_GROUP", "0, 1, 2, 3, 4, 6, 7"),
    ]


@needs_analyzer
def test_torchs_own_analyzer_misses_a_halted_host_in_the_groups_of_a_model(tmp_path: Path) -> None:
    bundle = incident(tmp_path, lambda job: job.halt(5), only_active=True, tp=2, ep=4)
    said = analyzed(bundle)
    assert "Not all ranks joining collective" in said
    assert "missing ranks: {5}" in said


@needs_analyzer
def test_torchs_own_analyzer_takes_single_sends_for_collectives_as_of_real_dumps(
    tmp_path: Path,
) -> None:
    bundle = incident(tmp_path, lambda job: job.halt(5), tp=2, pp=4, chunks=2, microbatches=8)
    said = analyzed(bundle, "--mismatch_cap", "100000")
    named = re.findall(r"group info: \d+:(\w+)\ncollective: (.*)\nmissing ranks: \{(.*)\}", said)
    assert ("DATA_PARALLEL_GROUP_WITH_CP", "5") in {(group, ranks) for group, _, ranks in named}
    sends = [call for group, call, _ in named if group == "PIPELINE_MODEL_PARALLEL_GROUP"]
    assert sends
    assert all(re.match(r"nccl:(send|recv) \d", call) for call in sends)


@needs_analyzer
def test_torchs_own_analyzer_misses_nobody_in_a_healthy_pipeline(tmp_path: Path) -> None:
    """It matches one-way batches. Of those that send and receive it says MISMATCH, of real dumps
    as well: it looks for the peer of a receive at the receiver (pytorch/pytorch, issue 139280)."""
    bundle = incident(tmp_path, lambda job: None, after_s=9, tp=4, pp=2)
    said = analyzed(bundle, "--mismatch_cap", "100000")
    assert "Not all ranks joining" not in said
    assert "Culprit" not in said
    assert re.search(r"^Match", said, re.MULTILINE)


@needs_analyzer
def test_torchs_own_analyzer_misses_a_halted_host_of_a_pipeline_in_its_tensor_group(
    tmp_path: Path,
) -> None:
    """Then it looks for batches of a rank that has none left, and ends in a KeyError."""
    bundle = incident(tmp_path, lambda job: job.halt(5), tp=4, pp=2)
    said = analyzed(bundle, "--mismatch_cap", "100000", falls=True)
    named = re.findall(r"group info: \d+:(\w+)\ncollective: .*\nmissing ranks: \{(.*)\}", said)
    assert ("TENSOR_MODEL_PARALLEL_GROUP", "5") in named
    assert all(group != "PIPELINE_MODEL_PARALLEL_GROUP" for group, _ in named)
