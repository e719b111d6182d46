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
        Measured(400_000, 2, 13, 186_667),
        Measured(600_000, 3, 5, 600_000),
        Measured(700_000, 8, 8, 928_440),
        Measured(750_000, 4, 4, 928_440),
        Measured(800_000, 31, 31, 928_440),
        Measured(850_000, 52, 58, 928_440),
        Measured(900_000, 17, 17, 986_400),
        Measured(930_000, 4, 4, 986_400),
        Measured(970_000, 13, 13, 990_000),
        Measured(980_000, 7, 7, 990_000),
    ),
    "app.oom program": (Measured(850_000, 3, 3, 970_566),),
    "app.program program": (
        Measured(750_000, 4, 4, 975_421),
        Measured(800_000, 4, 4, 975_421),
    ),
    "app.stall rank": (Measured(850_000, 4, 6, 736_494),),
    "dataloader rank": (Measured(850_000, 1, 1, 951_852),),
    "desync rank": (Measured(850_000, 1, 1, 951_852),),
    "gpu.driver gpu": (Measured(900_000, 4, 4, 990_000),),
    "gpu.memory gpu": (
        Measured(850_000, 14, 14, 989_737),
        Measured(970_000, 13, 13, 990_000),
    ),
    "gpu.off_bus gpu": (
        Measured(850_000, 5, 5, 978_571),
        Measured(980_000, 7, 7, 990_000),
    ),
    "host.config config": (Measured(850_000, 1, 1, 951_852),),
    "host.config node": (Measured(800_000, 4, 4, 975_238),),
    "host.oom node": (Measured(800_000, 1, 1, 951_852),),
    "host.oom process": (Measured(900_000, 1, 1, 990_000),),
    "host.oom rank": (Measured(800_000, 1, 1, 951_852),),
    "network.config nic": (Measured(800_000, 6, 6, 981_068),),
    "network.fabric switch": (
        Measured(800_000, 1, 1, 950_476),
        Measured(850_000, 3, 3, 970_286),
    ),
    "network.link link": (Measured(850_000, 3, 7, 548_579),),
    "network.link port": (Measured(850_000, 2, 2, 963_552),),
    "network.pause nic": (Measured(800_000, 2, 2, 963_552),),
    "nic nic": (Measured(930_000, 4, 4, 990_000),),
    "nvlink gpu": (Measured(850_000, 8, 8, 984_554),),
    "nvlink nobody": (Measured(800_000, 1, 1, 951_852),),
    "nvlink nvswitch": (Measured(850_000, 1, 1, 951_852),),
    "silent_corruption rank": (
        Measured(700_000, 3, 3, 964_591),
        Measured(850_000, 2, 2, 964_591),
    ),
    "software.version software": (Measured(800_000, 5, 5, 978_571),),
    "storage storage": (Measured(700_000, 2, 2, 960_714),),
    "straggler.gpu gpu": (
        Measured(850_000, 4, 4, 975_238),
        Measured(900_000, 5, 5, 990_000),
    ),
    "straggler.host node": (
        Measured(800_000, 1, 1, 951_852),
        Measured(900_000, 7, 7, 990_000),
    ),
    "unknown nobody": (Measured(400_000, 2, 13, 186_667),),
    "unknown node": (Measured(800_000, 5, 5, 978_571),),
    "unknown rack": (Measured(700_000, 3, 3, 965_714),),
    "unknown rank": (Measured(600_000, 3, 5, 623_195),),
}
