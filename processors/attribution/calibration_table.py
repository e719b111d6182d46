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
        Measured(400_000, 1, 12, 128_571),
        Measured(600_000, 21, 34, 616_667),
        Measured(700_000, 12, 13, 893_333),
        Measured(750_000, 6, 6, 937_500),
        Measured(800_000, 68, 68, 945_909),
        Measured(850_000, 103, 112, 945_909),
        Measured(900_000, 32, 34, 945_909),
        Measured(930_000, 6, 6, 982_500),
        Measured(970_000, 23, 23, 990_000),
        Measured(980_000, 6, 6, 990_000),
    ),
    "app.program program": (
        Measured(750_000, 6, 6, 975_483),
        Measured(800_000, 1, 1, 975_483),
    ),
    "app.stall rank": (Measured(850_000, 1, 4, 486_265),),
    "dataloader rank": (Measured(850_000, 5, 5, 984_186),),
    "desync rank": (Measured(850_000, 2, 2, 972_706),),
    "gpu.driver gpu": (Measured(900_000, 2, 2, 972_706),),
    "gpu.memory gpu": (
        Measured(850_000, 30, 30, 990_000),
        Measured(970_000, 23, 23, 990_000),
    ),
    "gpu.off_bus gpu": (
        Measured(850_000, 4, 4, 981_636),
        Measured(980_000, 6, 6, 990_000),
    ),
    "gpu.thermal gpu": (Measured(900_000, 4, 4, 981_636),),
    "host.config config": (
        Measured(800_000, 1, 1, 963_609),
        Measured(850_000, 1, 1, 963_609),
    ),
    "host.config node": (Measured(800_000, 4, 4, 981_636),),
    "host.memory node": (Measured(850_000, 3, 3, 978_064),),
    "host.oom node": (Measured(800_000, 2, 2, 972_706),),
    "host.oom rank": (Measured(800_000, 5, 5, 984_186),),
    "host.service nobody": (Measured(700_000, 1, 2, 723_029),),
    "host.service service": (Measured(800_000, 1, 1, 963_775),),
    "network.config nic": (Measured(800_000, 14, 14, 990_000),),
    "network.fabric switch": (Measured(850_000, 7, 7, 987_585),),
    "network.link link": (Measured(850_000, 7, 13, 596_200),),
    "network.link port": (Measured(850_000, 13, 13, 990_000),),
    "network.pause nic": (Measured(800_000, 4, 4, 981_636),),
    "network.pause switch": (Measured(800_000, 4, 4, 981_636),),
    "nic nic": (Measured(930_000, 6, 6, 990_000),),
    "nvlink gpu": (Measured(850_000, 13, 13, 990_000),),
    "nvlink nobody": (Measured(800_000, 1, 1, 963_775),),
    "nvlink nvswitch": (Measured(850_000, 4, 4, 981_636),),
    "silent_corruption rank": (
        Measured(700_000, 8, 8, 954_286),
        Measured(850_000, 7, 7, 987_585),
    ),
    "software.version software": (Measured(800_000, 6, 6, 986_098),),
    "storage nobody": (Measured(800_000, 3, 3, 978_064),),
    "storage storage": (Measured(900_000, 1, 1, 963_775),),
    "straggler.gpu gpu": (
        Measured(850_000, 6, 6, 985_697),
        Measured(900_000, 6, 6, 985_697),
    ),
    "straggler.host node": (Measured(900_000, 16, 16, 990_000),),
    "unknown nobody": (Measured(400_000, 1, 12, 130_159),),
    "unknown node": (Measured(800_000, 22, 22, 990_000),),
    "unknown rack": (Measured(700_000, 3, 3, 946_667),),
    "unknown rank": (
        Measured(600_000, 21, 34, 618_801),
        Measured(900_000, 3, 5, 711_429),
    ),
}
