"""Columns of the integer blocks in a node sample.

A block is a little-endian int64 matrix, one row a device in inventory order, one column a channel.
New channels are appended, so the width of a row says which ones a sample has; ABSENT marks a
reading that could not be taken (NVML's NOT_SUPPORTED is a fact, not a fault).
Names follow NVML (docs.nvidia.com/deploy/nvml-api) and Linux' sysfs-class-infiniband.
"""

from typing import Final

ABSENT: Final = -(2**63)

GPU_CHANNELS: Final = (
    "dram_ce_count",  # corrected, volatile
    "dram_ue_count",
    "sram_ce_count",
    "sram_ue_count",
    "remapped_rows_count",
    "remap_pending",  # 0 or 1
    "remap_failed",  # 0 or 1
    "banks_spare_low_count",  # banks with no, low or partial spare rows
    "temp_c",
    "memory_temp_c",
    "power_mw",
    "sm_clock_mhz",
    "clock_event_reasons",  # bit mask, NVML clocks event reasons
    "pcie_replay_count",
    "nvlink_replay_count",
    "nvlink_crc_count",
    "utilization_ppm",
)
NIC_CHANNELS: Final = (
    "port_up",  # 0 or 1
    "rate_mbps",
    "link_downed_count",
    "link_error_recovery_count",
    "symbol_error_count",
    "port_rcv_errors_count",
    "local_ack_timeout_count",
    "packet_seq_err_count",
    "rx_pause_duration_us",
    "tx_pause_duration_us",
    "xmit_bytes",
    "rcv_bytes",
)
HOST_CHANNELS: Final = (
    "cpu_pressure_ppm",
    "memory_pressure_ppm",
    "io_pressure_ppm",
    "run_queue_wait_ppm",
    "memory_available_mib",
    "dimm_ce_count",
    "dimm_ue_count",
    "cpu_steal_ppm",
    "numa_remote_ppm",  # memory accesses of the job's processes that left their NUMA node
)
STEP_CHANNELS: Final = (
    "rank",
    "step",
    "step_ns",
    "enqueued_count",
    "completed_count",
    "own_ns",  # of step_ns: until the rank entered the step's collective; the rest is waiting
)
