"""All NICs of a cluster: what they carry, and counters as the hardware keeps them.

Queue counters are 32 bits wide and wrap (Linux drivers/infiniband/hw/mlx5/counters.c, be32); port
counters of the management agent stop at their width (InfiniBand Architecture 1.5, PortCounters;
Linux drivers/infiniband/core/sysfs.c: symbol_error 16 bits, link_downed 8 bits).
"""

from functools import cache
from typing import Final, assert_never

import numpy as np

from nemesis.schemas.channels import NIC_CHANNELS, NIC_STATE_CHANNELS
from nemesis.sim.faults.symptoms import NicCounted, NicEffect, NicMute, NicReads, NicRises
from nemesis.sim.params import Params
from nemesis.sim.telemetry.columns import Columns, Reads, Rows
from nemesis.sim.telemetry.draws import (
    LANE_BITS,
    Flags,
    Ints,
    at_time,
    either_way,
    keys,
    lanes,
    mixed,
    placed,
)
from nemesis.sim.telemetry.loads import TRAINING

SECOND_NS: Final = 1_000_000_000
PPM: Final = 1_000_000
WRAPS_AT: Final = 1 << 32
WRAP: Final = frozenset(
    {
        "local_ack_timeout_count",
        "packet_seq_err_count",
        "cnp_sent_count",
        "cnp_handled_count",
        "cnp_ignored_count",
        "ecn_marked_count",
        "out_of_sequence_count",
        "out_of_buffer_count",
        "duplicate_request_count",
        "implied_nak_seq_err_count",
        "rnr_nak_retry_count",
        "retries_exceeded_count",
        "remote_access_error_count",
        "icrc_error_count",
        "adp_retrans_count",
        "adp_retrans_timeout_count",
        "slow_restart_count",
    }
)
STOPS_AT: Final = {
    "symbol_error_count": 0xFFFF,
    "port_rcv_errors_count": 0xFFFF,
    "link_error_recovery_count": 0xFF,
    "link_downed_count": 0xFF,
    "remote_physical_error_count": 0xFFFF,
    "link_integrity_error_count": 0xF,
    "buffer_overrun_count": 0xF,
}


