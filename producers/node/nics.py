"""NICs as /sys shows them: RDMA devices, or the Ethernet cards of a node that has none.

Counters are handed on as the hardware keeps them; names and units as in Linux
Documentation/ABI/stable/sysfs-class-infiniband and ABI/testing/sysfs-class-net-statistics.
A device whose firmware refuses its counters is not asked for them again: each refusal prints a line
to the kernel's log (mlx5_cmd_out_err, seen on functions that a cloud shares).
"""

import errno
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from nemesis.producers.node.probe import Answer, NotReadError
from nemesis.producers.node.root import INT64_MAX, Root, number_of
from nemesis.schemas.channels import ABSENT

RDMA: Final = "sys/class/infiniband"
ETHERNET: Final = "sys/class/net"
WORD_BYTES: Final = 4  # port_xmit_data counts words (IBTA PortCountersExtended)
_RDMA_SAMPLE: Final = {
    "link_downed_count": "counters/link_downed",
    "link_error_recovery_count": "counters/link_error_recovery",
    "symbol_error_count": "counters/symbol_error",
    "port_rcv_errors_count": "counters/port_rcv_errors",
    "local_ack_timeout_count": "hw_counters/local_ack_timeout_err",
    "packet_seq_err_count": "hw_counters/packet_seq_err",
    "xmit_bytes": "counters/port_xmit_data",
    "rcv_bytes": "counters/port_rcv_data",
}
_RDMA_STATE: Final = {
    "tx_discard_count": "counters/port_xmit_discards",
    "xmit_wait_count": "counters/port_xmit_wait",
    "remote_physical_error_count": "counters/port_rcv_remote_physical_errors",
    "link_integrity_error_count": "counters/local_link_integrity_errors",
    "buffer_overrun_count": "counters/excessive_buffer_overrun_errors",
    "cnp_sent_count": "hw_counters/np_cnp_sent",
    "cnp_handled_count": "hw_counters/rp_cnp_handled",
    "cnp_ignored_count": "hw_counters/rp_cnp_ignored",
    "ecn_marked_count": "hw_counters/np_ecn_marked_roce_packets",
    "out_of_sequence_count": "hw_counters/out_of_sequence",
    "out_of_buffer_count": "hw_counters/out_of_buffer",
    "duplicate_request_count": "hw_counters/duplicate_request",
    "implied_nak_seq_err_count": "hw_counters/implied_nak_seq_err",
    "rnr_nak_retry_count": "hw_counters/rnr_nak_retry_err",
    "retries_exceeded_count": "hw_counters/req_transport_retries_exceeded",
    "remote_access_error_count": "hw_counters/req_remote_access_errors",
    "icrc_error_count": "hw_counters/rx_icrc_encapsulated",
    "adp_retrans_count": "hw_counters/roce_adp_retrans",
    "adp_retrans_timeout_count": "hw_counters/roce_adp_retrans_to",
    "slow_restart_count": "hw_counters/roce_slow_restart",
}
_NET_SAMPLE: Final = {
    "link_downed_count": "carrier_down_count",
    "port_rcv_errors_count": "statistics/rx_errors",
    "xmit_bytes": "statistics/tx_bytes",
    "rcv_bytes": "statistics/rx_bytes",
}
_NET_STATE: Final = {"crc_error_count": "statistics/rx_crc_errors"}
_IN_WORDS: Final = frozenset({"xmit_bytes", "rcv_bytes"})
_REFUSED: Final = frozenset({errno.EINVAL, errno.EIO, errno.EOPNOTSUPP, errno.EREMOTEIO})
_RATE: Final = re.compile(r"(\d+)(?:\.(\d))? Gb/sec")

ORIGINS: Final[Mapping[str, str]] = {
    "port_up": f"/{RDMA}/<nic>/ports/1/state is 4 (active); /{ETHERNET}/<nic>/carrier",
    "rate_mbps": f"/{RDMA}/<nic>/ports/1/rate; /{ETHERNET}/<nic>/speed",
} | {
    channel: "; ".join(
        each
        for each in (
            f"/{RDMA}/<nic>/ports/1/{rdma}" if rdma else "",
            f"/{ETHERNET}/<nic>/{net}" if net else "",
        )
        if each
    )
    for channel in {**_RDMA_SAMPLE, **_NET_SAMPLE, **_RDMA_STATE, **_NET_STATE}
    for rdma in [(_RDMA_SAMPLE | _RDMA_STATE).get(channel, "")]
    for net in [(_NET_SAMPLE | _NET_STATE).get(channel, "")]
}
"""Channel to where it comes from."""


