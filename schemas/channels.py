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
    "pcie_width",  # lanes in use now, NVML CurrPcieLinkWidth
    "pcie_generation",
    "nvlink_recovery_count",  # links that were trained anew and came back
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
    "fec_corrected_bits_count",  # ethtool -S: rx_corrected_bits_phy
    "fec_uncorrectable_count",  # rx_pcs_symbol_err_phy: beyond correction
    "crc_error_count",  # rx_crc_errors_phy
    "discard_count",  # rx_discards_phy: no buffer
    "cnp_sent_count",  # np_cnp_sent: told a sender to slow down
    "cnp_handled_count",  # rp_cnp_handled: was told to
    "retries_exceeded_count",  # req_transport_retries_exceeded: a queue pair gave up
    "remote_access_error_count",
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
    "thp_fault_fallback_count",  # /proc/vmstat: no huge page was to be had
    "compact_stall_count",
    "oom_kill_count",
    "disk_wait_ppm",  # time in which the busiest disk had requests waiting
    "clock_offset_ns",  # against the time server, as chrony or PTP measures it; signed
)
STEP_CHANNELS: Final = (
    "rank",
    "step",
    "step_ns",
    "enqueued_count",
    "completed_count",
    "own_ns",  # of step_ns: until the rank entered the step's collective; the rest is waiting
    "data_wait_ns",  # of own_ns: for the next batch
    "save_ns",  # of own_ns: writing a checkpoint
    "nonfinite_count",  # NaN and infinite values in this rank's own gradients
    "state_checksum",  # of its parameters after the step, equal over replicas
)