class Nics:
    """Every NIC, [node, index]."""

    def __init__(
        self, touched: Flags, count: int, rate_mbps: int, params: Params, seed: int
    ) -> None:
        """`touched`: where to mark the nodes of which something changed by itself that is news."""
        nodes = len(touched)
        self._touched: Final = touched
        given = params.nic
        self._keys: Final = keys(seed, 2, (nodes, count))
        self._columns: Final = Columns(nodes, count, NIC_CHANNELS, NIC_STATE_CHANNELS)
        self._mute: Final = np.zeros((nodes, count), bool)
        self._reads: Final = Reads()
        self._rising: Final[dict[tuple[int, int], tuple[dict[str, int], dict[str, int]]]] = {}
        """(row, NIC) to what rises by how much a second, and by how much less than one it did."""
        self._noise_ppm: Final = given.load_noise_ppm
        bytes_per_s = rate_mbps * PPM // 8 * given.load_ppm // PPM
        self._training_per_s: Final = {
            "xmit_bytes": bytes_per_s,
            "rcv_bytes": bytes_per_s,
            "out_of_sequence_count": given.out_of_sequence_per_s,
            "ecn_marked_count": given.ecn_marked_per_s,
            "cnp_sent_count": given.ecn_marked_per_s,
            "cnp_handled_count": given.ecn_marked_per_s,
        }
        self._corrected_per_s: Final = given.fec_corrected_bits_per_s
        column = self._columns.of
        column("port_up")[:] = 1
        column("rate_mbps")[:] = rate_mbps
        old, retrans, errors, module = lanes(mixed(self._keys))
        column("out_of_sequence_count")[:] = mixed(self._keys) >> np.uint64(32)
        column("adp_retrans_count")[:] = retrans * (given.adp_retrans_at_start_max + 1) >> LANE_BITS
        column("module_temp_c")[:] = placed(given.module_temp_c, module)
        has_history = old * PPM >> LANE_BITS < given.share_with_history_ppm
        counted = errors * (given.rcv_errors_at_start_max + 1) >> LANE_BITS
        column("port_rcv_errors_count")[:] = np.where(has_history, counted, 0)

    def follow(self, rows: Rows, elapsed_ns: Ints, loads: Ints, at_ns: Ints) -> None:
        """Let time pass on these nodes, so much on each, up to its time, under its load."""
        columns = self._columns
        works = (columns.of("port_up")[rows] == 1) & ~self._mute[rows]
        noise, other, _, _ = lanes(at_time(self._keys[rows], at_ns))
        elapsed_us = (elapsed_ns // 1_000)[:, None]
        trains = works & (loads == TRAINING)[:, None]
        jitter_ppm = PPM + either_way(noise, self._noise_ppm)
        trained_us = elapsed_us * trains * jitter_ppm // PPM
        for name, per_s in self._training_per_s.items():
            columns.of(name)[rows] += per_s * trained_us // PPM
        corrected = self._corrected_per_s * elapsed_us * works * (PPM + either_way(other, PPM // 4))
        columns.of("fec_corrected_bits_count")[rows] += corrected // PPM // PPM
        for (row, nic), (rates, due) in self._rising.items():
            at = np.flatnonzero(rows == row)
            if at.size:
                self._rise(row, nic, rates, due, int(elapsed_ns[at[0]]))
                self._touched[row] = True

    def suffer(self, row: int, effect: NicEffect) -> None:
        """A fault reaches a NIC."""
        match effect:
            case NicCounted():
                self._columns.rise(row, effect.nic, effect.rises)
            case NicRises():
                self._rising.pop((row, effect.nic), None)
                if effect.per_s:
                    self._rising[row, effect.nic] = dict(effect.per_s), {}
            case NicReads():
                self._reads.hold(row, effect.nic, effect.readings)
            case NicMute():
                self._mute[row, effect.nic] = True
            case _:
                assert_never(effect)

    def turn(self, row: int, nic: int, *, up: bool) -> None:
        """A link goes down or up."""
        port_up = self._columns.of("port_up")
        if not up and port_up[row, nic]:
            self._columns.of("link_downed_count")[row, nic] += 1
        port_up[row, nic] = int(up)

    def boot(self, row: int) -> None:
        """Counters start anew, and what a fault held is free."""
        kept = ("port_up", "rate_mbps")
        for name in self._columns.sample_at:
            if name not in kept:
                self._columns.of(name)[row] = 0
        for name in self._columns.state_at:
            if name != "module_temp_c":
                self._columns.of(name)[row] = 0
        self._reads.release(row)
        for at in [at for at in self._rising if at[0] == row]:
            del self._rising[at]

    def block(self, rows: Rows) -> Ints:
        """[row, NIC, channel] of a sample."""
        return self._read(self._columns.sample, self._columns.sample_at, rows)

    def state(self, rows: Rows) -> Ints:
        """[row, NIC, channel] of a device state."""
        return self._read(self._columns.state, self._columns.state_at, rows)

    def _read(self, counts: Ints, columns: dict[str, int], rows: Rows) -> Ints:
        kept, most = _widths(tuple(columns))
        block: Ints = np.minimum(counts[rows] & kept, most)
        self._reads.apply(block, rows, columns)
        return block

    def _rise(
        self, row: int, nic: int, per_s: dict[str, int], due: dict[str, int], elapsed_ns: int
    ) -> None:
        for name, each in per_s.items():
            whole, due[name] = divmod(due.get(name, 0) + each * elapsed_ns, SECOND_NS)
            self._columns.rise(row, nic, [(name, whole)])


@cache
def _widths(channels: tuple[str, ...]) -> tuple[Ints, Ints]:
    """By channel: the bits that are kept of a count, and where it stops."""
    kept = [WRAPS_AT - 1 if name in WRAP else -1 for name in channels]
    most = [STOPS_AT.get(name, np.iinfo(np.int64).max) for name in channels]
    return np.array(kept, np.int64), np.array(most, np.int64)
