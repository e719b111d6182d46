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
        Measured(400_000, 0, 10, 66_667),
        Measured(600_000, 3, 4, 700_000),
        Measured(700_000, 8, 8, 930_357),
        Measured(750_000, 4, 4, 930_357),
        Measured(800_000, 33, 33, 930_357),
        Measured(850_000, 53, 59, 930_357),
        Measured(900_000, 17, 17, 986_400),
        Measured(930_000, 4, 4, 986_400),
        Measured(970_000, 13, 13, 990_000),
        Measured(980_000, 7, 7, 990_000),
    ),
    "app.oom program": (Measured(850_000, 3, 3, 971_376),),
    "app.program program": (
        Measured(750_000, 4, 4, 976_144),
        Measured(800_000, 4, 4, 976_144),
    ),
    "app.stall rank": (Measured(850_000, 4, 6, 736_944),),
    "dataloader rank": (Measured(850_000, 1, 1, 953_153),),
    "desync rank": (Measured(850_000, 1, 1, 953_153),),
    "gpu.driver gpu": (Measured(900_000, 4, 4, 990_000),),
    "gpu.memory gpu": (
        Measured(850_000, 15, 15, 990_000),
        Measured(970_000, 13, 13, 990_000),
    ),
    "gpu.off_bus gpu": (
        Measured(850_000, 5, 5, 979_172),
        Measured(980_000, 7, 7, 990_000),
    ),
    "host.config config": (Measured(850_000, 1, 1, 953_153),),
    "host.config node": (Measured(800_000, 4, 4, 975_926),),
    "host.oom node": (Measured(800_000, 1, 1, 953_153),),
    "host.oom process": (Measured(900_000, 1, 1, 990_000),),
    "host.oom rank": (Measured(800_000, 1, 1, 953_153),),
    "network.config nic": (Measured(800_000, 6, 6, 981_604),),
    "network.fabric switch": (
        Measured(800_000, 1, 1, 951_852),
        Measured(850_000, 3, 3, 971_111),
    ),
    "network.link link": (Measured(850_000, 3, 7, 548_814),),
    "network.link port": (Measured(850_000, 2, 2, 964_546),),
    "network.pause nic": (Measured(800_000, 2, 2, 964_546),),
    "nic nic": (Measured(930_000, 4, 4, 990_000),),
    "nvlink gpu": (Measured(850_000, 8, 8, 985_000),),
    "nvlink nobody": (Measured(800_000, 1, 1, 953_153),),
    "nvlink nvswitch": (Measured(850_000, 1, 1, 953_153),),
    "silent_corruption rank": (
        Measured(700_000, 3, 3, 965_113),
        Measured(850_000, 2, 2, 965_113),
    ),
    "software.version software": (Measured(800_000, 5, 5, 979_172),),
    "storage storage": (Measured(700_000, 2, 2, 960_714),),
    "straggler.gpu gpu": (
        Measured(850_000, 4, 4, 975_926),
        Measured(900_000, 5, 5, 990_000),
    ),
    "straggler.host node": (
        Measured(800_000, 1, 1, 953_153),
        Measured(900_000, 7, 7, 990_000),
    ),
    "unknown nobody": (Measured(400_000, 0, 10, 77_778),),
    "unknown node": (Measured(800_000, 7, 7, 983_492),),
    "unknown rack": (Measured(700_000, 3, 3, 965_714),),
    "unknown rank": (Measured(600_000, 3, 4, 714_153),),
}
