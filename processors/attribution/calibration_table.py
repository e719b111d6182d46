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
        Measured(400_000, 1, 14, 112_500),
        Measured(600_000, 21, 36, 584_211),
        Measured(700_000, 17, 18, 920_000),
        Measured(750_000, 6, 6, 937_500),
        Measured(800_000, 77, 77, 937_745),
        Measured(850_000, 111, 123, 937_745),
        Measured(900_000, 32, 34, 938_889),
        Measured(930_000, 6, 6, 982_500),
        Measured(970_000, 24, 24, 990_000),
        Measured(980_000, 6, 6, 990_000),
    ),
    "app.program nobody": (Measured(700_000, 2, 2, 955_556),),
    "app.program program": (
        Measured(750_000, 6, 6, 975_665),
        Measured(800_000, 1, 1, 975_665),
    ),
    "app.stall rank": (Measured(850_000, 1, 4, 483_192),),
    "dataloader rank": (Measured(850_000, 5, 5, 981_781),),
    "desync rank": (Measured(850_000, 2, 2, 968_572),),
    "gpu.driver gpu": (Measured(900_000, 2, 2, 968_699),),
    "gpu.memory gpu": (
        Measured(850_000, 31, 31, 990_000),
        Measured(970_000, 24, 24, 990_000),
    ),
    "gpu.off_bus gpu": (
        Measured(850_000, 4, 4, 978_846),
        Measured(980_000, 6, 6, 990_000),
    ),
    "gpu.thermal gpu": (Measured(900_000, 4, 4, 978_962),),
    "host.config config": (
        Measured(800_000, 1, 1, 958_095),
        Measured(850_000, 1, 1, 958_095),
    ),
    "host.config node": (Measured(800_000, 5, 5, 981_781),),
    "host.memory node": (Measured(850_000, 3, 3, 974_737),),
    "host.oom node": (Measured(800_000, 2, 2, 968_572),),
    "host.oom rank": (Measured(800_000, 5, 5, 981_781),),
    "host.service nobody": (Measured(700_000, 1, 2, 719_925),),
    "host.service service": (Measured(800_000, 1, 1, 958_294),),
    "network.config nic": (Measured(800_000, 15, 15, 990_000),),
    "network.fabric switch": (Measured(850_000, 9, 9, 988_177),),
    "network.link link": (Measured(850_000, 8, 17, 523_531),),
    "network.link port": (Measured(850_000, 14, 14, 990_000),),
    "network.pause nic": (Measured(800_000, 4, 4, 978_846),),
    "network.pause switch": (Measured(800_000, 5, 5, 981_781),),
    "nic nic": (Measured(930_000, 6, 6, 990_000),),
    "nvlink gpu": (Measured(850_000, 13, 13, 990_000),),
    "nvlink nobody": (Measured(800_000, 1, 1, 958_294),),
    "nvlink nvswitch": (Measured(850_000, 5, 5, 981_781),),
    "silent_corruption rank": (
        Measured(700_000, 9, 9, 973_554),
        Measured(850_000, 8, 8, 987_059),
    ),
    "software.version software": (Measured(800_000, 8, 8, 987_059),),
    "storage nobody": (Measured(800_000, 3, 3, 974_737),),
    "storage storage": (
        Measured(700_000, 1, 1, 943_859),
        Measured(900_000, 1, 1, 958_438),
    ),
    "straggler.gpu gpu": (
        Measured(850_000, 7, 7, 984_581),
        Measured(900_000, 6, 6, 984_581),
    ),
    "straggler.host node": (Measured(900_000, 16, 16, 990_000),),
    "unknown nobody": (Measured(400_000, 1, 14, 111_184),),
    "unknown node": (Measured(800_000, 26, 26, 990_000),),
    "unknown rack": (Measured(700_000, 4, 4, 966_667),),
    "unknown rank": (
        Measured(600_000, 21, 36, 586_886),
        Measured(900_000, 3, 5, 711_429),
    ),
}