class NicRead(NamedTuple):
    """One NIC at one moment."""

    sample: dict[str, int]
    state: dict[str, int]


class Nic:
    """Reads one NIC."""

    def __init__(self, root: Root, name: str, folder: str) -> None:
        """`folder`: RDMA or ETHERNET."""
        self.name: Final = name
        self._root: Final = root
        self._place: Final = f"{folder}/{name}"
        self._rdma: Final = folder == RDMA
        self._refused = ""
        """The counter that the device would not tell."""

    @property
    def device(self) -> str:
        """Where /sys links to its PCI device."""
        return f"{self._place}/device"

    @property
    def channels(self) -> frozenset[str]:
        """The counters that /sys has of such a NIC."""
        read = (_RDMA_SAMPLE, _RDMA_STATE) if self._rdma else (_NET_SAMPLE, _NET_STATE)
        return frozenset(channel for each in read for channel in each)

    @property
    def interface(self) -> str:
        """Its network interface, "" where it has none."""
        names = self._root.names(f"{self.device}/net") if self._rdma else [self.name]
        return names[0] if names else ""

    def read(self) -> Answer:
        """The port as it is, a NicRead.

        Raises:
            NotReadError: it is gone, or has no port.
        """
        if not self._root.at(self._place).exists():
            raise NotReadError("lost", f"/{self._place} is not there any more")
        row, state = self._read_rdma() if self._rdma else self._read_ethernet()
        if self._refused:
            says = f"{self.name} refuses {self._refused}: its counters are not read again"
            return Answer(NicRead(row, state), "denied", says)
        return Answer(NicRead(row, state))

    def _read_ethernet(self) -> NicRead:
        up = self._root.number(f"{self._place}/carrier")
        speed = self._root.number(f"{self._place}/speed")  # -1 where the driver knows none
        row = {
            "port_up": int(up == 1),  # an interface that is off has no carrier to read
            "rate_mbps": speed if speed > 0 else ABSENT,
        }
        row |= {name: self._number(f"{self._place}/{at}") for name, at in _NET_SAMPLE.items()}
        return NicRead(
            row, {name: self._number(f"{self._place}/{at}") for name, at in _NET_STATE.items()}
        )

    def _read_rdma(self) -> NicRead:
        ports = self._root.names(f"{self._place}/ports")
        if not ports:
            raise NotReadError("broken", f"/{self._place}/ports names no port")
        port = f"{self._place}/ports/{ports[0]}"
        row = {
            "port_up": int(self._root.line(f"{port}/state").startswith("4")),
            "rate_mbps": _mbps(self._root.line(f"{port}/rate")),
        }
        row |= {name: self._number(f"{port}/{at}") for name, at in _RDMA_SAMPLE.items()}
        for name in _IN_WORDS:
            whole = row[name] * WORD_BYTES
            row[name] = whole if 0 <= whole <= INT64_MAX else ABSENT
        return NicRead(
            row, {name: self._number(f"{port}/{at}") for name, at in _RDMA_STATE.items()}
        )

    def _number(self, file: str) -> int:
        """A counter; ABSENT where this device has none of that name, or refuses."""
        if self._refused:
            return ABSENT
        try:
            return number_of(self._root.text(file).strip())
        except OSError as error:
            if self._rdma and error.errno in _REFUSED:
                self._refused = f"/{file}"
            return ABSENT


def nics_of(root: Root) -> list[Nic]:
    """The NICs of a node in the order of their names: those for RDMA, else Ethernet cards."""
    rdma = root.names(RDMA)
    if rdma:
        return [Nic(root, name, RDMA) for name in sorted(rdma, key=_natural)]
    cards = [n for n in root.names(ETHERNET) if root.at(f"{ETHERNET}/{n}/device").exists()]
    return [Nic(root, name, ETHERNET) for name in sorted(cards, key=_natural)]


def _natural(name: str) -> list[tuple[bool, int, str]]:
    """mlx5_2 before mlx5_10."""
    parts = re.findall(r"\d+|\D+", name)
    return [(p.isdecimal(), int(p) if p.isdecimal() else 0, p) for p in parts]


def _mbps(text: str) -> int:
    """`400 Gb/sec (4X NDR)` in Mb/s."""
    match = _RATE.match(text)
    return int(match[1]) * 1000 + int(match[2] or 0) * 100 if match else ABSENT
