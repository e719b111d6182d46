"""Promises of the parameters: one file, its hash, and one line for what is wrong with it."""

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from nemesis.schemas.facts import encode_observation
from nemesis.sim.dry_run import weighed
from nemesis.sim.faults.courses import plan_faults
from nemesis.sim.params import DEFAULT, BadParamsError, Params, changed, load_params
from nemesis.sim.simulation import Simulation
from nemesis.sim.told import told
from nemesis.sim.topology.cluster_file import load_cluster
from nemesis.sim.truth.defects import draw_defects
from tests.planned import planned

SECOND = 1_000_000_000
_RELEASED = load_cluster()
CLUSTER = replace(
    _RELEASED,
    cluster=replace(_RELEASED.cluster, nodes=4),
    jobs=(replace(_RELEASED.job, nodes=4, world_min=8),),
)
"""Four nodes, all in the job."""


def test_the_hash_of_the_file_is_part_of_the_parameters() -> None:
    assert load_params().sha256 == sha256(DEFAULT.read_bytes()).hexdigest()


def test_a_gpu_finds_its_family_by_the_name_that_its_driver_prints() -> None:
    params = load_params()
    assert params.gpu_family("NVIDIA H100 80GB HBM3") is params.gpu["h100"]
    assert params.gpu_family("NVIDIA GB200") is params.gpu["gb200"]
    with pytest.raises(BadParamsError, match="no parameters for GPU model 'Tesla T4'"):
        params.gpu_family("Tesla T4")


def test_every_section_names_a_source() -> None:
    sections = DEFAULT.read_text().split("\n[")[1:]
    assert all("#" in section for section in sections)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("power_idle_w = [60,", "power_idle_w = [99,", "gpu.a100.power_idle_w must not fall"),
        ("banks = 640", "banks = 'many'", r"gpu.*banks"),
        ("power_idle_w = [60,", "power_idle_w = [nan,", "gpu.a100.power_idle_w must not fall"),
        ("banks = 640", "banks = -1", r"gpu.a100.banks: -1: expected 0 to"),
        ("doubled_ppm = ", "doubled_ppm = 99", r"doubled_ppm: \d+: expected 0 to 1000000"),
        ("[steps]", "[strides]", "strides"),
        ("[steps]", "[steps", "params.toml: "),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_in_one_line(
    tmp_path: Path, old: str, new: str, says: str
) -> None:
    path = tmp_path / "params.toml"
    path.write_text(DEFAULT.read_text().replace(old, new, 1))
    with pytest.raises(BadParamsError, match=says) as refused:
        load_params(path)
    assert "\n" not in str(refused.value)


def everything_said(folder: Path, params: Params) -> list[bytes]:
    """All that the nodes and switches of a healthy cluster tell in some seconds."""
    simulation = Simulation(CLUSTER, (), seed=7, folder=folder, start_ns=0, params=params)
    said: list[bytes] = []
    for second in range(1, 9):
        simulation.advance(second * SECOND, lambda node: True)
        said += [encode_observation(each) for each in told(simulation, second * SECOND)]
    return said


def weighing(folder: Path, params: Params) -> list[tuple[int, ...]]:
    """What of the evidence of a slow GPU is delivered."""
    plan = planned("gpu-throttle", after_s=4.0, node="n002", gpu=1)
    found = weighed(
        CLUSTER,
        plan_faults(CLUSTER, [plan], 1),
        (),
        params,
        seed=1,
        folder=folder,
        start_ns=0,
        quantum_ns=SECOND,
    )
    return [each.delivered for each in found]


def defects(_: Path, params: Params) -> Any:
    """What is wrong with the evidence."""
    return draw_defects(CLUSTER, params.defects, seed=7, strikes_s=6.0)


@pytest.mark.parametrize(
    ("observed", "changes"),
    [
        (everything_said, {"gpu": {"h100": {"power_training_w": [300, 310, 320, 330, 340]}}}),
        (everything_said, {"gpu_noise": {"power_ppm": 60_000}}),
        (everything_said, {"nic": {"load_ppm": 300_000}}),
        (everything_said, {"port": {"fec_corrected_per_s": 300}}),
        (everything_said, {"host": {"run_queue_wait_ppm": [0, 9_000, 9_500, 10_000, 20_000]}}),
        (everything_said, {"steps": {"jitter_per_mille": 90}}),
        (defects, {"defects": {"no_kernel_log_ppm": 0}}),
        (weighing, {"truth": {"window_s": 1}}),
    ],
)
def test_each_section_of_another_file_reaches_what_it_is_about(
    tmp_path: Path, observed: Any, changes: dict[str, Any]
) -> None:
    release, other = load_params(), changed(load_params(), changes, where="test")
    assert other.sha256 != release.sha256
    first, second, third = (
        observed(tmp_path / name, each)
        for name, each in (("a", release), ("b", release), ("c", other))
    )
    assert first == second
    assert first != third


def test_a_line_that_is_wrong_is_named_with_its_value(tmp_path: Path) -> None:
    path = tmp_path / "params.toml"
    path.write_text(DEFAULT.read_text().replace("rounds_min = 5 ", 'rounds_min = "some" '))
    with pytest.raises(BadParamsError, match=r"params.toml: truth.rounds_min: 'some': expected"):
        load_params(path)


def test_a_change_of_what_no_file_has_is_refused() -> None:
    with pytest.raises(BadParamsError, match=r"suite x: .*unknown field `jiter`"):
        changed(load_params(), {"steps": {"jiter": 3}}, where="suite x")
    with pytest.raises(BadParamsError, match=r"suite x: host\.disk_latency_us must not fall"):
        changed(load_params(), {"host": {"disk_latency_us": [9, 1, 2, 3, 4]}}, where="suite x")
