"""How often verdicts were right, by kind and claim. Made by tests/calibrate.py; run it again."""

from collections.abc import Mapping
from typing import Final, NamedTuple


class Measured(NamedTuple):
    """Verdicts of one kind that claimed the same."""

    claimed_ppm: int
    right_count: int
    verdicts_count: int
    confidence_ppm: int
    """The share of right ones, drawn towards what such a claim was worth in all other kinds."""


MEASURED: Final[Mapping[str, tuple[Measured, ...]]] = {
    "any kind": (
        Measured(400_000, 2, 6, 350_000),
        Measured(600_000, 6, 16, 400_000),
        Measured(700_000, 10, 10, 925_000),
        Measured(750_000, 6, 6, 925_000),
        Measured(800_000, 25, 25, 925_000),
        Measured(850_000, 49, 55, 925_000),
        Measured(900_000, 17, 17, 986_400),
        Measured(930_000, 4, 4, 986_400),
        Measured(970_000, 13, 13, 990_000),
        Measured(980_000, 7, 7, 990_000),
    ),
    "app.program nobody": (Measured(700_000, 2, 2, 961_764),),
    "app.program program": (Measured(750_000, 6, 6, 980_990),),
    "app.stall rank": (Measured(850_000, 4, 6, 735_204),),
    "dataloader rank": (Measured(850_000, 1, 1, 949_515),),
    "desync rank": (Measured(850_000, 1, 1, 949_515),),
    "gpu.driver gpu": (Measured(900_000, 4, 4, 990_000),),
    "gpu.memory gpu": (
        Measured(850_000, 14, 14, 989_167),
        Measured(970_000, 13, 13, 990_000),
    ),
    "gpu.off_bus gpu": (
        Measured(850_000, 5, 5, 977_489),
        Measured(980_000, 7, 7, 990_000),
    ),
    "host.config config": (Measured(850_000, 1, 1, 949_515),),
    "host.config node": (Measured(800_000, 4, 4, 974_000),),
    "host.oom node": (Measured(800_000, 1, 1, 949_515),),
    "host.oom process": (Measured(900_000, 1, 1, 990_000),),
    "host.oom rank": (Measured(800_000, 1, 1, 949_515),),
    "network.config nic": (Measured(800_000, 6, 6, 980_102),),
    "network.fabric switch": (Measured(850_000, 3, 3, 969_109),),
    "network.link link": (Measured(850_000, 3, 7, 547_763),),
    "network.link port": (Measured(850_000, 2, 2, 961_764),),
    "network.pause nic": (Measured(800_000, 2, 2, 961_764),),
    "nic nic": (Measured(930_000, 4, 4, 990_000),),
    "nvlink gpu": (Measured(850_000, 8, 8, 983_750),),
    "nvlink nobody": (Measured(800_000, 1, 1, 949_515),),
    "nvlink nvswitch": (Measured(850_000, 1, 1, 949_515),),
    "silent_corruption rank": (
        Measured(700_000, 3, 3, 964_983),
        Measured(850_000, 2, 2, 964_983),
    ),
    "software.version software": (Measured(800_000, 5, 5, 977_489),),
    "storage storage": (Measured(700_000, 2, 2, 961_764),),
    "straggler.gpu gpu": (
        Measured(850_000, 4, 4, 974_000),
        Measured(900_000, 5, 5, 990_000),
    ),
    "straggler.host node": (Measured(900_000, 7, 7, 990_000),),
    "unknown nobody": (Measured(400_000, 2, 6, 316_666),),
    "unknown node": (Measured(800_000, 5, 5, 977_489),),
    "unknown rack": (Measured(700_000, 3, 3, 969_109),),
    "unknown rank": (Measured(600_000, 6, 16, 414_815),),
}
