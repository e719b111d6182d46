"""Classes of GPUs by the product name that the driver prints: NVLinks and memory.

Links: NVIDIA's data sheets, as `nvidia-smi topo -m` prints them between two GPUs: NV12 on A100,
NV18 on H100. Memory: the total that nvidia-smi of that product prints, MiB.
"""

from collections.abc import Mapping
from typing import Final

import msgspec


class GpuClass(msgspec.Struct, frozen=True):
    """GPUs that are alike for a job."""

    name: str
    nvlinks: int
    """Of one GPU; 0: it talks over PCIe."""
    memory_mib: int
    words: tuple[str, ...]
    """All of them stand in its product name."""


GPU_CLASSES: Final[Mapping[str, GpuClass]] = {
    each.name: each
    for each in (
        GpuClass("GB300", 18, 284_208, ("GB300",)),
        GpuClass("GB200", 18, 189_471, ("GB200",)),
        GpuClass("B300", 18, 275_040, ("B300",)),
        GpuClass("B200", 18, 183_359, ("B200",)),
        GpuClass("GH200", 18, 97_871, ("GH200",)),
        GpuClass("H200", 18, 143_771, ("H200",)),
        GpuClass("H20", 18, 97_871, ("H20",)),
        GpuClass("H100-PCIe", 0, 81_559, ("H100", "PCIe")),
        GpuClass("H100-NVL", 12, 95_830, ("H100", "NVL")),
        GpuClass("H100", 18, 81_559, ("H100",)),
        GpuClass("H800", 8, 81_559, ("H800",)),
        GpuClass("A800", 8, 81_920, ("A800",)),
        GpuClass("A100-40GB-PCIe", 0, 40_960, ("A100", "PCIE", "40GB")),
        GpuClass("A100-80GB-PCIe", 0, 81_920, ("A100", "PCIe", "80GB")),
        GpuClass("A100-40GB", 12, 40_960, ("A100", "40GB")),
        GpuClass("A100", 12, 81_920, ("A100",)),
        GpuClass("V100-32GB", 6, 32_768, ("V100", "32GB")),
        GpuClass("V100", 6, 16_384, ("V100",)),
        GpuClass("L40S", 0, 46_068, ("L40S",)),
        GpuClass("A10G", 0, 23_028, ("A10G",)),
    )
}
"""By name; the more special stand first."""

UNKNOWN: Final = GpuClass("", 0, 0, ())
"""A product that this release does not know: nothing is said of its links and memory."""


def class_of(product: str) -> GpuClass:
    """The class of a product, for example of `NVIDIA H100 80GB HBM3`."""
    folded = product.upper()
    for each in GPU_CLASSES.values():
        if all(word.upper() in folded for word in each.words):
            return each
    return UNKNOWN
