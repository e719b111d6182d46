"""Promises of judging a model by a recorded log: the same steps, labels of Xids."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

from nemesis.cli.app import app
from nemesis.processors.ecc_model.channels import STEP_NS
from nemesis.processors.ecc_model.inputs import INPUTS
from nemesis.producers.origin import Origin
from nemesis.producers.sample import sample_of
from nemesis.schemas.channels import GPU_CHANNELS
from nemesis.schemas.facts import Record, encode_observation, telemetry_subject
from nemesis.schemas.observed import (
    GpuDescribed,
    InventoryReported,
    KernelLineLogged,
    Observation,
)
from nemesis.sim.prediction.logged import BadLogError, read_log
from nemesis.sim.recorded import write_recording
from tests.failure_models import drawn_model

START_NS = 1_800_000_000_000_000_000
PCI = ("0000:1b:00.0", "0000:2c:00.0")
NODE = "n1"
CE = GPU_CHANNELS.index("dram_ce_count")
XID = "NVRM: Xid (PCI:0000:2c:00): 48, pid=1, An uncorrectable double bit error (DBE) has been ..."


def recording(path: Path, steps: int, *, xid_at: int = -1, silent: range = range(0)) -> Path:
    """A node of two GPUs; the second has a corrected error more at every tenth step."""
    records: list[Record] = []
    origin = Origin(NODE, start_ns=1)

    def log(kind: str, observation: Observation, at_ns: int) -> None:
        records.append(
            Record(
                seq=len(records) + 1,
                subject=telemetry_subject(NODE, kind),
                payload=encode_observation(observation),
                stored_ns=at_ns,
            )
        )

    gpus = tuple(GpuDescribed(pci=pci) for pci in PCI)
    log("inventory", InventoryReported(node=NODE, start_ns=1, n=1, at_ns=1, gpus=gpus), START_NS)
    for step in range(steps):
        at_ns = START_NS + step * STEP_NS + 1
        block = np.zeros((2, len(GPU_CHANNELS)), np.int64)
        block[1, CE] = step // 10
        if step not in silent:
            log("sample", sample_of(origin, at_ns, period_ns=STEP_NS, gpu=block), at_ns)
        if step == xid_at:
            line = KernelLineLogged(node=NODE, start_ns=1, n=1, at_ns=at_ns, text=XID)
            log("kernel", line, at_ns)
    write_recording(path, records, force=False)
    return path


def test_a_log_is_read_in_steps_and_an_xid_is_where_its_gpu_failed(tmp_path: Path) -> None:
    found = read_log(recording(tmp_path / "a.ndjson.zst", 460, xid_at=430))
    lives = found.data.lives
    assert found.begin_ns == START_NS
    assert found.labels == "Xids"
    assert lives.devices == [f"gpu/{NODE}/{pci}" for pci in PCI]
    assert lives.fails.tolist() == [-1, 430]
    assert lives.codes.shape == (459, len(INPUTS), 2)  # the last cell is not over
    errors = lives.codes[:, INPUTS.index("dram_ce")]
    assert np.flatnonzero(errors[:, 1])[:3].tolist() == [10, 20, 30]
    assert not errors[:, 0].any()


def test_steps_without_a_sample_are_missing_readings(tmp_path: Path) -> None:
    found = read_log(recording(tmp_path / "a.ndjson.zst", 400, silent=range(100, 130)))
    missing = found.data.lives.codes[:, INPUTS.index("no_dram_ce"), 0] > 0
    assert np.flatnonzero(missing).tolist() == [0, *range(100, 130)]


def test_a_log_shorter_than_what_the_model_looks_back_judges_nothing(tmp_path: Path) -> None:
    with pytest.raises(BadLogError, match="looks back 31 minutes"):
        read_log(recording(tmp_path / "a.ndjson.zst", 100))


def test_the_commands_judge_a_log_and_explain_one_of_its_gpus(tmp_path: Path) -> None:
    log = recording(tmp_path / "a.ndjson.zst", 460, xid_at=430)
    model = tmp_path / "model.msgpack"
    model.write_bytes(msgspec.msgpack.encode(drawn_model(channels=2)))
    page = tmp_path / "page.html"
    asked = ["ecc", "evaluate", str(log), "--model", str(model), "--html", str(page), "--json"]
    found = CliRunner().invoke(app, asked)
    assert found.exit_code == 0, found.output
    evaluation = msgspec.json.decode(found.stdout)["evaluation"]
    assert [each["scorer"] for each in evaluation["figures"]] == ["model"]
    assert "2 GPUs of a log" in page.read_text()
    gpu = f"gpu/{NODE}/{PCI[1]}"
    told = CliRunner().invoke(
        app, ["ecc", "explain", str(log), "--model", str(model), "--gpu", gpu]
    )
    assert told.exit_code == 0, told.output
    assert told.output.startswith(gpu)
