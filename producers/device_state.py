"""What a sample leaves out of a node's devices becomes a `device_state` fact, once in a while.

Why: recorded at every poll these readings would double a node's telemetry, and most of them stand
still for months. When: at the start, every STATE_POLLS polls, and with the poll in which something
changed that no healthy device does by itself, so that what is news is never a minute old.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from nemesis.producers.origin import Origin
from nemesis.producers.sample import Block, bytes_of, rows_of
from nemesis.schemas.channels import GPU_STATE_CHANNELS, NIC_STATE_CHANNELS
from nemesis.schemas.observed import DeviceStateRead

STATE_POLLS: Final = 12
"""Once a minute at 5 s."""
_MOVES: Final = frozenset(
    {
        "memory_used_mib",
        "sw_power_cap_us",
        "sw_thermal_us",
        "hw_thermal_us",
        "hw_power_brake_us",
        "fec_corrected_bits_count",
        "cnp_sent_count",
        "cnp_handled_count",
        "cnp_ignored_count",
        "ecn_marked_count",
        "out_of_sequence_count",
        "duplicate_request_count",
        "adp_retrans_count",
        "slow_restart_count",
        "rx_prio3_pause_count",
        "tx_prio3_pause_count",
        "xmit_wait_count",
        "module_temp_c",
    }
)
"""Channels that move on a healthy device that works."""


def _news(channels: Sequence[str]) -> NDArray[np.int64]:
    return np.array([at for at, name in enumerate(channels) if name not in _MOVES], np.int64)


GPU_NEWS: Final = _news(GPU_STATE_CHANNELS)
"""Columns in which any change is news."""
NIC_NEWS: Final = _news(NIC_STATE_CHANNELS)


def device_state_of(origin: Origin, at_ns: int, *, gpu: Block, nic: Block) -> DeviceStateRead:
    """The fact of one reading; one row a device, columns as nemesis.schemas.channels has them."""
    return DeviceStateRead(
        **origin.stamp("device_state", at_ns),
        gpu_count=rows_of(gpu),
        gpu=bytes_of(gpu, GPU_STATE_CHANNELS),
        nic_count=rows_of(nic),
        nic=bytes_of(nic, NIC_STATE_CHANNELS),
    )
