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
        Measured(400_000, 1, 19, 85_714),
        Measured(600_000, 4, 22, 216_667),
        Measured(700_000, 21, 22, 933_333),
        Measured(750_000, 7, 7, 944_444),
        Measured(800_000, 97, 97, 946_484),
        Measured(850_000, 142, 155, 946_484),
        Measured(900_000, 47, 49, 956_863),
        Measured(930_000, 8, 8, 981_538),
        Measured(950_000, 1, 1, 981_538),
        Measured(970_000, 36, 36, 990_000),
        Measured(980_000, 7, 7, 990_000),
    ),
    "app.program nobody": (Measured(700_000, 2, 2, 963_636),),
    "app.program program": (
        Measured(750_000, 7, 7, 981_346),
        Measured(800_000, 3, 3, 981_346),
        Measured(900_000, 1, 1, 981_346),
    ),
    "app.stall rank": (Measured(850_000, 1, 5, 417_313),),
    "dataloader rank": (Measured(850_000, 6, 6, 986_300),),
    "desync rank": (Measured(850_000, 2, 2, 973_032),),
    "gpu.driver gpu": (Measured(900_000, 6, 6, 987_778),),
    "gpu.memory gpu": (
        Measured(850_000, 35, 35, 990_000),
        Measured(970_000, 36, 36, 990_000),
    ),
    "gpu.off_bus gpu": (
        Measured(850_000, 6, 6, 986_300),
        Measured(980_000, 7, 7, 990_000),
    ),
    "gpu.thermal gpu": (Measured(900_000, 5, 5, 986_335),),
    "host.config config": (
        Measured(800_000, 1, 1, 963_757),
        Measured(850_000, 3, 3, 978_254),
    ),
    "host.config node": (Measured(800_000, 7, 7, 987_773),),
    "host.memory dimm": (Measured(950_000, 1, 1, 990_000),),
    "host.memory node": (Measured(850_000, 3, 3, 978_340),),
    "host.oom node": (Measured(800_000, 2, 2, 973_032),),
    "host.oom rank": (Measured(800_000, 6, 6, 986_300),),
    "host.service nobody": (Measured(700_000, 1, 2, 724_216),),
    "host.service service": (Measured(800_000, 1, 1, 964_183),),
    "network.config nic": (Measured(800_000, 21, 21, 990_000),),
    "network.fabric switch": (Measured(850_000, 17, 17, 990_000),),
    "network.link link": (Measured(850_000, 12, 21, 606_598),),
    "network.link port": (Measured(850_000, 18, 18, 990_000),),
    "network.pause nic": (Measured(800_000, 6, 6, 986_300),),
    "network.pause switch": (Measured(800_000, 7, 7, 987_773),),
    "nic nic": (Measured(930_000, 8, 8, 990_000),),
    "nvlink gpu": (Measured(850_000, 16, 16, 990_000),),
    "nvlink nobody": (Measured(800_000, 1, 1, 964_183),),
    "nvlink nvswitch": (Measured(850_000, 7, 7, 987_773),),
    "silent_corruption rank": (
        Measured(700_000, 11, 11, 981_065),
        Measured(850_000, 8, 8, 988_952),
    ),
    "software.version software": (Measured(800_000, 10, 10, 990_000),),
    "storage nobody": (Measured(800_000, 3, 3, 978_340),),
    "storage storage": (
        Measured(700_000, 2, 2, 963_636),
        Measured(900_000, 2, 2, 977_551),
    ),
    "straggler.gpu gpu": (
        Measured(850_000, 8, 8, 988_952),
        Measured(900_000, 11, 11, 990_000),
    ),
    "straggler.host node": (Measured(900_000, 18, 18, 990_000),),
    "unknown nobody": (Measured(400_000, 1, 19, 61_376),),
    "unknown node": (Measured(800_000, 29, 29, 990_000),),
    "unknown rack": (Measured(700_000, 5, 5, 975_940),),
    "unknown rank": (
        Measured(600_000, 4, 22, 220_899),
        Measured(900_000, 4, 6, 747_500),
    ),
}
