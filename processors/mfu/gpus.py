"""What a GPU can do: peaks, memory rate, power, and the width of its NVLink domain.

Peaks are dense tensor-core rates as NVIDIA states them; the memory rate is what a triad reaches
(Azure/AI-benchmarking-guide for A100, H100, H200; 0.86 of the data sheet for the others, as those
three do). The name of a class is all that a cluster has to say.
"""

from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from nemesis.processors.topology.gpu_class import GPU_CLASSES, GpuClass

Architecture = Literal["volta", "ampere", "hopper", "blackwell"]

LAUNCHED: Final[dict[Architecture, int]] = {
    "volta": 2017 * 12 + 9,
    "ampere": 2020 * 12 + 5,
    "hopper": 2022 * 12 + 10,
    "blackwell": 2025 * 12 + 1,
}
"""Months since year 0: when the first machines of an architecture could be bought."""
TUNED_MONTHS: Final = 36
"""Kernels of an architecture get faster for so long."""


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One class of GPU in the machine it is sold in."""

    name: str
    architecture: Architecture
    peak_tflops: int
    """BF16 and FP16, dense."""
    peak_fp8_tflops: int
    """0: has none; FP8 then runs at the other rate."""
    memory_gbps: int
    """What a triad reaches."""
    power_w: int
    usual_power_w: int
    """Of the class; a machine with another limit runs its clocks by the cube root of the ratio."""
    ultra: bool = False
    """The second generation of the architecture."""
    domain: int = 8
    """GPUs of one NVLink domain."""
    rail_gbps: int = 50
    """GB/s of the network a GPU, one direction."""

    @property
    def months(self) -> int:
        """When its architecture came out."""
        return LAUNCHED[self.architecture]


_CLASSES: Final = (
    Gpu(
        name="V100",
        architecture="volta",
        peak_tflops=125,
        peak_fp8_tflops=0,
        memory_gbps=800,
        power_w=450,
        usual_power_w=450,
        domain=16,
        rail_gbps=12,
    ),
    Gpu(
        name="A100",
        architecture="ampere",
        peak_tflops=312,
        peak_fp8_tflops=0,
        memory_gbps=1700,
        power_w=400,
        usual_power_w=400,
        rail_gbps=25,
    ),
    Gpu(
        name="A100-40GB",
        architecture="ampere",
        peak_tflops=312,
        peak_fp8_tflops=0,
        memory_gbps=1320,
        power_w=400,
        usual_power_w=400,
        rail_gbps=25,
    ),
    Gpu(
        name="H100",
        architecture="hopper",
        peak_tflops=989,
        peak_fp8_tflops=1979,
        memory_gbps=2970,
        power_w=700,
        usual_power_w=700,
    ),
    Gpu(
        name="H100-500W",
        architecture="hopper",
        peak_tflops=989,
        peak_fp8_tflops=1979,
        memory_gbps=2130,
        power_w=500,
        usual_power_w=700,
    ),
    Gpu(
        name="H200",
        architecture="hopper",
        peak_tflops=989,
        peak_fp8_tflops=1979,
        memory_gbps=4150,
        power_w=700,
        usual_power_w=700,
    ),
    Gpu(
        name="B200",
        architecture="blackwell",
        peak_tflops=2250,
        peak_fp8_tflops=4500,
        memory_gbps=6900,
        power_w=1000,
        usual_power_w=1000,
    ),
    Gpu(
        name="B300",
        architecture="blackwell",
        peak_tflops=2250,
        peak_fp8_tflops=4500,
        memory_gbps=6900,
        power_w=1400,
        usual_power_w=1400,
        ultra=True,
        rail_gbps=100,
    ),
    Gpu(
        name="GB200",
        architecture="blackwell",
        peak_tflops=2450,
        peak_fp8_tflops=4900,
        memory_gbps=6900,
        power_w=1200,
        usual_power_w=1200,
        domain=72,
    ),
    Gpu(
        name="GB300",
        architecture="blackwell",
        peak_tflops=2450,
        peak_fp8_tflops=4900,
        memory_gbps=6900,
        power_w=1400,
        usual_power_w=1400,
        ultra=True,
        domain=72,
        rail_gbps=100,
    ),
)
GPUS: Final[dict[str, Gpu]] = {each.name: each for each in _CLASSES}
"""By name."""


_OTHERS: Final = {
    "V100": GPU_CLASSES["V100-32GB"],
    "H100-500W": replace(GPU_CLASSES["H100"], name="H100-500W", memory_mib=96 * 1024),
}
"""Where a name means another product here than to the driver. Meta's H100 of 500 W has 96 GB."""


def class_of(gpu: Gpu) -> GpuClass:
    """Its NVLinks and memory, which the type checker judges by."""
    return _OTHERS.get(gpu.name) or GPU_CLASSES[gpu.name]


def with_power(gpu: Gpu, power_w: int) -> Gpu:
    """The same class under another power limit."""
    return replace(gpu, power_w=power_w)


def clock_share(gpu: Gpu) -> float:
    """The clock it holds, as a share of what its class holds.

    Power goes with frequency times voltage squared and voltage with frequency: a cube root. Newton
    steps, since no library may decide a digit.
    """
    ratio = gpu.power_w / gpu.usual_power_w
    root = 1.0
    for _ in range(24):
        root = (2.0 * root + ratio / (root * root)) / 3.0
    return root
