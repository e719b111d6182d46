"""One poll of a node's devices becomes one `sample` fact.

Readers (NVML, sysfs, the training hook, the simulator) hand over what they read; here it becomes
the integer blocks of the log. A reading that could not be taken is ABSENT, never 0: "not
supported" is not "no errors".
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from nemesis.producers.origin import Origin
from nemesis.schemas.channels import (
    ABSENT,
    GPU_CHANNELS,
    HOST_CHANNELS,
    NIC_CHANNELS,
    STEP_CHANNELS,
)
from nemesis.schemas.observed import SampleTaken

Block = NDArray[np.int64]
_INT64: Final = np.dtype("<i8")


def block_of(channels: Sequence[str], readings: Sequence[Mapping[str, int]]) -> Block:
    """Readings by channel name as a block, one row a device; what is not there is ABSENT.

    Raises:
        KeyError: a reading that is no channel.
    """
    column = {name: at for at, name in enumerate(channels)}
    block = np.full((len(readings), len(channels)), ABSENT, np.int64)
    for row, reading in enumerate(readings):
        for name, value in reading.items():
            block[row, column[name]] = value
    return block


def sample_of(
    origin: Origin,
    at_ns: int,
    *,
    period_ns: int,
    gpu: Block | None = None,
    nic: Block | None = None,
    host: Block | None = None,
    steps: Block | None = None,
    job: str = "",
) -> SampleTaken:
    """The fact of one poll; a block that was not polled is None and takes no bytes.

    `gpu`, `nic`, `steps` have one row a device or rank, `host` has one row; the columns are
    those of nemesis.schemas.channels.
    """
    return SampleTaken(
        **origin.stamp("sample", at_ns),
        period_ns=period_ns,
        gpu_count=rows_of(gpu),
        gpu=bytes_of(gpu, GPU_CHANNELS),
        nic_count=rows_of(nic),
        nic=bytes_of(nic, NIC_CHANNELS),
        host=bytes_of(host, HOST_CHANNELS),
        job=job,
        step_count=rows_of(steps),
        steps=bytes_of(steps, STEP_CHANNELS),
    )


def rows_of(block: Block | None) -> int:
    """How many devices a block has; 0 where it was not polled."""
    return 0 if block is None else block.shape[0]


def bytes_of(block: Block | None, channels: Sequence[str]) -> bytes:
    """A block as it lies in a fact; none where it was not polled."""
    if block is None:
        return b""
    assert block.shape[1] == len(channels), f"{block.shape} for {len(channels)} channels"
    return block.astype(_INT64, copy=False).tobytes()
