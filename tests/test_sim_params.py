"""Promises of the parameters: one file, its hash, and one line for what is wrong with it."""

from hashlib import sha256
from pathlib import Path

import pytest

from nemesis.sim.params import DEFAULT, BadParamsError, load_params


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
