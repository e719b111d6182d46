"""Which integer blocks a fact carries, which field counts the rows of each, and its columns."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from nemesis.schemas.channels import (
    GPU_CHANNELS,
    GPU_STATE_CHANNELS,
    HOST_CHANNELS,
    NIC_CHANNELS,
    NIC_STATE_CHANNELS,
    STEP_CHANNELS,
)
from nemesis.schemas.observed import DeviceStateRead, SampleTaken


class Block(NamedTuple):
    """One block, by the name of the field that holds its bytes."""

    count_field: str
    """Empty for a block of one row."""
    channels: tuple[str, ...]


BLOCKS: Final[Mapping[type, Mapping[str, Block]]] = {
    SampleTaken: {
        "gpu": Block("gpu_count", GPU_CHANNELS),
        "nic": Block("nic_count", NIC_CHANNELS),
        "host": Block("", HOST_CHANNELS),
        "steps": Block("step_count", STEP_CHANNELS),
    },
    DeviceStateRead: {
        "gpu": Block("gpu_count", GPU_STATE_CHANNELS),
        "nic": Block("nic_count", NIC_STATE_CHANNELS),
    },
}
