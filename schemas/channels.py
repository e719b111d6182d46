"""Columns of the integer blocks in a node sample.

A block is a little-endian int64 matrix, one row a device in inventory order, one column a channel.
New channels are appended, so the width of a row says which ones a sample has; ABSENT marks a
reading that could not be taken (NVML's NOT_SUPPORTED is a fact, not a fault).
What only adds detail or changes seldom has channels of its own, `*_STATE_CHANNELS`, which the
rarer fact `device_state` carries, so that the sample of every poll stays small.
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
    "thp_fault_fallback_count",  # /proc/vmstat: no huge page was to be had
    "compact_stall_count",
    "oom_kill_count",
    "disk_wait_ppm",  # time in which the busiest disk had requests waiting
    "clock_offset_ns",  # against the time server, as chrony or PTP measures it; signed
    "major_fault_count",  # /proc/vmstat pgmajfault: pages that came from the disk
    "disk_latency_us",  # of the busiest disk, mean over the poll's interval
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
    "state_step",  # after which step; absent or 0: the one of this row
)

GPU_STATE_CHANNELS: Final = (
    "pcie_width",  # lanes in use now, NVML CurrPcieLinkWidth
    "pcie_generation",
    "pcie_replay_rollover_count",
    "power_limit_mw",  # enforced
    "memory_clock_mhz",
    "memory_used_mib",
    "sw_power_cap_us",  # time with lowered clocks, by reason: NVML fields 74, 269, 270, 271
    "sw_thermal_us",
    "hw_thermal_us",
    "hw_power_brake_us",
    "dram_ce_aggregate_count",  # aggregate: for life, in the inforom
    "dram_ue_aggregate_count",
    "sram_ce_aggregate_count",
    "sram_ue_aggregate_count",
    "sram_ue_parity_count",  # volatile
    "sram_ue_secded_count",
    "sram_ue_l2_aggregate_count",
    "sram_ue_sm_aggregate_count",
    "sram_ue_mcu_aggregate_count",
    "sram_ue_pcie_aggregate_count",
    "sram_ue_other_aggregate_count",
    "sram_threshold_exceeded",  # 0 or 1
    "remapped_ce_rows_count",
    "remapped_ue_rows_count",
    "remap_histogram_max_count",  # banks by the spare rows that are left
    "remap_histogram_high_count",
    "remap_histogram_partial_count",
    "remap_histogram_low_count",
    "remap_histogram_none_count",
    "nvlink_up_count",  # links that are up
    "nvlink_recovery_count",  # links that were trained anew and came back
    "nvlink_flit_crc_count",
    "nvlink_ecc_count",
    "recovery_action",  # NVML field 230
)
NIC_STATE_CHANNELS: Final = (
    "fec_corrected_bits_count",  # ethtool -S: rx_corrected_bits_phy
    "fec_uncorrectable_count",  # rx_pcs_symbol_err_phy: beyond correction
    "crc_error_count",  # rx_crc_errors_phy
    "discard_count",  # rx_discards_phy: no buffer
    "tx_discard_count",
    "cnp_sent_count",  # np_cnp_sent: told a sender to slow down
    "cnp_handled_count",  # rp_cnp_handled: was told to
    "cnp_ignored_count",
    "ecn_marked_count",  # np_ecn_marked_roce_packets
    "out_of_sequence_count",  # with adaptive routing normal: only a change of its rate counts
    "out_of_buffer_count",
    "duplicate_request_count",
    "implied_nak_seq_err_count",
    "rnr_nak_retry_count",
    "retries_exceeded_count",  # req_transport_retries_exceeded: a queue pair gave up
    "remote_access_error_count",
    "icrc_error_count",  # rx_icrc_encapsulated
    "adp_retrans_count",
    "adp_retrans_timeout_count",
    "slow_restart_count",
    "rx_prio3_pause_count",  # frames on the priority that carries RoCE
    "tx_prio3_pause_count",
    "rx_other_pause_duration_us",  # on all other priorities
    "pause_storm_warning_count",
    "pause_storm_error_count",  # the device stopped sending pause: drops follow
    "xmit_wait_count",  # ticks with data waiting and none sent
    "remote_physical_error_count",  # marked bad upstream: the fault is farther away
    "link_integrity_error_count",
    "buffer_overrun_count",
    "module_temp_c",
)
